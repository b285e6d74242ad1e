"""The errors a user can cause: each is one line saying what, where and what to do.

TransduceError              the command line prints it as one line and exits with 2
├── SettingError            a setting, option or combination that cannot work
├── DataError               something in the user's files (names the file and, where it can, the line)
├── RunError                a run folder that cannot be used as asked (resumed, loaded, overwritten)
│   └── DamagedFile         a file of a run folder that is torn or altered
├── TrainingError           training cannot go on (not a number, out of memory, disk full)
└── MissingExtra            an optional package is not installed (names the `pip install` to run)

Knows nothing of the rest of the package.
"""


class TransduceError(Exception):
    """What a user can cause and mend."""


class SettingError(TransduceError):
    """A setting, an option or a combination of them that cannot work."""


class DataError(TransduceError):
    """Something in the user's files; the message begins with `file:line` where there is one."""


class RunError(TransduceError):
    """A run folder that cannot be used as asked."""


class DamagedFile(RunError):
    """A file of a run folder that is torn, altered or not what its name says."""


class TrainingError(TransduceError):
    """Training cannot go on; the last good checkpoint stands."""


class MissingExtra(TransduceError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs the package '{package}': pip install 'transduce[{extra}]'")
