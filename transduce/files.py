"""What is written is on the disk, and a disk that fails is one line.

Knows nothing of what files hold or whose they are: those who write say what a failure means to the user.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from transduce.errors import TransduceError

Explain = Callable[[str, bool], TransduceError]  # of the reason, and whether it is that the disk is full


@contextmanager
def disk_errors(explain: Explain, *others: type[Exception]) -> Iterator[None]:
    """A disk that is full, closed to us or failing, as an error for people; `others` are a library's words for it."""
    kinds: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except kinds as error:
        number, reason = (error.errno, error.strerror) if isinstance(error, OSError) else (None, None)
        raise explain(reason or str(error), number in (errno.ENOSPC, errno.EDQUOT)) from None


def write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        synchronize_open(file)


def synchronize_open(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def synchronize(path: Path) -> None:
    """A file's content or a folder's names: a rename is only safe once both are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
