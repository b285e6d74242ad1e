"""The cells of docs/rivals.md: which systems are trained on which data, with which learning rates, and for how long."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean
from typing import Any

from transduce.paper.cells import Cell
from transduce.paper.results import Figures, Results
from transduce.paper.rivals import BASELINE, SYSTEMS, System

RATES = (1e-3, 2.5e-3, 6.25e-3)  # tried on Multi30k
TWICE_AS_HIGH = ("seq2seq", "rnn", "gnmt")  # whose rates are twice these: recurrent networks train well at high ones
TIE = 0.5  # BLEU: no difference between two tries
# On Europarl the model is twice as wide, and the paper's rates fall with sqrt(d_model).
CARRIED = {"europarl": 2**-0.5}
SHAPES = {"multi30k": (256, 3), "europarl": (512, 6), "reversal": (128, 2)}  # width and layers of the Transformer
TUNING_S, SEEDS = 20.0, (1, 2, 3)
SPEED_STEPS = 60  # to measure the speed of a larger system alone on the GPU
SPEED = "speed"  # the purpose of cells that are only timed


@dataclass(frozen=True)
class Budget:
    """What every system gets: time, which becomes the steps that it makes alone on the GPU in that time, or steps; and seeds."""

    seconds: float = 0.0
    steps: int = 0
    seeds: tuple[int, ...] = (1,)

    def __str__(self) -> str:
        return f"{self.steps:,} steps" if self.steps else f"{self.seconds:g} s"


BUDGETS = {
    "multi30k": Budget(seconds=40.0, seeds=SEEDS),
    "europarl": Budget(seconds=120.0),
    "reversal": Budget(steps=2_500),
}


def first_timed(systems: list[System]) -> Iterator[Cell]:
    """Each system with the middle rate for the time of Multi30k: so many steps it makes alone on the GPU."""
    for system in systems:
        seconds = BUDGETS["multi30k"].seconds
        yield make_cell(system, "multi30k", SPEED, rates_of(system.name)[1], seconds=seconds, tested=False)


def speeds(systems: list[System]) -> Iterator[Cell]:
    """A few steps of each system on Europarl, for its speed."""
    for system in systems:
        yield make_cell(system, "europarl", SPEED, rates_of(system.name)[0], steps=SPEED_STEPS, tested=False)


def tuning(systems: list[System], results: Results) -> Iterator[Cell]:
    """Each system with each rate, for as many steps as it makes in the time of a try."""
    for tried in range(len(RATES)):
        for system in systems:
            if of_all := steps_of("multi30k", system.name, results):
                rate, steps = rates_of(system.name)[tried], math.ceil(of_all * TUNING_S / BUDGETS["multi30k"].seconds)
                yield make_cell(system, "multi30k", purpose_of(rate), rate, steps=steps, tested=False)


def tests(task: str, systems: list[System], results: Results) -> Iterator[Cell]:
    """What the table shows, with the learning rate that was best on Multi30k's validation data."""
    for seed in BUDGETS[task].seeds:
        for system in systems:
            steps, rate = steps_of(task, system.name, results), rate_for(task, system.name, results)
            if steps and rate:
                yield make_cell(system, task, "test", rate, steps=steps, seed=seed)


def steps_of(task: str, system: str, results: Results) -> int:
    """How many steps the budget of a task is for a system; 0 while it is not known."""
    budget, timed = BUDGETS[task], results.find(task=task, system=system, purpose=SPEED)
    if budget.steps or not timed:
        return budget.steps
    return timed[0]["steps"] if timed[0]["budget_s"] else round(budget.seconds / seconds_of_a_step(timed[0]))


def seconds_of_a_step(timed: Figures) -> float:
    """Alone on the GPU. Of a few steps by their median speed, so that what happens once at the start of a run does not count."""
    if timed["budget_s"]:
        return timed["training_s"] / timed["steps"]
    return timed["target_tokens"] / timed["train_tokens_per_s"] / timed["steps"]


def equal_flops(task: str, results: Results) -> Iterator[Cell]:
    """Two Transformers that stop at the FLOPs of the cheapest rival, and of the one in the middle."""
    ours, rate = results.find(task=task, system=BASELINE, purpose="test"), rate_for(task, BASELINE, results)
    if ours and rate and BUDGETS[task].seconds:
        per_step = mean(one["flops"] / one["steps"] for one in ours)
        for rival, flops in chosen_flops(task, results):
            yield make_cell(SYSTEMS[-1], task, f"FLOPs of {rival}", rate, steps=round(flops / per_step))


def chosen_flops(task: str, results: Results) -> list[tuple[str, float]]:
    """The cheapest and the middle one of the rivals that had fewer FLOPs than the Transformer in the same time."""
    spent = {one["system"]: one["flops"] for one in results.find(task=task, purpose="test", seed=1)}
    cheaper = sorted((flops, name) for name, flops in spent.items() if flops < spent.get(BASELINE, 0.0))
    picked = dict.fromkeys((0, len(cheaper) // 2)) if cheaper else ()
    return [(cheaper[n][1], cheaper[n][0]) for n in picked]


def make_cell(system: System, task: str, purpose: str, rate: float, **others: Any) -> Cell:
    """A cell with a learning rate of Multi30k."""
    carried = float(f"{rate * CARRIED.get(task, 1.0):.3g}")
    settings = (*system.shaped(*SHAPES[task]), f"train.learning_rate={carried:g}")
    return Cell(task=task, system=system.name, purpose=purpose, settings=settings, **others)


# --- learning rates -----------------------------------------------------------------------------------------------


def rates_of(system: str) -> tuple[float, ...]:
    """What is tried, lowest first."""
    return tuple(2 * rate for rate in RATES) if system in TWICE_AS_HIGH else RATES


def purpose_of(rate: float) -> str:
    return f"rate {rate:g}"


def tries_of(system: str, results: Results) -> dict[float, Figures]:
    """The tries that were made, by rate."""
    found = {rate: results.find(task="multi30k", system=system, purpose=purpose_of(rate)) for rate in rates_of(system)}
    return {rate: lines[0] for rate, lines in found.items() if lines}


def best_rate(system: str, results: Results) -> float:
    """The best try on the validation data, of nearly equal ones the lowest; 0 if not all have been made."""
    tried = tries_of(system, results)
    if len(tried) < len(RATES):
        return 0.0
    best = max(one["valid"] for one in tried.values())
    return next(rate for rate, one in tried.items() if one["valid"] > best - TIE)


def rate_for(task: str, system: str, results: Results) -> float:
    """The best rate; for larger models not the highest, which only small ones are sure to stand. 0 while it is not known."""
    best, middle = best_rate(system, results), rates_of(system)[1]
    return min(best or middle, middle) if task in CARRIED else best
