"""Prefetching: a background thread computes the next items while the current ones are used."""

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")

JOIN_TIMEOUT_S = 5.0  # how long leaving the context waits for the thread to end
POLL_S = 0.1  # how often a thread that waits checks whether it was cancelled


class _End:
    """Marks the end of the items in the queue."""


class Prefetched(Iterator[T]):
    """The items a background thread computes, in order; `next` blocks until the next one is ready."""

    def __init__(self, depth: int) -> None:
        self.queue: queue.Queue[T | BaseException | _End] = queue.Queue(depth)
        self.ended = False
        self.cancelled = threading.Event()  # set it to end the iteration and the thread early

    @property
    def pending(self) -> bool:
        """Whether `next` would block: there may be another item, but it is not ready."""
        return not self.ended and self.queue.empty()

    def __next__(self) -> T:
        item = self._get()
        if isinstance(item, _End):
            self.ended = True
            raise StopIteration
        if isinstance(item, BaseException):
            self.ended = True
            raise item
        return item

    def _get(self) -> "T | BaseException | _End":
        while not (self.ended or self.cancelled.is_set()):
            with suppress(queue.Empty):
                return self.queue.get(timeout=POLL_S)
        return _End()

    def put(self, item: "T | BaseException | _End") -> None:
        """Called by the background thread: wait for free space in the queue, unless the iteration was cancelled."""
        while not self.cancelled.is_set():
            with suppress(queue.Full):
                self.queue.put(item, timeout=POLL_S)
                break


@contextmanager
def prefetch(items: Iterable[T], depth: int, join_timeout_s: float = JOIN_TIMEOUT_S) -> Iterator[Prefetched[T]]:
    """Iterate over `items` in a background thread, up to `depth` items ahead of the caller.

    An exception raised by `items` is raised again by `next`. Leaving the context cancels the thread and waits up to
    `join_timeout_s` for it to end; the thread may be blocked on input that never comes.
    """
    prefetched: Prefetched[T] = Prefetched(depth)

    def produce() -> None:
        try:
            for item in items:
                prefetched.put(item)
                if prefetched.cancelled.is_set():
                    return
            prefetched.put(_End())
        except BaseException as error:  # raised again by `Prefetched.__next__`
            prefetched.put(error)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield prefetched
    finally:
        prefetched.cancelled.set()
        thread.join(join_timeout_s)
