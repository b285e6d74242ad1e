"""Errors that a user can cause: each message is one line that says what is wrong, where, and what to do.

TransduceError              the command line prints it as one line and exits with 2
├── SettingError            a setting, option or combination that cannot work
├── DataError               a problem in the user's files (names the file and, if possible, the line)
│   └── UnreadableFile      a file that cannot be read now; another attempt may succeed
├── RunError                a run folder that cannot be resumed, loaded or overwritten
│   └── DamagedFile         a file that is modified, incomplete or of the wrong kind
├── TrainingError           training cannot continue (loss is NaN, out of memory, disk full)
└── MissingExtra            an optional package is not installed (names the `pip install` to run)

Knows nothing of the rest of the package.
"""


class TransduceError(Exception):
    """An error that a user can cause and fix."""


class SettingError(TransduceError):
    """A setting, an option or a combination of them that cannot work."""


class DataError(TransduceError):
    """A problem in the user's files; the message begins with `file:line` if there is one."""


class UnreadableFile(DataError):
    """A file that cannot be opened or read, or is cut short."""


class RunError(TransduceError):
    """A run folder that cannot be resumed, loaded or overwritten."""


class DamagedFile(RunError):
    """A file that is modified, incomplete or not of the kind that its name says."""


class TrainingError(TransduceError):
    """Training cannot continue; the last checkpoint is intact."""


class MissingExtra(TransduceError):
    """An optional package is required but not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs the package '{package}': pip install 'transduce[{extra}]'")
