"""The progress of a run: the numbers that, with weights and optimizer state, let it resume as if never interrupted."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from transduce.config import TrainConfig
from transduce.training.plan import Plan

UNKNOWN_END = 1_000_000_000  # the last step of a run whose budget in minutes is not planned yet
PARTS = 20  # validations and checkpoints of a run, unless their intervals are set


@dataclass
class Progress:
    """The numbers that are saved in every checkpoint."""

    step: int = 0
    epoch: int = 0
    window: int = 0  # of this epoch, if it is planned in windows
    position: int = 0  # finished steps of this epoch or window
    plan: Plan | None = None  # if the budget is in minutes
    planned_checkpoints: list[int] = field(default_factory=list)  # the steps saved in the pauses of the plan
    layout: str = ""  # padded, pages or buckets: how batches are made, which `position` depends on
    positions: int = 0  # per side and batch, which `position` depends on too; 0: saved by an older version
    # Pairs that are planned together; 0: all of an epoch, as older versions always did; -1: not decided yet.
    pairs_per_window: int = -1
    logged_loss: float = 0.0  # summed since the last line of the log, with label smoothing
    logged_cross_entropy: float = 0.0  # the same without label smoothing
    logged_tokens: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    best_rank: float = -math.inf
    best_step: int = 0
    best_score: str = ""
    waited: int = 0  # validations since the best one
    validated: int = 0  # the step of the last validation
    metrics_size: int = 0  # bytes of metrics.jsonl up to this checkpoint
    seconds: float = 0.0  # of training
    spent: float = 0.0  # seconds of all commands so far, including reading the data; a budget in minutes counts these
    threads: int = 0

    @staticmethod
    def of(stored: Mapping[str, Any]) -> "Progress":
        """The progress stored in a checkpoint; fields that only older versions wrote are ignored."""
        known = {one.name for one in fields(Progress)}
        values = {"spent": stored.get("seconds", 0.0), "pairs_per_window": 0}
        values |= {name: stored[name] for name in known & stored.keys()}
        if values.get("plan") is not None:
            values["plan"] = Plan(**values["plan"])
        elif stored.get("measured"):  # an older version, which converted minutes into steps once
            values["plan"] = Plan.ending_at(stored["measured"], stored.get("measured_minutes", 0.0), stored["step"])
        return Progress(**values)

    def plan_for(self, train: TrainConfig) -> Plan | None:
        """The plan, if it was made for the current budget."""
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
        """The intervals that are set; the others follow the plan if the minutes end the run, or else divide the steps evenly."""
        plan = progress.plan_for(train)
        by_plan = plan is not None and plan.last_step <= last
        usual = UNKNOWN_END if by_plan else max(20, last // PARTS)
        return Intervals(train.validate_every or usual, train.checkpoint_every or usual)
