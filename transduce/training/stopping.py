"""Stopping on Ctrl-C and SIGTERM: the loop stops at its next safe point, or at once on a second Ctrl-C."""

import signal
from types import FrameType
from typing import Any


class Stopped(Exception):
    """Training was stopped by a signal; a checkpoint was saved unless no step was done."""

    def __init__(self, signal_number: int, step: int) -> None:
        saved = f"stopped at step {step:,} and saved a checkpoint; rerun the same command to resume"
        nothing = "stopped before the first step, so nothing was saved; rerun the same command to start over"
        super().__init__(saved if step else nothing)
        self.signal_number, self.step = signal_number, step

    def __reduce__(self) -> tuple[Any, ...]:
        """For a process that waits for this one: by itself, an exception is made again from its message alone."""
        return Stopped, (self.signal_number, self.step)


class StopSignals:
    """Inside this context, the first signal is recorded instead of ending the program.

    A launcher of several processes sends signals again, so there (`once=False`) later ones are recorded too.
    """

    def __init__(self, once: bool = True) -> None:
        self.once = once
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._previous[number] = signal.signal(number, self._record)
            except ValueError:  # not the main thread: the embedding program keeps its own handlers
                break
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _record(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        if self.once:
            signal.signal(number, self._previous[number])
