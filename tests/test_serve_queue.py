"""The queue by itself: batches, fairness, bounds, cancellation, and errors that stay with whoever caused them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from transduce.server.jobs import QueueWork
from transduce.server.metrics import Metrics
from transduce.server.queue import Queue
from transduce.server.refusals import Overloaded
from transduce.server.settings import ServerSettings


class Clock:
    """Time that passes when a test says so: what lines take does not depend on the machine."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Held:
    """Work that waits to be let go, and remembers its batches."""

    def __init__(self) -> None:
        self.kind: object = self
        self.batches: list[list[str]] = []
        self.alone: object = None
        self.free = threading.Event()

    def __call__(self, lines: list[str]) -> list[str]:
        self.batches.append(lines)
        assert self.free.wait(10)
        if "poison" in lines:
            raise ValueError("poison")
        return [line.upper() for line in lines]


class Slow(Held):
    """Work that takes so many seconds for each unit of cost, or for each batch."""

    def __init__(self, clock: Clock, line_s: float = 0.0, batch_s: float = 0.0) -> None:
        super().__init__()
        self.kind = "slow"
        self.clock, self.line_s, self.batch_s = clock, line_s, batch_s
        self.free.set()

    def __call__(self, lines: list[str]) -> list[str]:
        answers = super().__call__(lines)
        self.clock.now += self.batch_s + self.line_s * len(lines)
        return answers


def run(test: Callable[[Queue], Awaitable[Any]], clock: Clock | None = None, cores: int = 2, **settings: Any) -> Any:
    async def inside() -> Any:
        queue = Queue(ServerSettings(**{"workers": 1, **settings}), Metrics(), cores, clock or Clock())
        try:
            return await asyncio.wait_for(test(queue), 10)
        finally:
            queue.close()

    return asyncio.run(inside())


async def admitted(queue: Queue, work: QueueWork, lines: list[str]) -> list[Any]:
    with queue.admitted():
        return await queue.answer(work, lines)


async def started(queue: Queue, work: QueueWork, *documents: list[str]) -> "list[asyncio.Task[list[Any]]]":
    """A task for each document, the first already with the worker."""
    tasks = []
    for document in documents:
        tasks.append(asyncio.create_task(admitted(queue, work, document)))
        await asyncio.sleep(0.01)
    return tasks


def test_what_waits_becomes_the_next_batch() -> None:
    work = Held()

    async def test(queue: Queue) -> None:
        tasks = await started(queue, work, ["a"], ["b"], ["c"], ["d", "e"])
        work.free.set()
        assert await asyncio.gather(*tasks) == [["A"], ["B"], ["C"], ["D", "E"]]

    run(test)
    assert work.batches == [["a"], ["b", "c", "d", "e"]]


def test_a_kind_of_which_nothing_is_known_begins_with_a_line() -> None:
    work = Held()

    async def test(queue: Queue) -> None:
        tasks = await started(queue, work, ["a", "b"], ["c"])
        assert work.batches == [["a"]], "the second worker waits for what the first one finds"
        work.free.set()
        await asyncio.gather(*tasks)

    run(test, workers=2)
    assert work.batches == [["a"], ["c", "b"]]


def test_batching_off_is_a_line_at_a_time() -> None:
    work = Held()

    async def test(queue: Queue) -> None:
        tasks = await started(queue, work, ["a", "b"], ["c"])
        work.free.set()
        await asyncio.gather(*tasks)

    run(test, batch_lines=1)
    assert work.batches == [["a"], ["c"], ["b"]]


def test_a_long_document_lets_short_requests_in() -> None:
    work = Held()
    document = [f"d{n}" for n in range(20)]

    async def test(queue: Queue) -> None:
        tasks = await started(queue, work, document, ["xx"], ["yy"])
        work.free.set()
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert tasks[0] not in done
        await asyncio.gather(*tasks)

    run(test, batch_lines=4)
    assert work.batches[:2] == [["d0"], ["xx", "yy", "d1", "d2"]]
    assert sorted(line for batch in work.batches for line in batch) == sorted([*document, "xx", "yy"])


def test_two_documents_take_turns() -> None:
    work = Held()

    async def test(queue: Queue) -> None:
        tasks = await started(queue, work, ["-"], [f"a{n}" for n in range(5)], [f"b{n}" for n in range(5)])
        work.free.set()
        await asyncio.gather(*tasks)

    run(test, batch_lines=3)
    assert work.batches[1:] == [["a0", "b0", "a1"], ["b1", "a2", "b2"], ["a3", "b3", "a4"], ["b4"]]


def test_a_short_line_does_not_wait_for_a_long_one() -> None:
    work = Held()
    long = "long " * 100

    async def test(queue: Queue) -> None:
        tasks = await started(queue, work, ["-"], [long, "b"], ["c", long, "d"], [long])
        work.free.set()
        await asyncio.gather(*tasks)

    run(test)
    assert work.batches == [["-"], [long, long], ["c", "b"], [long], ["d"]]


