"""The queue: requests wait for a worker and share its batches, fairly and for a limited time.

A batch starts with the request that has used the least computing time since it arrived, takes one line of each similar
request in turn, and ends where it would take longer than `batch_s`. A short request therefore waits for the running
batches and for little else, whatever other clients send. The time that lines take is learned from finished lines, by
kind of work and by request, because the lines of one request can take a hundred times as long as others of that length.
Workers never wait for a batch to fill up: the next batch is whatever arrived while they were busy. The lines of a client
that has disconnected are dropped.

Knows functions of lines, but neither models nor HTTP. Everything except these functions runs in the event loop, so there
are no locks.
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

from transduce.server.jobs import UNNECESSARY, QueueBatch, QueuedLine, QueueJob, QueueWork, answers_of
from transduce.server.metrics import Metrics
from transduce.server.pace import Pace, Shares, Usual
from transduce.server.refusals import Overloaded
from transduce.server.settings import ServerSettings

TRIED = 0.125  # the share of a batch for the first lines of a request whose pace is not known yet
SLOWER = 8.0  # a line is slow if it takes this many times as long as usual
REFUSING_S = 0.1  # after a refusal, more of them are likely for this long
CROWD = 3.0  # how many times `batch_s` lines of different requests may add up to: together they take less time


class Queue:
    """The waiting jobs and the workers."""

    def __init__(
        self, settings: ServerSettings, metrics: Metrics, cores: int = 2, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.settings, self.metrics, self.clock = settings, metrics, clock
        self._cores = min(cores, settings.workers)
        self._all_but_one = max(1, self._cores - 1)
        self._jobs: dict[QueueJob, None] = {}  # waiting, in order of arrival
        self._running: dict[QueueBatch, None] = {}
        self._paces: dict[Hashable, Pace] = {}
        self._shares = Shares()
        self._usual = Usual()  # the usual time of a line
        self._slow_s = settings.slow_line_s
        self._inside = 0  # admitted requests that are not answered yet
        self._unanswered = 0  # jobs
        self._fair_s = 0.0  # the computing time of a job that had always been there
        self._turns = 0
        self._refused_at = -math.inf
        self._ahead: tuple[float, float] | None = None  # the cached result of `_ahead_s`
        self._threads = ThreadPoolExecutor(settings.workers, "worker")

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    @property
    def is_full(self) -> bool:
        return self._inside >= self.settings.queue_requests or self.wait_s() > self.settings.longest_wait_s

    def check_room(self) -> None:
        """Refuse a request that could not be started in time."""
        if self.is_full:
            self._refused_at = self.clock()
            raise Overloaded(
                "the server is overloaded: too many requests are waiting, try again later",
                retry_after_s=max(1, self.wait_s()),
            )

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Admit a request or refuse it. It counts from here on, before its lines are known, so that a burst cannot slip in."""
        self.check_room()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    async def answer(self, work: QueueWork, lines: Sequence[Any], costs: Sequence[float] = ()) -> list[Any]:
        """The result of `work` for each line. When the caller is cancelled, lines that have not started are dropped.

        The cost of a line is its number of tokens, or of characters if its tokens were not counted.
        """
        if not lines:
            return []
        job = self._enter(work, lines, costs or [len(line) for line in lines])
        # Not immediately: requests that arrive at the same moment share the batch.
        asyncio.get_running_loop().call_soon(self._hand_out)
        try:
            async with asyncio.timeout(self.settings.request_s):
                return await job.done
        except TimeoutError:
            raise Overloaded(
                f"not finished within {self.settings.request_s:g} s: send shorter texts, or try again later",
                retry_after_s=5,
            ) from None
        finally:
            self._leave(job)

    def _enter(self, work: QueueWork, lines: Sequence[Any], costs: Sequence[float]) -> QueueJob:
        job = QueueJob(work, lines, costs, self._paces.setdefault(work.kind, Pace()))
        if self._is_slow(job) and self.wait_s(slow=True) > self.settings.longest_wait_s:
            raise Overloaded(
                "the server is overloaded: too many slow requests are waiting, try again later",
                retry_after_s=self.wait_s(slow=True),
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
        """Start batches while workers are free."""
        while self._has_room() and (job := self._next_job()) and self._is_due(job):
            batch = self._next_batch(job)
            self._begin(batch)
            computing = asyncio.get_running_loop().run_in_executor(self._threads, answers_of, batch.lines)
            computing.add_done_callback(partial(self._take_back, batch))
        self._changed()

    def _has_room(self) -> bool:
        """Whether a worker is free. While requests are being refused, one core is kept free for the refusals."""
        is_refusing = self.clock() - self._refused_at < REFUSING_S
        return len(self._running) < (self._all_but_one if is_refusing else self.settings.workers)

    def _is_due(self, job: QueueJob) -> bool:
        """Whether a job may have a turn now. Jobs that have used up their share only get what keeps every core busy."""
        if len(self._running) < self._cores or job.used_s <= self._fair_s:
            return True
        return self._left_s(self._running) < self.settings.batch_s

    def _next_job(self) -> QueueJob | None:
        """The job that has used the least computing time, of those that can have a turn now."""
        busy = {batch.alone for batch in self._running} - {None}
        may_be_slow = sum(batch.is_slow for batch in self._running) < self._all_but_one
        ready = (
            job
            for job in self._jobs
            if not job.is_tried and job.alone not in busy and (may_be_slow or not self._is_slow(job))
        )
        return min(ready, key=_by_turn, default=None)

    def _is_slow(self, job: QueueJob) -> bool:
        """Whether its next line is expected to be so slow that such lines must leave one core to the others."""
        return not job.pace.is_known or job.next_s(0) > self._slow_s

    def _next_batch(self, first: QueueJob) -> QueueBatch:
        """Lines of about the same size, one of each job with the same work in turn, until the batch is full."""
        size = first.size
        like_it = [job for job in self._jobs if job.size == size and (job is first or job.work == first.work)]
        turns = [(*_by_turn(job), job) for job in like_it if not job.is_tried]
        heapify(turns)
        batch = QueueBatch([], 0.0, first.alone, self._is_slow(first))
        tried: dict[QueueJob, float] = {}
        while turns and len(batch.lines) < self.settings.batch_lines:
            job = heappop(turns)[-1]
            line_s = job.next_s(self.settings.batch_s)
            if batch.lines and not self._fits(batch, job, line_s, tried):
                continue
            tried[job] = tried.get(job, 0.0) + line_s
            self._take_line(batch, job, line_s)
            if job.size == size:
                heappush(turns, (*_by_turn(job), job))
        return batch

    def _fits(self, batch: QueueBatch, job: QueueJob, line_s: float, had: dict[QueueJob, float]) -> bool:
        """Whether another line of this job fits into the batch; a job whose pace is not known gets only a few lines."""
        if not job.pace.is_known:
            return False
        if job not in had:
            return batch.expected_s + line_s <= CROWD * self.settings.batch_s
        if not job.own.is_known and had[job] + line_s > TRIED * self.settings.batch_s:
            return False
        return batch.expected_s + line_s <= self.settings.batch_s

    def _take_line(self, batch: QueueBatch, job: QueueJob, line_s: float) -> None:
        batch.lines.append(job.next_line())
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
        answers = list(zip(batch.lines, done.result(), strict=True))
        computed = [line for line, answer in answers if answer is not UNNECESSARY]
        self._learn(batch, computed, self._shares.end(batch.mark, now))
        self.metrics.batch_lines.observe(len(batch.lines))
        self.metrics.batch_seconds.observe(now - batch.began)
        self._fair_s += batch.expected_s / max(1, self._unanswered)
        for line, answer in answers:
            line.job.receive(line.number, answer)
            if line.job.done.done():
                self._jobs.pop(line.job, None)
        self._hand_out()

    def _learn(self, batch: QueueBatch, computed: list[QueuedLine], share_s: float) -> None:
        """Learn from the lines that were computed how long such lines take."""
        for pace in _paces(batch):
            pace.running -= 1
        if not computed:
            return
        cost = sum(line.cost for line in computed) or 1
        batch.lines[0].job.usual.learn(cost, share_s)
        for job in batch.jobs:
            if not job.own.is_known:
                self._usual.learn(share_s / len(computed))
        # With a large model every line takes long, so a slow line is one that takes much longer than others.
        self._slow_s = max(self.settings.slow_line_s, SLOWER * self._usual.seconds)
        for line in computed:
            line.job.own.learn(line.cost, share_s * line.cost / cost)

    # --- estimates -----------------------------------------------------------------------------------------------

    def wait_s(self, slow: bool = False) -> float:
        """The expected wait of a new request until its first turn.

        Slow lines delay other requests only if they occupy every core; a request with slow lines always waits for them.
        """
        now = self._shares.at(self.clock())
        usual_s, slow_s = self._ahead = self._ahead or self._ahead_s()
        others = [batch for batch in self._running if not batch.is_slow and now - batch.mark <= self._slow_s]
        if slow or len(self._running) - len(others) >= self._cores:
            return usual_s + slow_s + self._left_s(self._running)
        return usual_s + self._left_s(others)

    def _left_s(self, batches: Iterable[QueueBatch]) -> float:
        """The expected remaining time of running batches; one that is overdue may take as long again."""
        now = self._shares.at(self.clock())
        return sum(abs(batch.expected_s - (now - batch.mark)) for batch in batches)

    def _ahead_s(self) -> tuple[float, float]:
        """The time of the usual and of the slow lines that come before those of a new request: one of each job ahead of it."""
        ahead = [job for job in self._jobs if job.used_s <= self._fair_s]
        all_s = sum(job.next_s(self.settings.batch_s) for job in ahead)
        slow_s = sum(job.next_s(self.settings.batch_s) for job in ahead if self._is_slow(job))
        return all_s - slow_s, slow_s

    def _changed(self) -> None:
        self._ahead = None
        self.metrics.waiting.set(self.waiting)

    def close(self) -> None:
        """Stop the workers. Call it when no client is waiting any more."""
        self._jobs.clear()
        self._threads.shutdown(wait=True)


def _by_turn(job: QueueJob) -> tuple[float, int]:
    return job.used_s, job.turn


def _paces(batch: QueueBatch) -> list[Pace]:
    """The paces that learn from a batch."""
    return [batch.lines[0].job.usual, *(job.own for job in batch.jobs)]
