"""A device to oneself for a moment, while other benchmarks share it.

Commands that are started with the same value of TRANSDUCE_COMPANY share a machine. Whoever measures a speed does so in `alone()`, which stops the
others until its block ends; without the variable it does nothing. So training runs whose seconds do not matter can fill the time between measurements.
"""

import fcntl
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

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
    with open(Path(tempfile.gettempdir()) / f"company-{name}.lock", "w") as lock, ExitStack() as stack:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stopped: set[int] = set()
        stack.callback(lambda: send(signal.SIGCONT, stopped))
        while others := company(name) - family() - stopped:  # a process that was just started is found the next time
            send(signal.SIGSTOP, others)
            stopped |= others
        guard = threading.Timer(longest_s, send, (signal.SIGCONT, stopped))
        guard.daemon = True
        guard.start()
        stack.callback(guard.cancel)
        time.sleep(SETTLING_S)
        yield


def send(number: signal.Signals, processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # it has ended
            os.kill(process, number)


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
