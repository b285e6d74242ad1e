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
    measured: int = 0  # the steps that a budget in minutes came to; 0: not measured (yet)
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


def last_step(train: TrainConfig, steps_per_epoch: int, measured: int) -> int:
    """Where the budget ends: steps, epochs or minutes, whichever is first."""
    limits = [train.steps, round(train.epochs * steps_per_epoch), measured if train.minutes else 0]
    return max(1, min((limit for limit in limits if limit > 0), default=UNKNOWN_END))
