"""Where a run is: the numbers that, with weights and moments, let it go on as if it had never stopped."""

import math
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
    logged_loss: float = 0.0  # summed since the last line of the log
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


def last_step(train: TrainConfig, steps_per_epoch: int, progress: Progress) -> int:
    """Where the budget ends: steps, epochs or minutes, whichever is first."""
    limits = [train.steps] if train.steps else []
    if train.epochs:
        limits.append(max(1, round(train.epochs * steps_per_epoch)))
    if train.minutes and progress.is_measured(train):
        limits.append(progress.measured)
    return min(limits, default=UNKNOWN_END)
