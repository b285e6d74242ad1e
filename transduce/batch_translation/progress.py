"""Progress messages of a batch: finished shards, lines per second, the time left, and failures."""

from threading import Lock
from time import perf_counter

from transduce.batch_translation.manifest import Manifest
from transduce.batch_translation.schedule import Failure
from transduce.batch_translation.worker import ShardReport
from transduce.translator.engines import Say

EVERY_S = 10  # between two lines


class Progress:
    """Counts the rows of one command, and reports them at intervals. Threads may share it."""

    def __init__(self, manifest: Manifest, numbers: list[int], finished: set[int], say: Say) -> None:
        self.manifest, self.say, self.lock, self.begun = manifest, say, Lock(), perf_counter()
        self.shards, self.done = len(numbers), sum(number in finished for number in numbers)
        self.rows = sum(manifest.shards[number].rows for number in numbers)
        self.rows_before = sum(manifest.shards[number].rows for number in numbers if number in finished)
        self.rows_written, self.said = 0, self.begun  # rows of unfinished shards are among those written
        self.counts: dict[str, int] = {}
        self.notes: set[str] = set()

    def advanced(self, rows: int) -> None:
        """More rows of a shard are written; a negative number takes back those of a shard that failed."""
        with self.lock:
            self.rows_written += rows
            if perf_counter() - self.said >= EVERY_S:
                self._report()

    def finished(self, report: ShardReport) -> None:
        """A shard is complete."""
        with self.lock:
            self.done += 1
            for name, count in report.counts.items():
                self.counts[name] = self.counts.get(name, 0) + count
            if perf_counter() - self.said >= EVERY_S or self.done == self.shards:
                self._report()

    def finished_elsewhere(self, number: int) -> None:
        """Another command has finished a shard of this one."""
        with self.lock:
            self.done += 1
            self.rows_before += self.manifest.shards[number].rows

    def note(self, text: str) -> None:
        """What a worker has to say; several workers say the same once."""
        with self.lock:
            if text not in self.notes:
                self.notes.add(text)
                self.say(text)

    def failed(self, number: int, reason: str, failure: Failure | None) -> None:
        """An attempt at a shard failed; `failure` is given if it was the last."""
        many = f"{failure.attempts} attempt{'s' * (failure.attempts > 1)}" if failure else ""
        after = f"set aside after {many}" if failure else "it will be tried again"
        self.say(f"shard {number} failed: {reason}; {after}")

    @property
    def seconds(self) -> float:
        return perf_counter() - self.begun

    def _report(self) -> None:
        self.said = perf_counter()
        rate = self.rows_written / max(1e-9, self.seconds)
        rows = self.rows_before + self.rows_written
        mine = f"{self.rows_written:,} of them in" if self.rows_before else "in"
        left = f"; {duration((self.rows - rows) / rate)} left" if rate and rows < self.rows else ""
        self.say(
            f"{self.done:,} of {self.shards:,} shards are finished, {rows:,} of {self.rows:,} lines are translated, "
            f"{mine} {duration(self.seconds)} ({rate:,.0f} lines/s){left}"
        )


def duration(seconds: float) -> str:
    """A time in words that are exact enough for people: 40 s, 12 min, 3.5 h, 2.1 days."""
    for unit, length, digits in (("days", 86_400, 1), ("h", 3_600, 1), ("min", 60, 0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.{digits}f} {unit}"
    return f"{seconds:.0f} s"
