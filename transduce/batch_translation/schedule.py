"""Which shards are left to translate, and which are set aside because they failed too often.

A shard may be tried several times, and by several commands at once; its finished file decides. Knows no workers.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from threading import Lock

from transduce.batch_translation.folder import BatchFolder

FAILURES = 3  # of a shard, before it is set aside
LOSSES = 6  # of workers at a shard: a machine that is taken away is not the fault of the shard


@dataclass(frozen=True)
class Failure:
    """A shard that was not translated, and why."""

    shard: int
    reason: str  # names the line that caused it, if one line did
    attempts: int


class Schedule:
    """The shards that one command translates. Threads may share it."""

    def __init__(
        self, folder: BatchFolder, numbers: Iterable[int], elsewhere: Callable[[int], None] = lambda number: None
    ) -> None:
        self.folder, self.lock = folder, Lock()
        self.elsewhere = elsewhere  # told the shards that another command has finished meanwhile
        self.waiting, self.failures, self.losses = deque(numbers), Counter[int](), Counter[int]()
        self.set_aside: list[Failure] = []

    def take(self) -> int | None:
        """The next shard that nobody has finished meanwhile."""
        with self.lock:
            while self.waiting:
                number = self.waiting.popleft()
                if not self.folder.is_finished(number):
                    return number
                self.elsewhere(number)
            return None

    def failed(self, number: int, reason: str, worker_lost: bool = False, is_final: bool = False) -> Failure | None:
        """Put a shard back, behind all others; or set it aside, record the reason, and return it.

        `is_final` says that every further attempt would fail as well.
        """
        with self.lock:
            counted = self.losses if worker_lost else self.failures
            counted[number] += 1
            attempts = self.failures[number] + self.losses[number]
            if self.failures[number] < FAILURES and self.losses[number] < LOSSES and not is_final:
                self.waiting.append(number)
                return None
            failure = Failure(number, reason, attempts)
            self.set_aside.append(failure)
            self.folder.write_failure(number, asdict(failure))
            return failure
