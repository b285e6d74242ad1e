"""Input lines from a file (compressed or not) or from stdin, passed on as soon as they arrive."""

import os
import select
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import IO

from transduce.data import READ_ERRORS, open_bytes, unreadable
from transduce.errors import DataError

CHUNK = 1 << 16  # bytes
PAUSE_S = 0.05  # without a new line, after which the input counts as paused


class Arriving:
    """The lines of a pipe or a terminal, including their "\\n"."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.ended = descriptor, False
        self.lines: deque[bytes] = deque()
        self.begun: list[bytes] = []  # the parts of an incomplete line

    @staticmethod
    def fits(descriptor: int) -> bool:
        """Whether the descriptor is a pipe, a socket or a terminal that can be waited for."""
        mode = os.fstat(descriptor).st_mode
        return os.name == "posix" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor))

    def readline(self) -> bytes:
        """The next line as soon as it is complete, or nothing at the end of the input."""
        while not self.lines and not self.ended:
            self._read()
        return self.lines.popleft() if self.lines else b""

    def paused(self) -> bool:
        """Whether no further line has arrived for a while; the end of the input is not a pause."""
        while not self.lines and not self.ended:
            if not select.select([self.descriptor], [], [], PAUSE_S)[0]:
                return True
            self._read()
        return False

    def _read(self) -> None:
        chunk = os.read(self.descriptor, CHUNK)
        *whole, rest = chunk.split(b"\n")
        if whole:
            self.lines.append(b"".join([*self.begun, whole[0], b"\n"]))
            self.lines.extend(line + b"\n" for line in whole[1:])
            self.begun = []
        if rest:
            self.begun.append(rest)
        if not chunk:
            self.ended = True
            self.lines.extend([b"".join(self.begun)] if self.begun else [])


class Lines:
    """The lines of a file, compressed or not, or of stdin. Only "\\n" separates lines, and no line is left out."""

    def __init__(self, path: str) -> None:
        self.path, self.read, self.undecodable = path, 0, 0
        self.first_undecodable = 0  # the number of that line, from 1
        self.arriving = Arriving(sys.stdin.fileno()) if path == "-" and _sent_to_stdin() else None

    def __iter__(self) -> Iterator[str]:
        with nullcontext(self.arriving) if self.arriving else self._open() as file:
            while line := self._take(file):
                yield self._decode(line.removesuffix(b"\n").removesuffix(b"\r"))

    @property
    def paused(self) -> Callable[[], bool] | None:
        """Tells whether no further line has arrived yet; None for files, which never pause."""
        return self.arriving.paused if self.arriving else None

    def _open(self) -> IO[bytes]:
        if self.path == "-" and sys.stdin is None:
            raise DataError("-: standard input is closed")
        if self.path == "-":
            return sys.stdin.buffer
        try:
            return open_bytes(self.path)
        except OSError as error:
            raise unreadable(self.path, error) from None

    def _take(self, file: IO[bytes] | Arriving) -> bytes:
        try:
            line = file.readline()
        except READ_ERRORS as error:
            raise unreadable(f"{self.path}:{self.read + 1}", error) from None
        self.read += 1
        return line

    def _decode(self, line: bytes) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError:
            self.undecodable += 1
            self.first_undecodable = self.first_undecodable or self.read
            return line.decode(errors="replace")


def _sent_to_stdin() -> bool:
    try:
        return sys.stdin is not None and Arriving.fits(sys.stdin.fileno())
    except (OSError, ValueError):  # it is closed, or not a file
        return False
