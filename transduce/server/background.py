"""Run a blocking function in a daemon thread, which does not keep the process alive."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def in_thread(work: Callable[[], Result]) -> "Future[Result]":
    """The future result of `work`, which runs in a thread of its own."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # from here on it cannot be cancelled

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="loading", daemon=True).start()
    return future
