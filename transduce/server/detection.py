"""Language detection with the package lingua, if it is installed. Knows no models and no HTTP."""

import json
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from transduce.server.background import in_thread
from transduce.server.lingua_process import READY
from transduce.server.refusals import NotFound, Overloaded

PROGRAM = Path(__file__).with_name("lingua_process.py")
RESTART_S = 30.0  # about how long lingua takes to load


@dataclass(frozen=True)
class Detected:
    """A likely language and the confidence in it, in per cent."""

    language: str
    confidence: float


class Detector:
    """Lingua's detector in a process of its own; the queue sends it one batch at a time.

    The process takes about 1.3 GB of memory, so it starts with the first request that needs it.
    """

    kind = alone = "detection"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: LinguaProcess | None = None
        self._starting: Future[LinguaProcess] | None = None

    def check_installed(self) -> None:
        if find_spec("lingua") is None:
            raise NotFound(
                "no language detector is installed: give the source language, "
                "or install one with pip install 'transduce[detect]' and restart the server"
            )

    def start(self) -> "Future[LinguaProcess]":
        """Start the process unless it is running; the future is done when lingua has loaded its models."""
        with self._lock:
            if self._starting is None or (self._process and not self._process.is_alive):
                print("transduce: loading the language detector", file=sys.stderr, flush=True)
                self._process = LinguaProcess()
                self._starting = in_thread(self._process.ready)
            return self._starting

    def __call__(self, texts: list[str]) -> list[list[Detected]]:
        """The likeliest languages of each text: at most three, likeliest first."""
        process = self.start().result()
        return [process.detect(text) for text in texts]

    def close(self) -> None:
        if self._process:
            self._process.end()


class LinguaProcess:
    """A process that runs `lingua_process.py`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM)],  # -P: this folder has modules named like the standard library's
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # an error message could contain a user's text
            text=True,
            start_new_session=True,  # Ctrl-C is for the server, which then ends this process
        )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ready(self) -> "LinguaProcess":
        """This process, as soon as lingua has loaded its models."""
        if self._read() != f"{READY}\n":
            self.end()
            raise Overloaded("the language detector could not be started: give the source language")
        return self

    def detect(self, text: str) -> list[Detected]:
        try:
            self._write(json.dumps(text))
            answer = self._read()
        except (OSError, ValueError):  # ValueError: the bytes of a killed process end within a character
            answer = ""
        if not answer.endswith("\n"):  # it was killed before or while it answered
            self.end()
            raise Overloaded("the language detector stopped and is restarted: try again later", retry_after_s=RESTART_S)
        return [Detected(language, confidence) for language, confidence in json.loads(answer)]

    def end(self) -> None:
        self._process.kill()
        with suppress(OSError), self._process:  # closes the pipes; what is still in them is lost
            pass

    def _write(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _read(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()
