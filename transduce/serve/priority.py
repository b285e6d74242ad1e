"""Computing gives way to answering: when every core is busy, a refusal must not wait for a translation.

Only for threads that never hold the interpreter: one that does and has to wait for a core makes all others wait for it.
"""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")
NICENESS = 10  # a tenth of a core beside a thread that answers; all of it when none does


def give_way() -> None:
    """Lower the priority of this thread, and of the threads that are started from it."""
    if sys.platform == "linux":  # elsewhere a number means the whole process
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, os.getpid()) + NICENESS))


def giving_way(work: Callable[[], Result]) -> Result:
    """What `work` gives, from a thread that gives way: the threads of a runtime loaded there do so too."""
    with ThreadPoolExecutor(1, initializer=give_way) as thread:
        return thread.submit(work).result()
