"""Shows how many lines of a test set are translated: a progress bar on a terminal, plain lines otherwise."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from transduce.translator import Translator

PLAIN_EVERY_S = 15.0  # without a terminal: print a line of progress at most this often


@contextmanager
def shown_lines(translator: Translator, lines: int) -> Iterator[None]:
    """Inside this context, stderr shows how many of the lines the translator has translated."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    done, last_line = 0, time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(progress_line(0, lines), total=lines)

        def show(translated: int) -> None:
            nonlocal done, last_line
            done += translated
            bar.update(task, description=progress_line(done, lines), completed=done)
            if not console.is_terminal and time.monotonic() - last_line > PLAIN_EVERY_S:
                last_line = time.monotonic()
                console.print(progress_line(done, lines), markup=False)

        with translator.watched(show):
            yield


def progress_line(done: int, lines: int) -> str:
    """How many lines are translated, and of how many."""
    return f"translated {done:,} of {lines:,} lines"
