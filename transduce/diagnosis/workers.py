"""Work on all cores: a function is applied to items in several processes, and the results come back in order.

Few items are done in this process, because starting others takes longer. Knows nothing of corpora.
"""

import multiprocessing
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import chain, islice
from typing import Any, Literal, TypeVar

from transduce.cores import available_cores

Item = TypeVar("Item")
Result = TypeVar("Result")
StartMethod = Literal["auto", "fork", "spawn"]

FEW_ITEMS = 8
AHEAD = 4  # items per worker that wait for it or for being taken

_work: Callable[[Any], Any]  # of a worker process


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int = 0, start: StartMethod = "auto"
) -> Iterator[Result]:
    """The results of `work` in the order of the items; `work` is copied to every worker process once."""
    workers = workers or available_cores()
    following = iter(items)
    first = list(islice(following, FEW_ITEMS + 1))
    if workers == 1 or len(first) <= FEW_ITEMS:
        yield from map(work, chain(first, following))
        return
    context = multiprocessing.get_context(_start_method() if start == "auto" else start)
    waiting: deque[Future[Any]] = deque()
    with ProcessPoolExecutor(workers, context, _begin, (work,)) as pool:
        try:
            for item in chain(first, following):
                waiting.append(pool.submit(_do, item))
                if len(waiting) > AHEAD * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _start_method() -> str:
    """Fork is quicker, but unsafe where other threads may hold locks: then start fresh processes."""
    safe = sys.platform == "linux" and threading.active_count() == 1 and "torch" not in sys.modules
    return "fork" if safe else "spawn"


def _begin(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _do(item: Any) -> Any:
    return _work(item)
