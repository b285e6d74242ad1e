"""Work that a thread does while earlier results of it are used."""

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 5.0  # for a thread to notice that nobody wants more; it may wait for input that never comes


class _End:
    """There is nothing more."""


@contextmanager
def ahead(items: Iterable[T], depth: int) -> Iterator[Iterator[T]]:
    """The same items, up to `depth` of them made before they are asked for; what goes wrong there is raised here."""
    made: queue.Queue[T | BaseException | _End] = queue.Queue(depth)
    stop = threading.Event()

    def offer(item: T | BaseException | _End) -> None:
        while not stop.is_set():
            with suppress(queue.Full):
                made.put(item, timeout=0.1)
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

    def taken() -> Iterator[T]:
        while not isinstance(item := made.get(), _End):
            if isinstance(item, BaseException):
                raise item
            yield item

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        stop.set()
        thread.join(PATIENCE_S)
