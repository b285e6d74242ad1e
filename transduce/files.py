"""Write files so that they are safely on disk, and refuse to read anything but regular files.

Knows nothing of what files hold or whose they are: callers say what a failure means to the user.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
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


# Errors that are about this process, not about the file: a limit it has met, or a right it lacks.
LIMITS_MET = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
NOT_THE_FILE = (*LIMITS_MET, errno.EACCES, errno.EPERM)


def open_plain(path: str | Path) -> BufferedReader:
    """A regular file, open for reading. A FIFO, socket, device or folder of that name is an `OSError` at once.

    Opening a FIFO waits until another process writes to it, and a device may act when it is opened, so the file is
    opened without waiting and checked before anything is read. The check is on the open file: nobody can swap it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_plain(path: str | Path, most: int = 0) -> bytes:
    """The content of a regular file; one of more than `most` bytes is an `OSError` (0: any size)."""
    with open_plain(path) as file:
        if most and os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
        return file.read()
