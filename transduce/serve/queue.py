"""Requests wait here for a worker and share its batches: fairly, for a bounded time, and forgotten once nobody waits.

A batch takes one line of each request in turn, so a long document delays a short request by a few lines at most. Workers
never wait for a batch to fill: what came while they were busy is the next batch.
Knows functions of lines, and neither models nor HTTP. All but those functions runs in the event loop: there are no locks.
"""

import asyncio
import time
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from transduce.serve.metrics import Metrics
from transduce.serve.refusals import Overloaded
from transduce.serve.settings import Settings

REMEMBERED = 0.95  # of the past in the estimate of a character's time
SHORT = 128  # characters


class Work(Protocol):
    """An answer for each line; lines of requests whose work is equal mix."""

    @property
    def alone(self) -> Hashable:
        """What no two batches may use at the same time, or None."""
        ...

    def __call__(self, lines: list[str], /) -> Sequence[Any]: ...


class Job:
    """A request's lines: some waiting, some with a worker, some answered."""

    def __init__(self, work: Work, lines: Sequence[str]) -> None:
        self.work, self.lines = work, lines
        self.begun = 0
        self.missing = len(lines)
        self.answers: list[Any] = [None] * len(lines)
        self.done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    @property
    def is_waiting(self) -> bool:
        return self.begun < len(self.lines)

    @property
    def size(self) -> int:
        """Of its next line, in powers of two: a short line does not wait in a batch for a long one."""
        return (len(self.lines[self.begun]) // SHORT).bit_length() if self.is_waiting else -1

    def next_place(self) -> "Place":
        self.begun += 1
        return Place(self, self.begun - 1)

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
class Place:
    """Where an answer belongs."""

    job: Job
    number: int

    @property
    def line(self) -> str:
        return self.job.lines[self.number]


class Queue:
    """Jobs in the order of their next turn, and the workers."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self._jobs: deque[Job] = deque()
        self._idle = settings.workers
        self._busy: set[Hashable] = set()  # what only one batch at a time may use, and one does
        self._spent_s = self._done_characters = 0.0  # lately
        self._inside = 0  # requests that were let in and are not yet answered
        self._wait_s = 0.0  # until a new one would have its first turn, when it was last estimated
        self._threads = ThreadPoolExecutor(settings.workers, "worker")

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    @property
    def is_full(self) -> bool:
        return self._inside >= self.settings.queue_requests or self._wait_s > self.settings.longest_wait_s

    def check_room(self) -> None:
        """Refuse at once what could not be begun in time."""
        if self.is_full:
            raise Overloaded("too many requests are waiting: try again later", retry_after_s=max(1, self._wait_s))

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """A request that is inside for a while, or refused: counted here, not when it has lines, or a crowd would slip in."""
        self.check_room()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    async def answer(self, work: Work, lines: Sequence[str]) -> list[Any]:
        """What `work` says to each line; lines not yet begun are forgotten when whoever awaits this is cancelled."""
        if not lines:
            return []
        job = Job(work, lines)
        self._jobs.append(job)
        # Not at once: what arrives in this same moment shares the batch.
        asyncio.get_running_loop().call_soon(self._hand_out)
        try:
            async with asyncio.timeout(self.settings.request_s):
                return await job.done
        except TimeoutError:
            raise Overloaded(
                f"not done within {self.settings.request_s:g} s: send less at once, or later", retry_after_s=5
            ) from None
        finally:
            self._forget(job)

    def _forget(self, job: Job) -> None:
        if job.is_waiting:
            job.begun = len(job.lines)
            with suppress(ValueError):  # it is not there any more once the queue is closed
                self._jobs.remove(job)
        self._estimate()

    def _hand_out(self) -> None:
        """A batch for every worker that has none."""
        while self._idle and (job := self._next_job()):
            self._idle -= 1
            self._busy.add(job.work.alone)
            batch = self._next_batch(job.work, job.size)
            computing = asyncio.get_running_loop().run_in_executor(self._threads, answers_of, batch)
            computing.add_done_callback(partial(self._take_back, batch, time.perf_counter()))
        self._estimate()

    def _next_job(self) -> Job | None:
        """The one that has waited longest for its turn, and can have it."""
        return next((job for job in self._jobs if job.work.alone not in self._busy - {None}), None)

    def _next_batch(self, work: Work, size: int) -> list[Place]:
        """A line of about this size of each job with this work in turn."""
        turns = deque(job for job in self._jobs if job.size == size and job.work == work)
        batch: list[Place] = []
        characters = 0
        while turns and len(batch) < self.settings.batch_lines and characters < self.settings.batch_characters:
            job = turns.popleft()
            batch.append(job.next_place())
            characters += len(batch[-1].line)
            if job.size == size:
                turns.append(job)
        had_turn = dict.fromkeys(place.job for place in batch)
        next_in_turn = [job for job in turns if job in had_turn]
        others = [job for job in had_turn if job.is_waiting and job not in next_in_turn]
        self._jobs = deque([*(job for job in self._jobs if job not in had_turn), *next_in_turn, *others])
        return batch

    def _take_back(self, batch: list[Place], began: float, done: "asyncio.Future[list[Any]]") -> None:
        self._idle += 1
        self._busy.discard(batch[0].job.work.alone)
        self._measure(batch, time.perf_counter() - began)
        for place, answer in zip(batch, done.result(), strict=True):
            place.job.receive(place.number, answer)
        self._hand_out()

    def _measure(self, batch: list[Place], took: float) -> None:
        self._spent_s = REMEMBERED * self._spent_s + took
        self._done_characters = REMEMBERED * self._done_characters + sum(len(place.line) for place in batch)
        self.metrics.batch_lines.observe(len(batch))
        self.metrics.batch_seconds.observe(took)

    def _estimate(self) -> None:
        """How long the next request would wait, by what lines took lately: one of every other comes before."""
        ahead = sum(len(job.lines[job.begun]) for job in self._jobs)
        self._wait_s = ahead * self._spent_s / max(1, self._done_characters) / self.settings.workers
        self.metrics.waiting.set(self.waiting)

    def close(self) -> None:
        """Call when nobody waits any more: what is left has no client."""
        self._jobs.clear()
        self._threads.shutdown(wait=True)


def answers_of(batch: list[Place]) -> list[Any]:
    """An answer or an error for each place; a batch that fails is tried line by line, so nobody fails for another."""
    work = batch[0].job.work
    try:
        return list(work([place.line for place in batch]))
    except Exception as error:
        return [error] if len(batch) == 1 else [answers_of([place])[0] for place in batch]
