"""The lock of a run folder: held by the process that trains the run, and gone with it even if it is killed.

Knows the lock file beside the folder, and nothing that is inside.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from transduce.checkpoint import RunFolder
from transduce.errors import RunError
from transduce.files import open_plain

POLL_S = 0.2


@contextmanager
def alone_in(folder: RunFolder, wait_s: float = 0.0, say: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Lock the run folder against a second process; the lock ends with this process, even if it is killed.

    Waits for another process at most `wait_s` seconds.
    """
    lock = folder.lock
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    except OSError as error:
        failed = "written" if folder.path.is_dir() else "created here"
        reason = (error.strerror or str(error)).lower()
        raise RunError(f"{folder.path}: the run folder cannot be {failed}: {reason}") from None
    with _locked(folder, wait_s, say):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _locked(folder: RunFolder, wait_s: float, say: Callable[[str], None]) -> IO[str]:
    """The open lock file, once this process holds its lock."""
    until, said = time.monotonic() + wait_s, False
    while (file := _try_to_lock(folder.lock)) is None:
        if time.monotonic() >= until:
            raise RunError(f"{folder.path}: another process is training this run; wait for it to finish, or stop it")
        if not said:
            say(f"waiting up to {wait_s:.0f} seconds for another process to stop training {folder.path}")
            said = True
        time.sleep(POLL_S)
    return file


def _try_to_lock(lock: Path) -> IO[str] | None:
    """The open lock file, or None if another process holds the lock."""
    file = open(lock, "w")  # noqa: SIM115 - the lock lasts while the file is open
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous owner may have removed the file after we opened it; then our lock protects nothing.
        if lock.exists() and os.fstat(file.fileno()).st_ino == lock.stat().st_ino:
            return file
    except OSError:
        pass
    file.close()
    return None


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
