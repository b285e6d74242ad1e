"""A folder that appears under its name only when it is complete."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.errors import RunError
from transduce.files import disk_errors


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill under a temporary name, which becomes `target` at the end; if anything fails, nothing is left."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        _make(temporary, target)
        with disk_errors(lambda reason, full: _unwritable(target, reason, full)):
            yield temporary
            os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _unwritable(target: Path, reason: str, full: bool) -> RunError:
    advice = "free some space, or export to a folder on another disk" if full else "fix the cause and rerun the command"
    return RunError(f"{target}: cannot be written ({reason}): {advice}")


def _make(temporary: Path, target: Path) -> None:
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise RunError(f"{target}: cannot be created ({error.strerror})") from None
