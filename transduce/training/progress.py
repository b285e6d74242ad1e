"""Where a run is: the numbers that, with weights and moments, let it go on as if it had never stopped."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from transduce.config import TrainConfig

UNKNOWN_END = 1_000_000_000  # the last step of a run whose minutes are not yet turned into steps


@dataclass
class Progress:
    """Written into every checkpoint, and read back from it."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # steps of this epoch that are done
    measured: int = 0  # the last step that a budget in minutes came to
    measured_minutes: float = 0.0  # the budget it was measured for; another one is measured anew
    pause_every: int = 0  # steps between validations and checkpoints at least, so that they leave time for training
    layout: str = ""  # padded or pages: how batches are made, and so what a position means
    logged_loss: float = 0.0  # summed since the last line of the log
    logged_cross_entropy: float = 0.0  # the same without label smoothing
    logged_tokens: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    best_rank: float = -math.inf
    best_step: int = 0
    best_score: str = ""
    waited: int = 0  # validations since the best one
    validated: int = 0  # the step last validated
    metrics_size: int = 0  # bytes of metrics.jsonl that belong to this moment
    seconds: float = 0.0
    threads: int = 0

    def is_measured(self, train: TrainConfig) -> bool:
        return self.measured_minutes == train.minutes


def last_step(train: TrainConfig, epochs: Sequence[int], progress: Progress) -> int:
    """Where the budget ends: steps, epochs or minutes, whichever is first.

    `epochs` are the steps of the first epochs; those of the last of them are the steps of every other.
    """
    limits = [train.steps] if train.steps else []
    if train.epochs:
        *first, others = epochs
        begun = sum(min(1.0, max(0.0, train.epochs - number)) * steps for number, steps in enumerate(first))
        limits.append(max(1, round(begun + max(0.0, train.epochs - len(first)) * others)))
    if train.minutes and progress.is_measured(train):
        limits.append(progress.measured)
    return min(limits, default=UNKNOWN_END)


@dataclass(frozen=True)
class Pace:
    """How often a run stops to validate and to save, in steps."""

    validate_every: int
    checkpoint_every: int

    @staticmethod
    def of(train: TrainConfig, progress: Progress) -> "Pace":
        """As set, or less often where a budget in minutes asks for it."""
        return Pace(max(train.validate_every, progress.pause_every), max(train.checkpoint_every, progress.pause_every))


PAUSES = 0.12  # of the minutes, at most, are for validations and checkpoints on the way
AFTERWARDS = 3  # pauses at the end: the last validation and checkpoint, and those of the average


@dataclass(frozen=True)
class Measurement:
    """What a budget in minutes comes to."""

    last_step: int
    pause_every: int


def pace_for(train: TrainConfig, step: int, left: float, seconds: float, pause: float) -> Measurement:
    """The steps that `left` seconds allow, `seconds` each, with pauses so rare that they take a fixed share at most."""
    free = max(0.0, left - AFTERWARDS * pause)
    most = max(1, int(PAUSES * free / pause))
    steps = int(free / (seconds + pause / min(train.validate_every, train.checkpoint_every)))
    if steps <= most * min(train.validate_every, train.checkpoint_every):
        return Measurement(step + steps, 0)
    steps = int((free - most * pause) / seconds)
    return Measurement(step + steps, -(-(step + steps) // most))  # the last of them at the end
