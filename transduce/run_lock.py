"""The lock of a run folder: held by the process that trains the run, and gone with it even if it is killed.

Knows the lock file beside the folder, and nothing that is inside.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from transduce.checkpoint import RunFolder
from transduce.errors import RunError
from transduce.files import open_plain


@contextmanager
def alone_in(folder: RunFolder) -> Iterator[None]:
    """Lock the run folder against a second process; the lock ends with this process, even if it is killed."""
    lock = folder.lock
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous owner may have removed the file after we opened it; then our lock protects nothing.
            if not lock.exists() or os.fstat(file.fileno()).st_ino != lock.stat().st_ino:
                raise BlockingIOError
        except OSError:
            raise RunError(
                f"{folder.path}: another process is training this run; wait for it to finish, or stop it"
            ) from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def is_training(folder: RunFolder) -> bool:
    """Whether a process holds the lock of the run; a killed process leaves the lock file but not the lock."""
    try:
        with open_plain(folder.lock) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
