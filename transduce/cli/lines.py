"""Lines of bytes from stdin as they come: whoever types, or pipes a line now and then, should not wait for the others."""

import os
import select
import stat
from collections import deque

CHUNK = 1 << 16  # bytes
PAUSE_S = 0.05  # without a line


class Arriving:
    """The lines of a pipe or a terminal, "\\n" included where there was one."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.ended = descriptor, False
        self.lines: deque[bytes] = deque()
        self.begun: list[bytes] = []  # of a line that is not over yet

    @staticmethod
    def fits(descriptor: int) -> bool:
        """Whether lines come there when somebody sends them, and can be waited for."""
        mode = os.fstat(descriptor).st_mode
        return os.name == "posix" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor))

    def readline(self) -> bytes:
        """The next line as soon as it is whole; nothing once there is none."""
        while not self.lines and not self.ended:
            self._read()
        return self.lines.popleft() if self.lines else b""

    def paused(self) -> bool:
        """Whether no further line comes for a while; the end of all lines is no pause."""
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
