"""Write files so that they are safely on disk, and refuse to read anything but regular files.

Knows nothing of the content of files: callers turn a failure into a message for the user, except for files that users name
as results.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO

from transduce.errors import RunError, SettingError, TransduceError

Explain = Callable[[str, bool], TransduceError]  # called with the reason and whether the disk is full


@contextmanager
def disk_errors(explain: Explain, *others: type[Exception]) -> Iterator[None]:
    """Turn disk errors into the error that `explain` returns; `others` are exceptions by which libraries report them."""
    kinds: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except kinds as error:
        number, reason = (error.errno, error.strerror) if isinstance(error, OSError) else (None, None)
        raise explain(reason or str(error), number in (errno.ENOSPC, errno.EDQUOT)) from None


def check_place(path: str | Path) -> None:
    """Refuse a name for a result that cannot be written, before anything is computed."""
    if not Path(path).resolve().parent.is_dir():
        raise SettingError(f"{path}: the folder {Path(path).parent} does not exist: create it first")
    if Path(path).is_dir():
        raise SettingError(f"{path}: is a folder: give the name of a file")
    if not os.access(path if Path(path).exists() else Path(path).resolve().parent, os.W_OK):
        raise SettingError(f"{path}: cannot be written (no permission, or a read-only disk): give another place")


def write_result(path: str | Path, content: str | bytes) -> None:
    """Write the file that a user named: all of it, or an older file stays; half a surrogate pair becomes a question mark."""
    whole = content if isinstance(content, bytes) else content.encode(errors="replace")
    with disk_errors(lambda reason, full: SettingError(f"{path}: cannot be written ({reason}): {_place(full)}")):
        if _is_replaceable(Path(path)):
            _replace(Path(path).resolve(), whole)
        else:
            Path(path).write_bytes(whole)


def _place(full: bool) -> str:
    return "free some space, or give a place on another disk" if full else "give another place"


def _is_replaceable(path: Path) -> bool:
    """Pipes and devices are written to, and so is a file in a folder that takes no new files."""
    special = path.exists() and not path.is_file()
    through = path.absolute().parts[1:2] in (("dev",), ("proc",))  # such as /dev/stdout, wherever it leads
    return not special and not through and os.access(path.resolve().parent, os.W_OK)


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_durably(temporary, content)
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        synchronize_open(file)


def synchronize_open(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def synchronize(path: Path) -> None:
    """Flush the content of a file, or the names in a folder, to the disk; a rename is safe once both are there."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_new(folder: Path) -> None:
    """Refuse a folder to export to that exists."""
    if folder.exists() or folder.is_symlink():
        raise RunError(f"{folder}: already exists; export to a new folder")


# Errors caused by this process, not by the file: a limit that it reached, or a permission that it lacks.
LIMITS_MET = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
NOT_THE_FILE = (*LIMITS_MET, errno.EACCES, errno.EPERM)


def open_plain(path: str | Path) -> BufferedReader:
    """Open a regular file for reading. A FIFO, socket, device or folder of that name raises an `OSError` at once.

    Opening a FIFO would wait until another process writes to it, and a device may act when it is opened, so the file is
    opened without waiting and checked before anything is read. The check is on the open file, which cannot be swapped.
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
    """Read a regular file; more than `most` bytes raise an `OSError` (0: any size)."""
    with open_plain(path) as file:
        if most and os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
        return file.read()