def test_a_batch_has_a_bound_on_time() -> None:
    """The first lines of a request are few: it is not known yet how long they take."""
    clock = Clock()
    work = Slow(clock, line_s=0.03)

    async def test(queue: Queue) -> None:
        await queue.answer(work, ["a"], [1])
        await queue.answer(work, list("abcdefgh"), [1] * 8)

    run(test, clock, batch_s=0.1)
    assert work.batches == [["a"], ["a"], ["b", "c", "d"], ["e", "f", "g"], ["h"]]


def test_lines_that_take_longer_than_others_like_them_get_smaller_batches() -> None:
    """A request of lines that make a model ramble, beside requests of the same kind and length that do not."""
    clock = Clock()
    usual, rambling = Slow(clock, line_s=0.001), Slow(clock, line_s=0.1)

    async def test(queue: Queue) -> None:
        await queue.answer(usual, ["a"] * 100, [1] * 100)
        await queue.answer(rambling, ["b"] * 40, [1] * 40)

    run(test, clock, batch_s=0.25)
    assert max(map(len, usual.batches)) == 16
    assert [len(batch) for batch in rambling.batches[1:3]] == [2, 2]


def test_different_work_does_not_mix_and_does_not_starve() -> None:
    one, other = Held(), Held()
    one.free.set()
    other.free.set()

    async def test(queue: Queue) -> None:
        await queue.answer(one, ["-"])
        await asyncio.gather(queue.answer(one, ["a"]), queue.answer(other, ["b"]), queue.answer(one, ["c"]))

    run(test)
    assert (one.batches, other.batches) == ([["-"], ["a", "c"]], [["b"]])


def test_what_must_be_alone_is_and_keeps_no_worker_waiting() -> None:
    one, other, third = Held(), Held(), Held()
    one.alone = other.alone = "model"
    one.kind = other.kind = third.kind = "any"

    async def test(queue: Queue) -> None:
        third.free.set()
        await queue.answer(third, ["-"])
        third.free.clear()
        tasks = [
            *await started(queue, one, ["a"]),
            *await started(queue, other, ["b"]),
            *await started(queue, third, ["c"]),
        ]
        assert (one.batches, other.batches, third.batches) == ([["a"]], [], [["-"], ["c"]])
        for work in (one, other, third):
            work.free.set()
        assert await asyncio.gather(*tasks) == [["A"], ["B"], ["C"]]

    run(test, workers=2)


def test_a_full_queue_refuses_and_says_when_to_come_again() -> None:
    work = Held()

    async def test(queue: Queue) -> None:
        tasks = await started(queue, work, ["a"], ["b"], ["c"])
        assert queue.is_full
        with pytest.raises(Overloaded) as refusal:
            await admitted(queue, work, ["d"])
        assert refusal.value.retry_after_s >= 1
        work.free.set()
        await asyncio.gather(*tasks)
        assert not queue.is_full
        assert await admitted(queue, work, ["e"]) == ["E"]

    run(test, queue_requests=3)


def test_a_wait_that_would_be_too_long_is_refused() -> None:
    clock = Clock()
    slow = Slow(clock, batch_s=0.4)

    async def test(queue: Queue) -> None:
        await queue.answer(slow, ["as long a line"])  # how long it takes is known now
        slow.free.clear()
        tasks = await started(queue, slow, ["with the worker"], ["waits for it."])
        with pytest.raises(Overloaded, match="waiting"):
            await admitted(queue, slow, ["would wait for both"])
        slow.free.set()
        await asyncio.gather(*tasks)

    run(test, clock, longest_wait_s=0.7)


def test_what_the_workers_have_counts_in_the_wait() -> None:
    """Eight seconds a batch: once that is known, a short request behind such a batch is refused, not kept for as long."""
    clock = Clock()
    work = Slow(clock, batch_s=8)

    async def test(queue: Queue) -> None:
        await queue.answer(work, ["a"])
        work.free.clear()
        tasks = await started(queue, work, ["a"] * 40)
        for _ in range(8):
            with pytest.raises(Overloaded, match="waiting") as refusal:
                await admitted(queue, work, ["a"])
            assert refusal.value.retry_after_s == 8
        tasks[0].cancel()
        work.free.set()

    for workers in (1, 4):
        run(test, clock, workers=workers)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_batch_that_is_overdue_counts_as_long_again(workers: int) -> None:
    clock = Clock()
    work = Held()

    async def test(queue: Queue) -> None:
        tasks = await started(queue, work, ["a"] * 40)
        clock.now += 1
        tasks += await started(queue, work, ["b"])
        clock.now += 7
        with pytest.raises(Overloaded, match="waiting"):
            await admitted(queue, work, ["c"])
        work.free.set()
        await asyncio.gather(*tasks)

    run(test, clock, workers=workers)


