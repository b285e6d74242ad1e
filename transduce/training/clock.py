"""The clock of a run: how much of the budget is spent, at which step training ends, and when the run pauses.

Measures the pace and keeps the plan of a budget in minutes (`transduce/training/plan.py`) up to date. Knows steps and
seconds; the loop measures, validates and saves.
"""

import math
import time
from dataclasses import dataclass, replace

from transduce.config import TrainConfig
from transduce.config.rounding import rounded
from transduce.training.plan import (
    Costs,
    Plan,
    end_of_training,
    ends_early,
    final_seconds,
    lines_for,
    pauses_left,
    revise,
    validated_pauses,
)
from transduce.training.progress import Intervals, Progress, last_step
from transduce.training.schedule import share_left

HOUR, DAY = 3_600, 86_400  # seconds
LONG, MANY_EPOCHS = (
    7 * DAY,
    1_000,
)  # beyond these, a budget in steps or epochs was hardly meant for these data and this machine


@dataclass(frozen=True)
class Forecast:
    """The rest of a run: what is left to do, and how long it takes."""

    last_step: int
    steps: int
    validations: int
    checkpoints: int
    seconds: float  # to the end of the command
    costs: Costs


@dataclass(frozen=True)
class RunTime:
    """How far a run is, in time."""

    passed: float  # seconds of the budget
    left: float  # seconds to the end of the command
    minutes: float = 0.0  # the budget, if it ends the run before any limit in steps or epochs


