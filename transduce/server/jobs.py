"""A request's lines and the batches they travel in. Knows functions of lines, and no order among requests."""

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from transduce.server.pace import Pace

SHORT = 32  # the cost of a short line: tokens


class QueueWork(Protocol):
    """An answer for each line; lines of requests whose work is equal mix."""

    @property
    def alone(self) -> Hashable:
        """What no two batches may use at the same time, or None."""
        ...

    @property
    def kind(self) -> Hashable:
        """QueueWork of one kind takes about the same time for the same cost. There are few kinds: each is remembered."""
        ...

    def __call__(self, lines: list[str], /) -> Sequence[Any]: ...


class QueueJob:
    """A request's lines: some waiting, some with a worker, some answered."""

    def __init__(self, work: QueueWork, lines: Sequence[str], costs: Sequence[float], usual: Pace) -> None:
        self.work, self.lines, self.costs, self.alone = work, lines, costs, work.alone
        self.usual, self.own = usual, Pace()  # the pace of its kind, and of its own lines
        self.used_s = 0.0  # its share of the machine's time, counted from what others had when it came
        self.turn = 0  # when it last had one, or came
        self.begun = 0
        self.missing = len(lines)
        self.answers: list[Any] = [None] * len(lines)
        self.done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    @property
    def is_waiting(self) -> bool:
        return self.begun < len(self.lines)

    @property
    def is_tried(self) -> bool:
        """Whether it is better to see how long its first lines take before others are begun."""
        return self.own.is_tried or self.usual.is_tried

    @property
    def size(self) -> int:
        """Of its next line, in powers of two: a short line does not wait in a batch for a long one."""
        return (int(self.costs[self.begun]) // SHORT).bit_length() if self.is_waiting else -1

    @property
    def pace(self) -> Pace:
        return self.own if self.own.is_known else self.usual

    def next_s(self, unknown_s: float) -> float:
        """How long its next line should take."""
        return self.pace.seconds(self.costs[self.begun]) if self.pace.is_known else unknown_s

    def next_place(self) -> "QueuedLine":
        self.begun += 1
        return QueuedLine(self, self.begun - 1)

    def receive(self, number: int, answer: Any) -> None:
        self.answers[number] = answer
        self.missing -= 1
        if self.done.done():
            return  # nobody waits for it any more
        if isinstance(answer, Exception):
            self.done.set_exception(answer)
        elif not self.missing:
            self.done.set_result(self.answers)


@dataclass(frozen=True)
class QueuedLine:
    """Where an answer belongs."""

    job: QueueJob
    number: int

    @property
    def line(self) -> str:
        return self.job.lines[self.number]

    @property
    def cost(self) -> float:
        return self.job.costs[self.number]


@dataclass(eq=False)
class QueueBatch:
    """Lines that are computed together, and how long that should take."""

    places: list[QueuedLine]
    expected_s: float
    alone: Hashable
    is_slow: bool
    began: float = 0.0  # by the clock
    mark: float = 0.0  # of its share

    @property
    def jobs(self) -> list[QueueJob]:
        return list(dict.fromkeys(place.job for place in self.places))


def answers_of(batch: list[QueuedLine]) -> list[Any]:
    """An answer or an error for each place; a batch that fails is tried line by line, so nobody fails for another."""
    work = batch[0].job.work
    try:
        return list(work([place.line for place in batch]))
    except Exception as error:
        return [error] if len(batch) == 1 else [answers_of([place])[0] for place in batch]
