"""How long a process waits for others in its exchanges: by the clock of the host, or by that of a GPU.

Exchanges of vectors by NCCL are only queued by the host, and the GPU waits. Two events around each of them say how long it did.
They are read when the GPU has passed them, so that the host never waits to measure. Knows no processes.
"""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class HostClock:
    """Measures all exchanges: the host takes part in each of them."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def measured(self, vectors: bool) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - begun


class DeviceClock:
    """Measures exchanges of vectors; while the host exchanges decisions, the GPU has work to do."""

    def __init__(self) -> None:
        self.known = 0.0
        self.marks: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    @contextmanager
    def measured(self, vectors: bool) -> Iterator[None]:
        if not vectors:
            yield
            return
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        yield
        end.record()
        self.marks.append((begin, end))

    @property
    def seconds(self) -> float:
        while self.marks and self.marks[0][1].query():
            begin, end = self.marks.popleft()
            self.known += begin.elapsed_time(end) / 1000  # milliseconds
        return self.known
