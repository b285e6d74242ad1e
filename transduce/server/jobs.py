"""Jobs and batches of the queue: the lines of a request, and the lines that are computed together. Knows no models."""

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from transduce.server.pace import Pace

SHORT = 32  # the cost of a short line, in tokens
# Results of lines of a job whose length is not known in advance: of the last line, and of those that it makes unnecessary.
LAST, UNNECESSARY = object(), object()


class QueueWork(Protocol):
    """A function from lines to results. Lines of different requests share a batch if their work is equal.

    A line is a piece of work of any type, such as a sentence or the features of an utterance.
    """

    @property
    def alone(self) -> Hashable:
        """Something that only one batch may use at a time, or None."""
        ...

    @property
    def kind(self) -> Hashable:
        """Work of the same kind takes about the same time for the same cost. There must be few kinds: each is remembered."""
        ...

    def __call__(self, lines: list[Any], /) -> Sequence[Any]:
        """A result for each line; one that is an exception fails its own request."""
        ...


class QueueJob:
    """The lines of a request: some wait, some are being computed, some are done."""

    def __init__(self, work: QueueWork, lines: Sequence[Any], costs: Sequence[float], usual: Pace) -> None:
        self.work, self.lines, self.costs, self.alone = work, lines, costs, work.alone
        self.usual, self.own = usual, Pace()  # the pace of its kind of work, and the pace of its own lines
        self.used_s = 0.0  # the computing time it has used, starting from the fair share at its arrival
        self.turn = 0  # the order of its last turn, or of its arrival
        self.begun = 0
        self.missing = len(lines)
        self.answers: list[Any] = [None] * len(lines)
        self.done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    @property
    def is_waiting(self) -> bool:
        return self.begun < len(self.lines)

    @property
    def is_tried(self) -> bool:
        """Whether its first lines are running and their duration should be known before others are started."""
        return self.own.is_tried or self.usual.is_tried

    @property
    def size(self) -> int:
        """The size class of its next line, in powers of two: short and long lines do not share a batch."""
        return (int(self.costs[self.begun]) // SHORT).bit_length() if self.is_waiting else -1

    @property
    def pace(self) -> Pace:
        return self.own if self.own.is_known else self.usual

    def next_s(self, unknown_s: float) -> float:
        """The expected time of its next line, or `unknown_s` if nothing is known yet."""
        return self.pace.seconds(self.costs[self.begun]) if self.pace.is_known else unknown_s

    def next_line(self) -> "QueuedLine":
        self.begun += 1
        return QueuedLine(self, self.begun - 1)

    def receive(self, number: int, answer: Any) -> None:
        self.answers[number] = answer
        self.missing -= 1
        if self.done.done():
            return  # no client is waiting for it any more
        if isinstance(answer, Exception):
            self.done.set_exception(answer)
        elif answer is LAST or not self.missing:
            self.done.set_result(self.answers)


@dataclass(frozen=True)
class QueuedLine:
    """A line of a job."""

    job: QueueJob
    number: int

    @property
    def content(self) -> Any:
        return self.job.lines[self.number]

    @property
    def cost(self) -> float:
        return self.job.costs[self.number]


@dataclass(eq=False)
class QueueBatch:
    """Lines that are computed together, and the expected time."""

    lines: list[QueuedLine]
    expected_s: float
    alone: Hashable
    is_slow: bool
    began: float = 0.0  # the time of its start
    mark: float = 0.0  # where its share of the machine's time starts

    @property
    def jobs(self) -> list[QueueJob]:
        return list(dict.fromkeys(line.job for line in self.lines))


def answers_of(batch: list[QueuedLine]) -> list[Any]:
    """A result or an exception for each line. If a batch fails, each line is tried alone, so one request cannot break another."""
    work = batch[0].job.work
    try:
        return list(work([line.content for line in batch]))
    except Exception as error:
        return [error] if len(batch) == 1 else [answers_of([line])[0] for line in batch]
