"""Shows the progress of computing the features of recordings: a progress bar on a terminal, plain lines otherwise."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from transduce.data.feature_progress import ShowFeatures

PLAIN_EVERY_S = 15.0  # without a terminal: print a line of progress at most this often


@contextmanager
def shown_features(console: Console, recordings: int) -> Iterator[ShowFeatures]:
    """Show the recordings that are done out of all; the bar goes away at the end, also after an error."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        display = _Display(console, bar, recordings)
        yield display.show


class _Display:
    def __init__(self, console: Console, bar: Progress, recordings: int) -> None:
        self.console, self.bar, self.recordings = console, bar, recordings
        self.task = bar.add_task("features", total=recordings)
        self.begun = self.last_line = time.monotonic()

    def show(self, done: int, hours: float) -> None:
        now = time.monotonic()
        line = features_line(done, self.recordings, hours, now - self.begun)
        self.bar.update(self.task, description=line, completed=done)
        if not self.console.is_terminal and now - self.last_line > PLAIN_EVERY_S:
            self.last_line = now
            self.console.print(line, markup=False)


def features_line(done: int, recordings: int, hours: float, seconds: float) -> str:
    """The recordings that are done, and how many hours of sound are computed in a second."""
    return f"features of {done:,} of {recordings:,} recordings, {hours / max(seconds, 1e-9):.2g} hours/s"
