"""Work that a thread does while earlier results of it are used."""

import gc
import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 5.0  # for a thread to notice that nobody wants more; it may wait for input that never comes


SWITCH_S = 0.0005  # ten times as often as usual
GARBAGE = 50_000  # new objects, seventy times as many as usual


@contextmanager
def hurrying() -> Iterator[None]:
    """For a thread that must not keep a device waiting: who waits for Python's lock gets it sooner, and Python looks for
    garbage less often (a fifth of what a line costs, where each makes a few lists)."""
    usual, (objects, *older) = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(min(usual, SWITCH_S))
    gc.set_threshold(max(objects, GARBAGE) if objects else 0, *older)
    try:
        yield
    finally:
        sys.setswitchinterval(max(usual, sys.getswitchinterval()))
        gc.set_threshold(objects, *older)


class _End:
    """There is nothing more."""


class Made(Iterator[T]):
    """What a thread has made, in order; asking for the next waits until it is there."""

    def __init__(self, depth: int) -> None:
        self.queue: queue.Queue[T | BaseException | _End] = queue.Queue(depth)
        self.ended = False

    @property
    def waiting(self) -> bool:
        """Whether the next is not made yet."""
        return not self.ended and self.queue.empty()

    def __next__(self) -> T:
        item = _End() if self.ended else self.queue.get()
        if isinstance(item, _End):
            self.ended = True
            raise StopIteration
        if isinstance(item, BaseException):
            self.ended = True
            raise item
        return item


@contextmanager
def ahead(items: Iterable[T], depth: int) -> Iterator[Made[T]]:
    """The same items, up to `depth` of them made before they are asked for; what goes wrong there is raised here."""
    made: Made[T] = Made(depth)
    stop = threading.Event()

    def offer(item: T | BaseException | _End) -> None:
        while not stop.is_set():
            with suppress(queue.Full):
                made.queue.put(item, timeout=0.1)
                break

    def make() -> None:
        try:
            for item in items:
                offer(item)
                if stop.is_set():
                    return
            offer(_End())
        except BaseException as error:  # raised again where it is noticed
            offer(error)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        stop.set()
        thread.join(PATIENCE_S)