def test_slow_lines_leave_a_core_to_others() -> None:
    clock = Clock()
    slow, quick = Slow(clock, batch_s=3), Slow(clock, batch_s=0.001)
    quick.kind = "quick"

    async def test(queue: Queue) -> None:
        await queue.answer(slow, ["a"])
        await queue.answer(quick, ["b"])
        slow.free.clear()
        tasks = await started(queue, slow, ["a"] * 9, ["a"] * 9)
        assert len(slow.batches) == 2, "one of them runs, though there are four workers and two cores"
        assert await admitted(queue, quick, ["b"]) == ["B"]
        slow.free.set()
        await asyncio.gather(*tasks)

    run(test, clock, workers=4, cores=2)


def test_lines_of_a_large_model_are_not_slow_because_all_of_them_take_long() -> None:
    clock = Clock()
    work = Slow(clock, batch_s=3)

    async def test(queue: Queue) -> None:
        await queue.answer(work, ["a"])
        work.free.clear()
        tasks = await started(queue, work, ["a"] * 3, ["a"] * 3)
        assert len(work.batches) == 3, "both cores have a line"
        work.free.set()
        await asyncio.gather(*tasks)

    run(test, clock, workers=4, cores=2)


def test_who_has_had_least_comes_first() -> None:
    """A request that comes while another has lines under way does not wait for more of those."""
    clock = Clock()
    work = Slow(clock, batch_s=0.3)

    async def test(queue: Queue) -> None:
        await queue.answer(work, ["a"] * 6)
        work.free.clear()
        tasks = await started(queue, work, ["a"] * 6, ["b"])
        work.free.set()
        await asyncio.gather(*tasks)

    run(test, clock)
    assert work.batches[6:8] == [["a"], ["b"]]


def test_a_document_has_its_share_beside_a_stream_of_short_requests() -> None:
    clock = Clock()
    work = Slow(clock, batch_s=0.3)

    async def short(queue: Queue, document: "asyncio.Task[list[Any]]") -> int:
        asked = 0
        while not document.done():
            await queue.answer(work, ["b"])
            asked += 1
        return asked

    async def test(queue: Queue) -> None:
        await queue.answer(work, ["a"])
        document = asyncio.create_task(queue.answer(work, ["a"] * 20))
        asked = await asyncio.gather(*(short(queue, document) for _ in range(3)))
        assert sum(asked) <= 100, "a fair share is one of four"
        assert min(asked) >= 10

    run(test, clock)


def test_a_request_has_an_end() -> None:
    work = Held()

    async def test(queue: Queue) -> None:
        with pytest.raises(Overloaded, match=r"within 0\.05 s"):
            await queue.answer(work, ["a"])
        work.free.set()

    run(test, request_s=0.05)


def test_what_nobody_waits_for_is_not_computed() -> None:
    work = Held()

    async def test(queue: Queue) -> None:
        tasks = await started(queue, work, ["a", "b"], ["c"], ["d"])
        tasks[0].cancel()
        tasks[1].cancel()
        await asyncio.sleep(0.01)
        assert queue.waiting == 1
        work.free.set()
        assert await tasks[2] == ["D"]

    run(test, batch_lines=1)
    assert work.batches == [["a"], ["d"]]


def test_an_error_stays_with_its_cause() -> None:
    work = Held()

    async def test(queue: Queue) -> None:
        tasks = await started(queue, work, ["-"], ["good"], ["poison"], ["fine"])
        work.free.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert answers[1] == ["GOOD"]
        assert answers[3] == ["FINE"]
        assert isinstance(answers[2], ValueError)
        assert await queue.answer(work, ["after"]) == ["AFTER"]

    run(test)


def test_a_closed_queue_forgets_what_waits() -> None:
    work = Held()

    async def test() -> None:
        queue = Queue(ServerSettings(workers=1), Metrics(), clock=Clock())
        tasks = await started(queue, work, ["a"], ["b"])
        work.free.set()
        queue.close()
        await asyncio.sleep(0.01)
        tasks[1].cancel()
        assert await tasks[0] == ["A"]
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]

    asyncio.run(test())
    assert work.batches == [["a"]]


def test_while_requests_are_refused_a_core_is_left_to_that() -> None:
    clock = Clock()
    work = Slow(clock)

    async def test(queue: Queue) -> None:
        await queue.answer(work, ["-"])
        work.free.clear()
        tasks = await started(queue, work, ["a"], ["b"], ["c"])
        assert len(work.batches) == 4, "three workers have one line each"
        with pytest.raises(Overloaded):
            await admitted(queue, work, ["d"])
        waiting = asyncio.create_task(queue.answer(work, ["e"]))
        await asyncio.sleep(0.01)
        assert len(work.batches) == 4, "the fourth worker waits"
        clock.now += 1
        work.free.set()
        await asyncio.gather(*tasks, waiting)

    run(test, clock, workers=4, queue_requests=3)
    assert work.batches[-1] == ["e"]


def test_no_lines_no_work() -> None:
    assert run(lambda queue: queue.answer(Held(), [])) == []
