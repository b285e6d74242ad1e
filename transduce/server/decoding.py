"""Decoding of recordings in a process of its own: one that crashes libsndfile ends that process, and not the server. Knows no HTTP and no models."""

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from transduce.audio.uploads import DAMAGED, RATES, Sound, UploadError, UploadLimits
from transduce.server.decoding_process import READY

PROGRAM = Path(__file__).with_name("decoding_process.py")
LONGEST_LINE = 1_000
KEPT = ("PATH", "LD_LIBRARY_PATH")  # variables of the environment; others may be secrets
REASONS = ("type", "too long", "too short", "empty", "broken")


class DecoderNotStarted(Exception):
    """The process ended before it could decode anything, which is the fault of this machine and of no recording."""


class Decoder:
    """Decodes recordings, one at a time. Its process starts with the first of them, and again after it has ended."""

    def __init__(self, limits: UploadLimits, timeout_s: float) -> None:
        self.limits, self.timeout_s = limits, timeout_s
        self._lock = threading.Lock()
        self._process: DecodingProcess | None = None

    def __call__(self, recording: bytes) -> Sound:
        """The sound of a recording, or an `UploadError`."""
        with self._lock:
            process = self._running()
            try:
                with self._killed_in_time(process):
                    return process.decode(recording)
            except (OSError, EOFError, ValueError, RecursionError):  # it crashed, took too long or wrote nonsense
                self._end()
                raise UploadError("broken", DAMAGED) from None

    def close(self) -> None:
        with self._lock:
            self._end()

    def _running(self) -> "DecodingProcess":
        if self._process and not self._process.is_alive:
            self._end()
        self._process = self._process or self._started()
        return self._process

    def _started(self) -> "DecodingProcess":
        process = DecodingProcess(self.limits)
        with self._killed_in_time(process):
            is_ready = process.is_ready()
        if not is_ready:
            process.end()
            raise DecoderNotStarted
        return process

    @contextmanager
    def _killed_in_time(self, process: "DecodingProcess") -> Iterator[None]:
        """Inside this context, the process is killed when it has taken too long."""
        stop = threading.Timer(self.timeout_s, process.kill)
        stop.start()
        try:
            yield
        finally:
            stop.cancel()

    def _end(self) -> None:
        if self._process:
            self._process.end()
        self._process = None


class DecodingProcess:
    """A process that runs `decoding_process.py`. What it writes is not trusted: it read the recording of a stranger."""

    def __init__(self, limits: UploadLimits) -> None:
        self.limits = limits
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM), str(limits.seconds), *limits.types],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is for the server, which then ends this process
        )
        self.end = weakref.finalize(self, _end, self._process)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def is_ready(self) -> bool:
        """Whether it can decode, as soon as that is known."""
        return _open(self._process.stdout).readline(LONGEST_LINE) == READY

    def decode(self, recording: bytes) -> Sound:
        self._send(recording)
        answer = self._answer()
        if "reason" in answer:
            raise _refusal(answer)
        return self._sound(answer.get("samples"), answer.get("rate"))

    def kill(self) -> None:
        self._process.kill()

    def _send(self, recording: bytes) -> None:
        stdin = _open(self._process.stdin)
        stdin.write(len(recording).to_bytes(8, "big"))
        stdin.write(recording)
        stdin.flush()

    def _answer(self) -> dict[str, Any]:
        line = _open(self._process.stdout).readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise EOFError
        answer: Any = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError(line)
        return answer

    def _sound(self, count: Any, rate: Any) -> Sound:
        known = isinstance(count, int) and isinstance(rate, int) and RATES[0] <= rate <= RATES[1]
        if not known or not 0 < count <= self.limits.seconds * rate + 1:
            raise ValueError(count, rate)
        samples = np.empty(count, np.float32)
        left = samples.data.cast("B")
        while left:
            read = _open(self._process.stdout).readinto(left)  # type: ignore[attr-defined]
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


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(OSError), process:  # closes the pipes; what is still in them is lost
        pass


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe
    return pipe
