"""A budget in minutes, as all processes of a run follow it: process 0 plans it, and revises the plan in pauses.

What a plan is stands in `transduce/training/plan.py`, and how it follows from measured times in `transduce/training/clock.py`.
The clocks of two processes never agree, so the plan of process 0 is sent to the others. Measures, validates and saves nothing.
"""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from transduce.config.rounding import rounded
from transduce.training.clock import Clock
from transduce.training.plan import Plan, revise
from transduce.training.processes import Processes

FAR_OFF = 0.15  # of the announced last step: a plan that is revised by more is announced again


class MinutesBudget:
    """The plan of a budget in minutes; without such a budget there is none, and nothing is ever due."""

    def __init__(self, clock: Clock, processes: Processes, lines: int) -> None:
        self.clock, self.progress, self.processes = clock, clock.progress, processes
        self.lines = lines  # of the validation data
        self.announced: tuple[int, float] | None = None  # the last step and the seconds per step that people were told
        self.ranks_anew = False  # whether earlier validations, of other lines, no longer count

    def begin(self) -> None:
        """Plan the budget from what a step and a validation take; also on resume, because starting again took time."""
        if self.clock.config.minutes:
            earlier, known = self.progress.plan, self.clock.plan
            plan = self.clock.first_plan(self.clock.costs.validation / self.lines, self.lines)
            plan = self._of_first(lambda: plan) or plan
            if known is None and (earlier is None or earlier.lines != plan.lines):
                self.ranks_anew = self.progress.best_rank > -math.inf
                self.progress.best_rank = -math.inf
            self.revise(plan)
            self.announced = self.clock.last_step, self.clock.costs.step

    def correction(self) -> str:
        """A line if the last step is now far from the announced one, the first time; otherwise nothing."""
        now, costs = self.clock.last_step, self.clock.costs
        if self.announced is None or abs(now - self.announced[0]) <= FAR_OFF * self.announced[0]:
            return ""
        (before, seconds), self.announced = self.announced, None
        why = f"a step takes {rounded(costs.step)} s as measured so far, not {rounded(seconds)} s"
        if rounded(costs.step) == rounded(seconds):
            why = f"validations and checkpoints take {'more' if now < before else 'less'} time than estimated"
        return f"plan: {now:,} steps instead of {before:,}, because {why}"

    def due(self) -> Plan | None:
        """The plan, if the run should pause after this step to revise it."""
        return self._of_first(self.clock.pause_due) if self.clock.config.minutes else None

    def revise(self, plan: Plan) -> Plan:
        """The plan for the rest of the run, from the measured pace and the remaining time."""
        return self._of_first(lambda: self.clock.revise(plan)) or plan

    def revise_as_of(self, spent: float) -> None:
        """Revise the plan of a rehearsal, which has taken time that the run will not: as of `spent` seconds into the budget."""
        if plan := self.clock.plan:
            self.clock.costs.validation *= min(plan.lines, self.lines) / self.lines
            self.progress.plan = revise(plan, self.progress.step, spent, self.clock.costs)

    def lines_for_final_score(self) -> int:
        """How many lines the rest of the budget can score, if more than every validation does; otherwise 0."""
        plan = self.clock.plan
        if plan is None or plan.lines >= self.lines:
            return 0
        lines = self.processes.first(lambda: self.clock.affordable_lines(self.lines))
        return lines if lines > plan.lines else 0

    def _of_first(self, decide: Callable[[], Plan | None]) -> Plan | None:
        """What process 0 decides by its clock; all processes follow its plan."""

        def decided() -> list[dict[str, Any] | None]:
            plan = decide()
            return [None if one is None else asdict(one) for one in (plan, self.progress.plan)]

        plan, self.progress.plan = (None if one is None else Plan(**one) for one in self.processes.first(decided))
        return plan
