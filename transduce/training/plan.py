"""The plan of a run with a budget in minutes: its last step, its next pause, and how far the learning rate has decayed.

The plan is revised from the measured pace, but only at pauses, and it is saved in their checkpoints. A run that is killed
resumes with its saved plan, minus the time that restarting took. The minutes cover the whole command: reading the data,
compiling kernels, validations, the last checkpoint and the model card. Runs with a budget in steps or epochs have no
plan. Knows times and steps, but no model and no clock.
"""

import math
from dataclasses import dataclass

# Shares of the training time at which a run pauses: often at first, when the pace is an estimate, and near the end.
PAUSES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
FEW_PAUSES = (0.05, 0.25, 0.5, 0.75, 0.95)  # if saving a checkpoint takes long
LONG_CHECKPOINT = 0.005  # of the budget
GAP = 0.03  # smallest gap between two pauses, as a share of the training time; less at its beginning and end
VALIDATIONS = 0.10  # of the budget: the most that all validations together may take
# Shares of the training time between which the run validates: earlier, the model has learned too little to be worth
# measuring; later, the final validation is near.
FIRST_VALIDATION, LAST_VALIDATION = 0.2, 0.8
FINAL_VALIDATIONS = 2  # of the last weights and of their average
FINAL_CHECKPOINTS = 3  # before and after the last validation, and the averaged weights
LINES_SHARE = 0.015  # of the budget: the most that translating the lines of one validation may take
FINAL_SHARE = 0.03  # of the budget: what it takes at most to score the chosen weights on more lines, at the end
FEWEST_LINES = 32
ALL_LINES = 1_000_000_000
BYTES_PER_SECOND = 2e8  # writing to disk: an estimate until the first checkpoint is saved
CLOSING_SECONDS = {"cpu": 2.0, "cuda": 5.0}  # to write the model card and the curves, and to exit
EARLY = 0.03  # of the budget: a run that would end earlier than this continues
LEAST_TRAINING = 0.1  # of the budget: if reading the data took too long, the command exceeds its budget instead


@dataclass(frozen=True)
class Plan:
    """The rest of a run, as planned at `step`."""

    minutes: float  # the budget of this plan; another budget needs another plan
    started: float  # seconds of the budget used before training began
    step: int
    left: float  # the share of the training time that was left at `step`
    last_step: int
    pause: int  # the step after which the run pauses and revises this plan
    validates: bool  # whether it validates in that pause
    lines: int  # of the validation data to translate in a validation

    @staticmethod
    def ending_at(last_step: int, minutes: float, step: int) -> "Plan":
        """The plan of a run from an older version, which fixed its last step once."""
        return Plan(minutes, 0.0, step, 1.0, last_step, last_step, False, ALL_LINES)

    def left_at(self, step: int) -> float:
        """The share of the training time left before a step; the learning rate is proportional to it."""
        return self.left * max(0, self.last_step + 1 - step) / max(1, self.last_step + 1 - self.step)


@dataclass
class Costs:
    """Measured durations in seconds."""

    step: float
    validation: float
    checkpoint: float
    closing: float = 2.0  # to write the model card and the curves, and to exit
    averages: bool = True  # whether the mean of the last checkpoints is validated and written at the end
    final_score: float = 0.0  # to score the chosen weights on more lines at the end

    @staticmethod
    def before_measuring(parameters: int, device: str, averages: bool) -> "Costs":
        """Estimates for a kind of device; a step and a validation are measured before the first step."""
        checkpoint = 12 * parameters / BYTES_PER_SECOND
        return Costs(1.0, 0.0, checkpoint, closing=CLOSING_SECONDS[device], averages=averages)

    @property
    def final_validations(self) -> int:
        return FINAL_VALIDATIONS if self.averages else FINAL_VALIDATIONS - 1

    @property
    def final_checkpoints(self) -> int:
        return FINAL_CHECKPOINTS if self.averages else FINAL_CHECKPOINTS - 1

    @property
    def ending(self) -> float:
        """Seconds from the last step to the end of the command."""
        validations = self.final_validations * self.validation + self.final_score
        return validations + self.final_checkpoints * self.checkpoint + self.closing


def end_of_training(plan: Plan, costs: Costs) -> float:
    """When training ends, in seconds since the start of the budget."""
    return max(60 * plan.minutes - costs.ending, plan.started + LEAST_TRAINING * 60 * plan.minutes)


def revise(plan: Plan, step: int, spent: float, costs: Costs) -> Plan:
    """The plan for the rest of the run, `spent` seconds into the budget."""
    end = end_of_training(plan, costs)
    left = max(0.0, end - spent)
    share = min(plan.left, left / (end - plan.started))  # never more than before: the learning rate follows it
    pauses = pauses_left(plan.minutes, 1 - share, costs)
    validated = validated_pauses(plan.minutes, costs)
    paused = sum(pause in validated for pause in pauses) * costs.validation + len(pauses) * costs.checkpoint
    steps = int(max(left - paused, left / 2) / costs.step)
    if step == 0:
        steps = max(1, steps)
    until = (pauses[0] - (1 - share)) / share if pauses and share else 1.0
    return Plan(
        minutes=plan.minutes,
        started=plan.started,
        step=step,
        left=share,
        last_step=step + steps,
        pause=step + max(1, math.ceil(until * steps)),
        validates=bool(pauses) and pauses[0] in validated,
        lines=plan.lines,
    )


def all_pauses(minutes: float, costs: Costs) -> tuple[float, ...]:
    return FEW_PAUSES if costs.checkpoint > LONG_CHECKPOINT * 60 * minutes else PAUSES


def pauses_left(minutes: float, done: float, costs: Costs) -> list[float]:
    """The remaining pauses, as shares of the training time, when the share `done` is over."""
    gap = GAP if FIRST_VALIDATION / 2 < done < LAST_VALIDATION else GAP / 6
    return [pause for pause in all_pauses(minutes, costs) if pause > done + gap]


def validated_pauses(minutes: float, costs: Costs) -> list[float]:
    """The pauses with a validation: as many as the budget allows, evenly spread."""
    possible = [pause for pause in all_pauses(minutes, costs) if FIRST_VALIDATION <= pause <= LAST_VALIDATION]
    affordable = VALIDATIONS * 60 * minutes / max(costs.validation, 1e-6) - FINAL_VALIDATIONS
    count = max(0, min(len(possible), int(affordable)))
    return [possible[(2 * number + 1) * len(possible) // (2 * count)] for number in range(count)]


def lines_for(minutes: float, seconds_per_line: float, most: int) -> int:
    """How many lines a validation translates: few enough that it takes little of a short budget."""
    return max(min(most, FEWEST_LINES), min(most, int(LINES_SHARE * 60 * minutes / max(seconds_per_line, 1e-9))))


def final_seconds(minutes: float, seconds_per_line: float, lines: int, most: int) -> float:
    """Seconds to reserve for scoring the chosen weights at the end; none if every validation scores all lines."""
    return 0.0 if lines >= most else min(FINAL_SHARE * 60 * minutes, seconds_per_line * most)


def ends_early(plan: Plan, spent: float, costs: Costs) -> bool:
    """Whether so much time is left at the last step that the run should continue."""
    return end_of_training(plan, costs) - spent > EARLY * 60 * plan.minutes
