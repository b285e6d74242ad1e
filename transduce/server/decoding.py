"""Decoding of recordings, each in a process of its own: one that takes over libsndfile finds no other recording there, and one that
crashes it ends no more than that process. Knows no HTTP and no models.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from transduce.audio.uploads import DAMAGED, RATES, Sound, UploadError, UploadLimits
from transduce.server.decoding_process import ENDED, READY

PROGRAM = Path(__file__).with_name("decoding_process.py")
LONGEST_LINE = 1_000
KEPT = ("PATH", "LD_LIBRARY_PATH")  # variables of the environment; others may be secrets
ENDING_S = 1.0
REASONS = ("type", "too long", "too short", "empty", "broken")


class DecoderNotStarted(Exception):
    """There is no process that could decode, which is the fault of this machine and of no recording."""


class Decoder:
    """Decodes recordings, one at a time. The program that forks for each of them starts with the first, and again if it has ended."""

    def __init__(self, limits: UploadLimits, timeout_s: float) -> None:
        self.limits, self.timeout_s = limits, timeout_s
        self._lock = threading.Lock()
        self._program: DecodingProgram | None = None

    def __call__(self, recording: bytes) -> Sound:
        """The sound of a recording, or an `UploadError`."""
        with self._lock:
            program = self._running()
            try:
                with program.forked() as connection, _shut_down_after(self.timeout_s, connection):
                    return _decoded(recording, connection, self.limits)
            except (OSError, EOFError, ValueError, RecursionError):  # it crashed, took too long or wrote nonsense
                raise UploadError("broken", DAMAGED) from None
            except DecoderNotStarted:
                self._end()
                raise

    def close(self) -> None:
        with self._lock:
            self._end()

    def _running(self) -> "DecodingProgram":
        if self._program and not self._program.is_alive:
            self._end()
        self._program = self._program or self._started()
        return self._program

    def _started(self) -> "DecodingProgram":
        program = DecodingProgram(self.limits, self.timeout_s)
        if not program.is_ready():
            program.end()
            raise DecoderNotStarted
        return program

    def _end(self) -> None:
        if self._program:
            self._program.end()
        self._program = None


class DecodingProgram:
    """A process that runs `decoding_process.py`, which forks for each recording."""

    def __init__(self, limits: UploadLimits, timeout_s: float) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM), str(limits.seconds), *limits.types],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the server, which then ends this process
            )
        self._control.settimeout(timeout_s)
        self._written = self._control.makefile("rb")
        self.end = weakref.finalize(self, _end, self._process, self._control, self._written)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def is_ready(self) -> bool:
        """Whether it can decode, as soon as that is known."""
        return self._next_line() == READY

    @contextmanager
    def forked(self) -> Iterator[socket.socket]:
        """The connection to a new process, which is gone afterwards."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                self._send([theirs.fileno()])
            try:
                yield ours
            finally:
                self._send([])
                if self._next_line() != ENDED:
                    raise DecoderNotStarted

    def _send(self, descriptors: list[int]) -> None:
        try:
            socket.send_fds(self._control, [b"\n"], descriptors)
        except OSError:
            raise DecoderNotStarted from None

    def _next_line(self) -> bytes:
        try:
            return self._written.readline(LONGEST_LINE)
        except OSError:
            return b""


def _decoded(recording: bytes, connection: socket.socket, limits: UploadLimits) -> Sound:
    """The sound of a recording. What the other process writes is not trusted: it reads the recording of a stranger."""
    connection.sendall(len(recording).to_bytes(8, "big"))
    if recording:  # the other process may have answered already, and ended, if there is nothing to wait for
        connection.sendall(recording)
    with connection.makefile("rb") as written:
        answer = _answer(written)
        if "reason" in answer:
            raise _refusal(answer)
        return _sound(written, answer.get("samples"), answer.get("rate"), limits)


def _answer(written: BufferedReader) -> dict[str, Any]:
    line = written.readline(LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise EOFError
    answer: Any = json.loads(line)
    if not isinstance(answer, dict):
        raise ValueError(line)
    return answer


def _sound(written: BufferedReader, count: Any, rate: Any, limits: UploadLimits) -> Sound:
    known = isinstance(count, int) and isinstance(rate, int) and RATES[0] <= rate <= RATES[1]
    if not known or not 0 < count <= limits.seconds * rate + 1:
        raise ValueError(count, rate)
    samples = np.empty(count, np.float32)
    left = samples.data.cast("B")
    while left:
        read = written.readinto(left)
        if not read:
            raise EOFError
        left = left[read:]
    return Sound(samples, rate)


def _refusal(answer: dict[str, Any]) -> UploadError:
    reason, problem = answer["reason"], answer.get("problem")
    if reason not in REASONS or not isinstance(problem, str) or not problem.isprintable():
        raise ValueError(answer)
    return UploadError(reason, problem)


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    path = os.pathsep.join(map(os.path.abspath, sys.path))  # the empty path is the working directory
    return kept | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def _shut_down_after(timeout_s: float, connection: socket.socket) -> Iterator[None]:
    """Inside this context, a connection is shut down when it has lasted too long."""
    stop = threading.Timer(timeout_s, _shut_down, [connection])
    stop.start()
    try:
        yield
    finally:
        stop.cancel()


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # it may be closed already
        connection.shutdown(socket.SHUT_RDWR)


def _end(process: subprocess.Popen[bytes], control: socket.socket, written: BufferedReader) -> None:
    """The end of its input tells it to end, and what it has forked; the signal is for a process that hangs."""
    written.close()
    control.close()
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
