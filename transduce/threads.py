"""Work that a thread does while earlier results of it are used."""

import gc
import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 5.0  # for a thread to notice that nobody wants more
GLANCE_S = 0.1  # between two looks whether anybody does
SWITCH_S = 0.0005  # ten times as often as usual
GARBAGE = 50_000  # new objects, seventy times as many as usual


class _Hurry:
    """How many are in a hurry, and what was usual before the first of them."""

    def __init__(self) -> None:
        self.lock, self.count = threading.Lock(), 0
        self.interval, self.thresholds = sys.getswitchinterval(), gc.get_threshold()

    def begin(self) -> None:
        with self.lock:
            if not self.count:
                self.interval, self.thresholds = sys.getswitchinterval(), gc.get_threshold()
                objects, *older = self.thresholds
                sys.setswitchinterval(min(self.interval, SWITCH_S))
                gc.set_threshold(max(objects, GARBAGE) if objects else 0, *older)
            self.count += 1

    def end(self) -> None:
        with self.lock:
            self.count -= 1
            if not self.count:
                sys.setswitchinterval(self.interval)
                gc.set_threshold(*self.thresholds)


_hurry = _Hurry()


@contextmanager
def hurrying() -> Iterator[None]:
    """For a thread that must not keep a device waiting: who waits for Python's lock gets it sooner, and Python looks for
    garbage less often (a fifth of what a line costs, where each makes a few lists)."""
    _hurry.begin()
    try:
        yield
    finally:
        _hurry.end()


class _End:
    """There is nothing more."""


class Made(Iterator[T]):
    """What a thread has made, in order; asking for the next waits until it is there."""

    def __init__(self, depth: int) -> None:
        self.queue: queue.Queue[T | BaseException | _End] = queue.Queue(depth)
        self.ended = False
        self.left = threading.Event()  # nobody wants more

    @property
    def waiting(self) -> bool:
        """Whether the next is not made yet."""
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
        while not (self.ended or self.left.is_set()):
            with suppress(queue.Empty):
                return self.queue.get(timeout=GLANCE_S)
        return _End()

    def offer(self, item: "T | BaseException | _End") -> None:
        while not self.left.is_set():
            with suppress(queue.Full):
                self.queue.put(item, timeout=GLANCE_S)
                break


@contextmanager
def ahead(items: Iterable[T], depth: int, patience_s: float = PATIENCE_S) -> Iterator[Made[T]]:
    """The same items, up to `depth` of them made before they are asked for; what goes wrong there is raised here.

    At the end the thread is waited for, unless it takes longer than `patience_s`: its items may never come.
    """
    made: Made[T] = Made(depth)

    def make() -> None:
        try:
            for item in items:
                made.offer(item)
                if made.left.is_set():
                    return
            made.offer(_End())
        except BaseException as error:  # raised again where it is noticed
            made.offer(error)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.left.set()
        thread.join(patience_s)
