"""Where a run is: the numbers that, with weights and moments, let it go on as if it had never stopped."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from transduce.config import TrainConfig
from transduce.training.plan import Plan

UNKNOWN_END = 1_000_000_000  # the last step of a run whose minutes are not planned yet
PARTS = 20  # validations and checkpoints of a run that did not set how often


@dataclass
class Progress:
    """Written into every checkpoint, and read back from it."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # steps of this epoch that are done
    plan: Plan | None = None  # of a budget in minutes
    planned_checkpoints: list[int] = field(default_factory=list)  # the steps saved in its pauses
    layout: str = ""  # padded or pages: how batches are made, and so what a position means
    logged_loss: float = 0.0  # summed since the last line of the log, as minimised: with label smoothing
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
    seconds: float = 0.0  # of training
    spent: float = 0.0  # seconds of all commands so far, reading the data included: what a budget in minutes counts
    threads: int = 0

    @staticmethod
    def of(stored: Mapping[str, Any]) -> "Progress":
        """As a checkpoint has it; what only older versions wrote is left out."""
        known = {one.name for one in fields(Progress)}
        values = {"spent": stored.get("seconds", 0.0)} | {name: stored[name] for name in known & stored.keys()}
        if values.get("plan") is not None:
            values["plan"] = Plan(**values["plan"])
        elif stored.get("measured"):  # minutes that were turned into steps once
            values["plan"] = Plan.ending_at(stored["measured"], stored.get("measured_minutes", 0.0), stored["step"])
        return Progress(**values)

    def plan_for(self, train: TrainConfig) -> Plan | None:
        """The plan, if it was made for the budget the run has now."""
        return self.plan if self.plan is not None and self.plan.minutes == train.minutes else None


def last_step(train: TrainConfig, steps_per_epoch: int, progress: Progress) -> int:
    """The step at which the budget ends: the first of the limits in steps, epochs and minutes."""
    limits = [train.steps] if train.steps else []
    if train.epochs:
        limits.append(max(1, round(train.epochs * steps_per_epoch)))
    if train.minutes and (plan := progress.plan_for(train)):
        limits.append(plan.last_step)
    return min(limits, default=UNKNOWN_END)


@dataclass(frozen=True)
class Intervals:
    """How many steps lie between two validations, and between two checkpoints."""

    validate_every: int
    checkpoint_every: int

    @staticmethod
    def of(train: TrainConfig, last: int, progress: Progress) -> "Intervals":
        """As set; where it is not set, by the plan if the minutes end the run, else in equal parts of the steps there are."""
        plan = progress.plan_for(train)
        by_plan = plan is not None and plan.last_step <= last
        usual = UNKNOWN_END if by_plan else max(20, last // PARTS)
        return Intervals(train.validate_every or usual, train.checkpoint_every or usual)
