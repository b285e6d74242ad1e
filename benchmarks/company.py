"""A device to oneself for a moment, while other benchmarks share it.

Commands that are started with the same value of TRANSDUCE_COMPANY share a machine. Whoever measures a speed does so in `alone()`, which stops the
others until its block ends; without the variable it does nothing. So training runs whose seconds do not matter can fill the time between measurements.
"""

import fcntl
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

NAME = "TRANSDUCE_COMPANY"
SETTLING_S = 1.5  # for what the others had queued on the device
LONGEST_S = 180.0  # then the others go on, even if the block has not ended


@contextmanager
def alone(longest_s: float = LONGEST_S) -> Iterator[None]:
    """Stop all other processes of the company until the end of the block; one block at a time."""
    name = os.environ.get(NAME, "")
    if not name:
        yield
        return
    with open(Path(tempfile.gettempdir()) / f"company-{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with waking(longest_s) as sleepers:
            stop_others(name, sleepers)
            time.sleep(SETTLING_S)
            yield


@contextmanager
def waking(longest_s: float) -> Iterator[IO[bytes]]:
    """A file: processes whose numbers are written to it go on at the end of the block, even if this process is killed in it."""
    command = ["sh", "-c", f"kill -CONT $(timeout {longest_s} cat)"]  # cat ends with the block, or with this process
    unknown = {key: value for key, value in os.environ.items() if key != NAME}  # so that nobody stops it
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=unknown, start_new_session=True
    ) as waker:
        assert waker.stdin
        yield waker.stdin


def stop_others(name: str, sleepers: IO[bytes]) -> None:
    stopped: set[int] = set()
    while others := company(name) - family() - stopped:  # a process that was just started is found the next time
        sleepers.write(b"".join(b"%d\n" % process for process in others))
        sleepers.flush()
        for process in others:
            with suppress(ProcessLookupError):  # it has ended
                os.kill(process, signal.SIGSTOP)
        stopped |= others


def company(name: str) -> set[int]:
    """The processes that were started with this name in their environment."""
    wanted = f"{NAME}={name}".encode()
    return {process for process in processes() if wanted in read(process, "environ").split(b"\0")}


def family() -> set[int]:
    """This process with those that started it and those that it started."""
    parents = {process: parent_of(process) for process in processes()}
    own = os.getpid()
    return set(line_of(own, parents.get)) | {process for process in parents if own in line_of(process, parents.get)}


def line_of(process: int, parent: Callable[[int], int | None]) -> list[int]:
    """A process, its parent, and so on."""
    line: list[int] = []
    while process and process not in line:
        line.append(process)
        process = parent(process) or 0
    return line


def processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def parent_of(process: int) -> int:
    """The second number after the name, which may contain anything but ends with the last bracket."""
    fields = read(process, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def read(process: int, file: str) -> bytes:
    """Nothing if the process has ended or belongs to somebody else."""
    with suppress(OSError):
        return Path(f"/proc/{process}/{file}").read_bytes()
    return b""
