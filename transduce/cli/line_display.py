"""Shows how much of a test set is translated, or of a text measured: a progress bar on a terminal, plain lines otherwise."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from transduce.translator import Translator

PLAIN_EVERY_S = 15.0  # without a terminal: print a line of progress at most this often

Show = Callable[[int, int], None]  # called with how many are done, and of how many


@contextmanager
def shown_lines(translator: Translator, lines: int) -> Iterator[None]:
    """Inside this context, stderr shows how many of the lines the translator has translated."""
    done = 0
    with shown_progress(recordings_line if translator.reads_speech else progress_line) as show:

        def count(translated: int) -> None:
            nonlocal done
            done += translated
            show(done, lines)

        show(0, lines)
        with translator.watched(count):
            yield


@contextmanager
def shown_progress(describe: Callable[[int, int], str]) -> Iterator[Show]:
    """Inside this context, stderr shows the progress that the function is called with."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    last_line = time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int) -> None:
            nonlocal last_line
            bar.update(task, description=describe(done, total), completed=done, total=total)
            if done and not console.is_terminal and time.monotonic() - last_line > PLAIN_EVERY_S:
                last_line = time.monotonic()
                console.print(describe(done, total), markup=False)

        yield show


def progress_line(done: int, lines: int) -> str:
    """How many lines are translated, and of how many."""
    return f"translated {done:,} of {lines:,} lines"


def recordings_line(done: int, recordings: int) -> str:
    """How many recordings are transcribed, and of how many."""
    return f"transcribed {done:,} of {recordings:,} recordings"


def measured_line(done: int, tokens: int) -> str:
    """How many tokens of a text are measured, and of how many."""
    return f"measured {done:,} of {tokens:,} tokens"
