"""Requests wait here for a worker and share its batches: fairly, for a bounded time, and forgotten once nobody waits.

A batch begins with the request that has had least of the machine's time while it was inside, takes a line of each
request like it in turn, and ends where it would take longer than `batch_s`. So whatever others ask for, a short request
waits for the batches under way and for little else. How long lines take is learned from those that were answered:
by kind of work, and by request, since one request may have lines that take a hundred times as long as others of that length.
Workers never wait for a batch to fill: what came while they were busy is the next batch.

Knows functions of lines, and neither models nor HTTP. All but those functions runs in the event loop: there are no locks.
"""

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

from transduce.server.jobs import QueueBatch, QueueJob, QueueWork, answers_of
from transduce.server.metrics import Metrics
from transduce.server.pace import Pace, Shares, Usual
from transduce.server.refusals import Overloaded
from transduce.server.settings import ServerSettings

TRIED = 0.125  # of a batch's time for the first lines of a request, as long as nothing is known of it
SLOWER = 8.0  # times as long as usual: a slow line
REFUSING_S = 0.1  # after a refusal: others are likely
CROWD = 3.0  # a batch's time for lines of different requests: together they take less than apart


class Queue:
    """Jobs that wait, and the workers."""

    def __init__(
        self, settings: ServerSettings, metrics: Metrics, cores: int = 2, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.settings, self.metrics, self.clock = settings, metrics, clock
        self._cores = min(cores, settings.workers)
        self._all_but_one = max(1, self._cores - 1)
        self._jobs: dict[QueueJob, None] = {}  # waiting, in the order they came
        self._running: dict[QueueBatch, None] = {}
        self._paces: dict[Hashable, Pace] = {}
        self._shares = Shares()
        self._usual = Usual()  # time of a line
        self._slow_s = settings.slow_line_s
        self._inside = 0  # requests that were let in and are not yet answered
        self._unanswered = 0  # jobs
        self._fair_s = 0.0  # the share that a job would have had, had it always been there
        self._turns = 0
        self._refused_at = -math.inf
        self._ahead: tuple[float, float] | None = None  # what `_ahead_s` says, until something changes
        self._threads = ThreadPoolExecutor(settings.workers, "worker")

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    @property
    def is_full(self) -> bool:
        return self._inside >= self.settings.queue_requests or self.wait_s() > self.settings.longest_wait_s

    def check_room(self) -> None:
        """Refuse at once what could not be begun in time."""
        if self.is_full:
            self._refused_at = self.clock()
            raise Overloaded("too many requests are waiting: try again later", retry_after_s=max(1, self.wait_s()))

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """A request that is inside for a while, or refused: counted here, not when it has lines, or a crowd would slip in."""
        self.check_room()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    async def answer(self, work: QueueWork, lines: Sequence[str], costs: Sequence[float] = ()) -> list[Any]:
        """What `work` says to each line; lines not yet begun are forgotten when whoever awaits this is cancelled.

        What lines cost is measured in tokens, or in characters where nobody counted tokens.
        """
        if not lines:
            return []
        job = self._enter(work, lines, costs or [len(line) for line in lines])
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
            self._leave(job)

    def _enter(self, work: QueueWork, lines: Sequence[str], costs: Sequence[float]) -> QueueJob:
        job = QueueJob(work, lines, costs, self._paces.setdefault(work.kind, Pace()))
        if self._is_slow(job) and self.wait_s(slow=True) > self.settings.longest_wait_s:
            raise Overloaded(
                "too many slow requests are waiting: try again later", retry_after_s=self.wait_s(slow=True)
            )
        job.used_s, job.turn = self._fair_s, self._next_turn()
        self._jobs[job] = None
        self._unanswered += 1
        return job

    def _leave(self, job: QueueJob) -> None:
        job.begun = len(job.lines)
        self._jobs.pop(job, None)
        self._unanswered -= 1
        self._changed()

    # --- batches -------------------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """Batches for the workers that have none."""
        while self._has_room() and (job := self._next_job()) and self._is_due(job):
            batch = self._next_batch(job)
            self._begin(batch)
            computing = asyncio.get_running_loop().run_in_executor(self._threads, answers_of, batch.places)
            computing.add_done_callback(partial(self._take_back, batch))
        self._changed()

    def _has_room(self) -> bool:
        """Whether a worker is free. While requests are refused, a core is left to that: it must not wait for translations."""
        is_refusing = self.clock() - self._refused_at < REFUSING_S
        return len(self._running) < (self._all_but_one if is_refusing else self.settings.workers)

    def _is_due(self, job: QueueJob) -> bool:
        """Whether it may have a turn now; of those who have had their share, as many lines as keep every core busy will do."""
        if len(self._running) < self._cores or job.used_s <= self._fair_s:
            return True
        return self._left_s(self._running) < self.settings.batch_s

    def _next_job(self) -> QueueJob | None:
        """The one that has had least of the machine, of those that can have a turn now."""
        busy = {batch.alone for batch in self._running} - {None}
        may_be_slow = sum(batch.is_slow for batch in self._running) < self._all_but_one
        ready = (
            job
            for job in self._jobs
            if not job.is_tried and job.alone not in busy and (may_be_slow or not self._is_slow(job))
        )
        return min(ready, key=_by_turn, default=None)

    def _is_slow(self, job: QueueJob) -> bool:
        """Whether its next line takes so long that such lines must leave a core to the others, as far as is known."""
        return not job.pace.is_known or job.next_s(0) > self._slow_s

    def _next_batch(self, first: QueueJob) -> QueueBatch:
        """Lines of about this size of each job with this work in turn, for as long as a batch may take."""
        size = first.size
        like_it = [job for job in self._jobs if job.size == size and (job is first or job.work == first.work)]
        turns = [(*_by_turn(job), job) for job in like_it if not job.is_tried]
        heapify(turns)
        batch = QueueBatch([], 0.0, first.alone, self._is_slow(first))
        tried: dict[QueueJob, float] = {}
        while turns and len(batch.places) < self.settings.batch_lines:
            job = heappop(turns)[-1]
            line_s = job.next_s(self.settings.batch_s)
            if batch.places and not self._fits(batch, job, line_s, tried):
                continue
            tried[job] = tried.get(job, 0.0) + line_s
            self._take_line(batch, job, line_s)
            if job.size == size:
                heappush(turns, (*_by_turn(job), job))
        return batch

    def _fits(self, batch: QueueBatch, job: QueueJob, line_s: float, had: dict[QueueJob, float]) -> bool:
        """Whether a further line of this job may be in the batch: of a job of which nothing is known, only a few."""
        if not job.pace.is_known:
            return False
        if job not in had:
            return batch.expected_s + line_s <= CROWD * self.settings.batch_s
        if not job.own.is_known and had[job] + line_s > TRIED * self.settings.batch_s:
            return False
        return batch.expected_s + line_s <= self.settings.batch_s

    def _take_line(self, batch: QueueBatch, job: QueueJob, line_s: float) -> None:
        batch.places.append(job.next_place())
        batch.expected_s += line_s
        job.used_s += line_s
        job.turn = self._next_turn()
        if not job.is_waiting:
            del self._jobs[job]

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns

    def _begin(self, batch: QueueBatch) -> None:
        batch.began = self.clock()
        batch.mark = self._shares.begin(batch.began)
        self._running[batch] = None
        for pace in _paces(batch):
            pace.running += 1

    def _take_back(self, batch: QueueBatch, done: "asyncio.Future[list[Any]]") -> None:
        now = self.clock()
        del self._running[batch]
        self._learn(batch, self._shares.end(batch.mark, now))
        self.metrics.batch_lines.observe(len(batch.places))
        self.metrics.batch_seconds.observe(now - batch.began)
        self._fair_s += batch.expected_s / max(1, self._unanswered)
        for place, answer in zip(batch.places, done.result(), strict=True):
            place.job.receive(place.number, answer)
        self._hand_out()

    def _learn(self, batch: QueueBatch, share_s: float) -> None:
        cost = sum(place.cost for place in batch.places) or 1
        for pace in _paces(batch):
            pace.running -= 1
        batch.places[0].job.usual.learn(cost, share_s)
        for job in batch.jobs:
            if not job.own.is_known:
                self._usual.learn(share_s / len(batch.places))
        # A large model's lines all take long: to be slow is to take much longer than others.
        self._slow_s = max(self.settings.slow_line_s, SLOWER * self._usual.seconds)
        for place in batch.places:
            place.job.own.learn(place.cost, share_s * place.cost / cost)

    # --- estimates -----------------------------------------------------------------------------------------------

    def wait_s(self, slow: bool = False) -> float:
        """How long a new request would wait for its first turn.

        Slow lines keep others waiting only where they have taken every core; those with slow lines wait for them anyway.
        """
        now = self._shares.at(self.clock())
        usual_s, slow_s = self._ahead = self._ahead or self._ahead_s()
        others = [batch for batch in self._running if not batch.is_slow and now - batch.mark <= self._slow_s]
        if slow or len(self._running) - len(others) >= self._cores:
            return usual_s + slow_s + self._left_s(self._running)
        return usual_s + self._left_s(others)

    def _left_s(self, batches: Iterable[QueueBatch]) -> float:
        """What is still to come of batches under way; what is overdue may take as long again."""
        now = self._shares.at(self.clock())
        return sum(abs(batch.expected_s - (now - batch.mark)) for batch in batches)

    def _ahead_s(self) -> tuple[float, float]:
        """How long usual and slow lines take that come before a new request's: one of each job that has had no more than it."""
        ahead = [job for job in self._jobs if job.used_s <= self._fair_s]
        all_s = sum(job.next_s(self.settings.batch_s) for job in ahead)
        slow_s = sum(job.next_s(self.settings.batch_s) for job in ahead if self._is_slow(job))
        return all_s - slow_s, slow_s

    def _changed(self) -> None:
        self._ahead = None
        self.metrics.waiting.set(self.waiting)

    def close(self) -> None:
        """Call when nobody waits any more: what is left has no client."""
        self._jobs.clear()
        self._threads.shutdown(wait=True)


def _by_turn(job: QueueJob) -> tuple[float, int]:
    return job.used_s, job.turn


def _paces(batch: QueueBatch) -> list[Pace]:
    """Those that will learn from a batch."""
    return [batch.places[0].job.usual, *(job.own for job in batch.jobs)]