class Clock:
    """The budget of one run; reads and updates the plan in `progress`."""

    def __init__(
        self, config: TrainConfig, progress: Progress, steps_per_epoch: int, costs: Costs, begun: float | None = None
    ) -> None:
        self.config, self.progress, self.steps_per_epoch, self.costs = config, progress, steps_per_epoch, costs
        self._command_begun = (time.perf_counter() if begun is None else begun) - progress.spent
        self._training_begun = 0.0
        self._paced = (0, 0.0)  # the step and the time at which measuring the pace began
        self._paused = 0.0  # seconds of validations and checkpoints since then

    @property
    def spent(self) -> float:
        """Seconds of the budget used so far."""
        return time.perf_counter() - self._command_begun

    @property
    def plan(self) -> Plan | None:
        """The plan for the current budget in minutes, if there is one."""
        return self.progress.plan_for(self.config)

    @property
    def last_step(self) -> int:
        return last_step(self.config, self.steps_per_epoch, self.progress)

    @property
    def intervals(self) -> Intervals:
        return Intervals.of(self.config, self.last_step, self.progress)

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up: its last step is done, or a finished run was given fewer minutes than it had."""
        shorter = bool(self.config.minutes) and not self.plan
        out_of_time = shorter and self.progress.step > 0 and self.progress.spent >= 60 * self.config.minutes
        return self.progress.step >= self.last_step or out_of_time

    def start(self) -> None:
        """Start measuring the training time, when training begins or resumes."""
        self._training_begun = time.perf_counter() - self.progress.seconds

    def record(self) -> None:
        """Store in the progress how long the run has taken."""
        self.progress.seconds, self.progress.spent = time.perf_counter() - self._training_begun, self.spent

    def share_left(self, step: int) -> float:
        """The share of the run that is left before a step; the learning rate decays with it."""
        plan = self.plan
        if plan and plan.last_step == self.last_step:
            return plan.left_at(step)
        return share_left(step, self.last_step, self.config.warmup_steps)

    def first_plan(self, seconds_per_line: float, lines: int) -> Plan:
        """The existing plan, or an initial one in which a validation translates at most `lines` lines."""
        progress, plan = self.progress, self.plan
        if plan is None:
            started = progress.plan.started if progress.plan else 0.0 if progress.step else self.spent
            chosen = lines_for(self.config.minutes, seconds_per_line, lines)
            plan = Plan(self.config.minutes, started, progress.step, 1.0, 0, 0, False, chosen)
        self.costs.validation = seconds_per_line * min(plan.lines, lines)
        self.costs.final_score = final_seconds(self.config.minutes, seconds_per_line, plan.lines, lines)
        return plan

    def affordable_lines(self, most: int) -> int:
        """How many of the validation lines can be scored in the rest of a budget in minutes, after the last validation."""
        plan, costs = self.plan, self.costs
        if plan is None:
            return 0
        seconds = 60 * self.config.minutes - self.spent - costs.checkpoint - costs.closing
        return max(0, min(most, int(seconds * min(plan.lines, most) / max(costs.validation, 1e-9))))

    def revise(self, plan: Plan) -> Plan:
        """Revise the plan from the measured pace and the remaining time."""
        self.progress.plan = revise(plan, self.progress.step, self.spent, self.costs)
        return self.progress.plan

    def pause_due(self) -> Plan | None:
        """The plan, if the run should pause after this step; a run that is out of time ends at this step instead."""
        plan, step, spent = self.plan, self.progress.step, self.spent
        if plan is None:
            return None
        if spent >= end_of_training(plan, self.costs):
            self.progress.plan = replace(plan, last_step=step)
            return None
        if step >= plan.last_step and ends_early(plan, spent, self.costs):
            return replace(plan, validates=False)
        return plan if plan.pause <= step < plan.last_step else None

    def measure_pace(self) -> None:
        """Measure the seconds per step since `restart_pace`."""
        since, begun = self._paced
        if self.progress.step > since:
            self.costs.step = (time.perf_counter() - begun) / (self.progress.step - since)

    def restart_pace(self) -> None:
        self._paced, self._paused = (self.progress.step, time.perf_counter()), 0.0

    def validated(self, seconds: float) -> None:
        """Record what a validation took."""
        self.costs.validation, self._paused = seconds, self._paused + seconds

    def saved(self, seconds: float) -> None:
        """Record what a checkpoint took."""
        self.costs.checkpoint, self._paused = seconds, self._paused + seconds

    def run_time(self) -> RunTime:
        """How much time has passed and is left; cheap enough for every step."""
        if not self._by_steps:
            passed = self.spent
            return RunTime(passed, max(0.0, 60 * self.config.minutes - passed), self.config.minutes)
        steps, costs, (validations, checkpoints) = self.last_step - self.progress.step, self.costs, self._regular()
        pauses = validations * costs.validation + checkpoints * costs.checkpoint
        return RunTime(self.spent, steps * self._step_seconds() + pauses + costs.ending)

    def _step_seconds(self) -> float:
        """The mean time of a step since `restart_pace`, without validations and checkpoints."""
        since, begun = self._paced
        steps = self.progress.step - since
        return (time.perf_counter() - begun - self._paused) / steps if begun and steps > 0 else self.costs.step

    def forecast(self, spent: float | None = None) -> Forecast:
        """What is left of the run from now on, or from when `spent` seconds of its budget were used."""
        steps, costs = max(0, self.last_step - self.progress.step), self.costs
        if not steps:
            return Forecast(self.last_step, 0, 0, 0, 0.0, costs)
        validations, checkpoints = self._regular() if self._by_steps else self._planned()
        if self._by_steps:
            seconds = (
                steps * costs.step + validations * costs.validation + checkpoints * costs.checkpoint + costs.ending
            )
        else:
            assert self.plan is not None
            now = self.spent if spent is None else spent
            seconds = max(0.0, end_of_training(self.plan, costs) + costs.ending - now)
        return Forecast(
            last_step=self.last_step,
            steps=steps,
            validations=validations + costs.final_validations,
            checkpoints=checkpoints + costs.final_checkpoints,
            seconds=seconds,
            costs=replace(costs),
        )

    @property
    def _by_steps(self) -> bool:
        """Whether a limit in steps or epochs ends the run, not its minutes."""
        return self.plan is None or self.last_step < self.plan.last_step

    def _regular(self) -> tuple[int, int]:
        """How many validations and checkpoints the intervals leave before the last step."""
        intervals, first, last = self.intervals, self.progress.step, self.last_step - 1
        validate, save = intervals.validate_every, intervals.checkpoint_every
        return last // validate - first // validate, last // save - first // save

    def _planned(self) -> tuple[int, int]:
        """The same in the pauses of the plan."""
        assert self.plan is not None
        pauses = pauses_left(self.plan.minutes, 1 - self.plan.left, self.costs)
        validated = validated_pauses(self.plan.minutes, self.costs)
        return sum(pause in validated for pause in pauses), len(pauses)

    def describe(self) -> str:
        """How long the run will take and when it will end."""
        steps, plan, seconds = self.last_step, self.plan, self.forecast().seconds
        over = self.spent + seconds - 60 * self.config.minutes
        late = f", {duration(over)} over the budget because starting took {duration(plan.started)}" if plan else ""
        left = f"{duration(seconds)} left, until about {_until(seconds)}{late if over > 1 else ''}"
        if not self._by_steps and self.spent >= 60 * self.config.minutes:
            left = "the budget is already spent: the run will be validated and finished"
        return f"{steps:,} step{'s' * (steps != 1)} ({rounded(steps / self.steps_per_epoch)} epochs) of about {rounded(self.costs.step)} s; {left}"

    def cut_short(self, before: TrainConfig) -> str:
        """A message if a smaller budget than before ends a resumed run at once; otherwise nothing."""
        used = {"steps": self.progress.step, "epochs": self.progress.step / self.steps_per_epoch}
        used["minutes"] = self.progress.spent / 60
        was_over = any(0 < getattr(before, name) <= so_far for name, so_far in used.items())
        for name, so_far in used.items() if self.progress.step and not was_over else ():
            old, new = getattr(before, name), getattr(self.config, name)
            if 0 < new <= so_far:
                had = (
                    f"a budget of {_plain(old)} {name[: -1 if old == 1 else None]}, of which"
                    if old
                    else f"no limit in {name}; so far"
                )
                return f"this run had {had} {_plain(so_far)} are used; with --{name} {new if isinstance(new, int) else rounded(new)} it ends now"
        return ""

    def too_long(self) -> str:
        """A warning if steps or epochs make a run much longer than is likely to be meant; otherwise nothing."""
        seconds, epochs = self.forecast().seconds, self.last_step / self.steps_per_epoch
        if not self._by_steps or (seconds <= LONG and epochs <= MANY_EPOCHS):
            return ""
        return (
            f"warning: this plan has {rounded(epochs)} epochs and takes {duration(seconds)}: set a budget (--minutes), or leave out --preset, "
            "so that the settings are chosen for the data"
        )

    def few_epochs(self, fewest: int) -> str:
        """A warning if the minutes are too few for a model that needs so many epochs; otherwise nothing."""
        epochs, given = self.last_step / self.steps_per_epoch, self.config.minutes
        if self._by_steps or epochs >= fewest:
            return ""
        return (
            f"warning: {given:g} minute{'s are' if given != 1 else ' is'} enough for {rounded(epochs)} epochs, and such a model learns little in "
            f"fewer than {fewest}: give it about {self._minutes_for(fewest / epochs):,} minutes (--minutes)"
        )

    def _minutes_for(self, times: float) -> int:
        """The budget, in whole minutes, that has time for so many times the steps of this plan."""
        assert self.plan is not None
        after_start = end_of_training(self.plan, self.costs) + self.costs.ending - self.plan.started
        return max(2, math.ceil((self.plan.started + times * after_start) / 60))


def _plain(amount: float) -> str:
    return f"{amount:,}" if isinstance(amount, int) else rounded(amount)


def duration(seconds: float) -> str:
    """Seconds as a person would write them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    for unit, length in (("days", DAY), ("hours", HOUR)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds / 60:.1f} minutes"


def _until(seconds: float, now: float | None = None) -> str:
    """When so many seconds from now are over: a time, with a date unless it is today."""
    now = time.time() if now is None else now
    today, then = time.localtime(now), time.localtime(now + seconds)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)
