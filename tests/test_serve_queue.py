"""The queue by itself: batches, fairness, bounds, cancellation, and errors that stay with whoever caused them."""

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from transduce.serve.metrics import Metrics
from transduce.serve.priority import NICENESS, giving_way
from transduce.serve.queue import Queue, Work
from transduce.serve.refusals import Overloaded
from transduce.serve.settings import Settings


class Held:
    """Work that waits to be let go, and remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.alone: object = None
        self.free = threading.Event()

    def __call__(self, lines: list[str]) -> list[str]:
        self.batches.append(lines)
        assert self.free.wait(10)
        if "poison" in lines:
            raise ValueError("poison")
        return [line.upper() for line in lines]


def run(test: Callable[[Queue], Awaitable[Any]], **settings: Any) -> Any:
    async def inside() -> Any:
        queue = Queue(Settings(**{"workers": 1, **settings}), Metrics())
        try:
            return await asyncio.wait_for(test(queue), 10)
        finally:
            queue.close()

    return asyncio.run(inside())


async def admitted(queue: Queue, work: Work, lines: list[str]) -> list[Any]:
    with queue.admitted():
        return await queue.answer(work, lines)


async def started(queue: Queue, work: Work, *documents: list[str]) -> "list[asyncio.Task[list[Any]]]":
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


def test_batching_off_is_a_line_at_a_time() -> None:
    work = Held()

    async def test(queue: Queue) -> None:
        tasks = await started(queue, work, ["a", "b"], ["c"])
        work.free.set()
        await asyncio.gather(*tasks)

    run(test, batch_lines=1)
    assert work.batches == [["a"], ["b"], ["c"]]


def test_a_long_document_lets_short_requests_in() -> None:
    work = Held()
    document = [f"d{n}" for n in range(20)]

    async def test(queue: Queue) -> None:
        tasks = await started(queue, work, document, ["x"], ["y"])
        work.free.set()
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert tasks[0] not in done
        await asyncio.gather(*tasks)

    run(test, batch_lines=4)
    assert work.batches[:2] == [["d0", "d1", "d2", "d3"], ["d4", "x", "y", "d5"]]
    assert sorted(line for batch in work.batches for line in batch) == sorted([*document, "x", "y"])


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


def test_a_batch_has_a_bound_on_characters() -> None:
    work = Held()

    async def test(queue: Queue) -> None:
        tasks = await started(queue, work, ["-"], ["long" * 10] * 4)
        work.free.set()
        await asyncio.gather(*tasks)

    run(test, batch_characters=50)
    assert [len(batch) for batch in work.batches] == [1, 2, 2]


def test_different_work_does_not_mix_and_does_not_starve() -> None:
    one, other = Held(), Held()
    one.free.set()
    other.free.set()

    async def test(queue: Queue) -> None:
        await asyncio.gather(queue.answer(one, ["a"]), queue.answer(other, ["b"]), queue.answer(one, ["c"]))

    run(test)
    assert (one.batches, other.batches) == ([["a", "c"]], [["b"]])


def test_what_must_be_alone_is_and_keeps_no_worker_waiting() -> None:
    one, other, third = Held(), Held(), Held()
    one.alone = other.alone = "model"

    async def test(queue: Queue) -> None:
        tasks = [
            *await started(queue, one, ["a"]),
            *await started(queue, other, ["b"]),
            *await started(queue, third, ["c"]),
        ]
        assert (one.batches, other.batches, third.batches) == ([["a"]], [], [["c"]])
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
    class Slow(Held):
        def __call__(self, lines: list[str]) -> list[str]:
            threading.Event().wait(0.2)
            return lines

    slow = Slow()

    async def test(queue: Queue) -> None:
        await queue.answer(slow, ["as long a line"])  # how long it takes is known now
        tasks = await started(queue, slow, ["with the worker"], ["waits 0.2 s"])
        with pytest.raises(Overloaded, match="waiting"):
            await admitted(queue, slow, ["would wait as long again"])
        await asyncio.gather(*tasks)

    run(test, longest_wait_s=0.1)


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
        queue = Queue(Settings(workers=1), Metrics())
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


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux only")
def test_computing_gives_way_to_answering() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = niceness()
    assert giving_way(niceness) == min(19, before + NICENESS)
    assert niceness() == before


def test_no_lines_no_work() -> None:
    assert run(lambda queue: queue.answer(Held(), [])) == []
