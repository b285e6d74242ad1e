"""A folder that appears under its name only when it is complete."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.errors import RunError


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill under a temporary name, which becomes `target` at the end; if anything fails, nothing is left."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        _make(temporary, target)
        yield temporary
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _make(temporary: Path, target: Path) -> None:
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise RunError(f"{target}: cannot be created ({error.strerror})") from None
