"""The cells of docs/rivals.md: which systems are trained on which data, with which learning rates, and for how long."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean
from typing import Any

from transduce.paper.cells import Cell
from transduce.paper.results import Figures, Results
from transduce.paper.rivals import BASELINE, SYSTEMS, System

RATES = (1e-3, 2.5e-3, 6.25e-3)  # tried on Multi30k
TWICE_AS_HIGH = ("seq2seq", "rnn", "gnmt")  # whose rates are twice these: recurrent networks train well at high ones
# On Europarl the model is twice as wide, and the paper's rates fall with sqrt(d_model).
CARRIED = {"europarl": 2**-0.5}
SHAPES = {"multi30k": (256, 3), "europarl": (512, 6), "reversal": (128, 2)}  # width and layers of the Transformer
TUNING_S, SEEDS = 20.0, (1, 2, 3)
SPEED_STEPS = {"multi30k": 300, "europarl": 60}  # to measure the speed of a system alone on the GPU
SPEED = "speed"  # the purpose of cells that are only timed


@dataclass(frozen=True)
class Budget:
    """What every system gets: time or steps, and seeds."""

    seconds: float = 0.0
    steps: int = 0
    seeds: tuple[int, ...] = (1,)
    alone: bool = (
        True  # False: the seconds become steps, by a speed that was measured before, and cells may share the GPU
    )

    def __str__(self) -> str:
        return f"{self.steps:,} steps" if self.steps else f"{self.seconds:g} s"


BUDGETS = {
    "multi30k": Budget(seconds=40.0, seeds=SEEDS),
    "europarl": Budget(seconds=120.0, alone=False),
    "reversal": Budget(steps=2_500),
}


def speeds(task: str, systems: list[System]) -> Iterator[Cell]:
    """A few steps of each system, where seconds become steps."""
    for system in systems if task in SPEED_STEPS else ():
        yield make_cell(system, task, SPEED, rates_of(system.name)[0], steps=SPEED_STEPS[task], tested=False)


def tuning(systems: list[System], results: Results) -> Iterator[Cell]:
    """Each system with each rate, for as many steps as it makes in a certain time alone."""
    for tried in range(len(RATES)):
        for system in systems:
            if a_second := steps_per_s("multi30k", system.name, results):
                rate, steps = rates_of(system.name)[tried], round(TUNING_S * a_second)
                yield make_cell(system, "multi30k", purpose_of(rate), rate, steps=steps, tested=False)


def timed_seed(task: str, systems: list[System], results: Results) -> Iterator[Cell]:
    """Each system for the time of the table, with the learning rate that was best on Multi30k's validation data."""
    budget = BUDGETS[task]
    for system in systems if budget.alone and budget.seconds else ():
        if rate := rate_for(task, system.name, results):
            yield make_cell(system, task, "test", rate, seconds=budget.seconds, seed=budget.seeds[0])


def stepped(task: str, systems: list[System], results: Results) -> Iterator[Cell]:
    """The cells whose budgets are steps, so that they need not be alone on the machine."""
    budget = BUDGETS[task]
    for seed in budget.seeds:
        for system in systems:
            steps, rate = steps_of(task, system.name, results), rate_for(task, system.name, results)
            if steps and rate and not (budget.alone and budget.seconds and seed == budget.seeds[0]):
                yield make_cell(system, task, "test", rate, steps=steps, seed=seed)


def steps_of(task: str, system: str, results: Results) -> int:
    """How many steps the budget of a task is for a system; 0 while it is not known."""
    budget = BUDGETS[task]
    if budget.steps:
        return budget.steps
    if budget.alone:  # as many as the first seed made in its time
        timed = results.find(task=task, system=system, purpose="test", seed=budget.seeds[0])
        return timed[0]["steps"] if timed else 0
    return round(budget.seconds * steps_per_s(task, system, results))


def steps_per_s(task: str, system: str, results: Results) -> float:
    """Alone on the GPU; 0 while it is not known. By the median speed of a run, so that what happens once at its start does not count."""
    timed = results.find(task=task, system=system, purpose=SPEED)
    return timed[0]["train_tokens_per_s"] * timed[0]["steps"] / timed[0]["target_tokens"] if timed else 0.0


def equal_flops(results: Results) -> Iterator[Cell]:
    """Two Transformers that stop at the FLOPs of the cheapest rival, and of the one in the middle."""
    system, ours = SYSTEMS[-1], results.find(task="multi30k", system=BASELINE, purpose="test")
    per_step = mean(one["flops"] / one["steps"] for one in ours) if ours else 0.0
    for rival, flops in chosen_flops(results):
        yield make_cell(
            system, "multi30k", f"FLOPs of {rival}", best_rate(BASELINE, results), steps=round(flops / per_step)
        )


def chosen_flops(results: Results) -> list[tuple[str, float]]:
    """The cheapest and the middle one of the rivals that had fewer FLOPs than the Transformer in the same time."""
    spent = {one["system"]: one["flops"] for one in results.find(task="multi30k", purpose="test", seed=1)}
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
    """The best try on the validation data; 0 if not all have been made."""
    tried = tries_of(system, results)
    if len(tried) < len(RATES):
        return 0.0
    return max(tried, key=lambda rate: tried[rate]["valid"])


def rate_for(task: str, system: str, results: Results) -> float:
    """The best rate; for larger models not the highest, which only small ones are sure to stand."""
    best = best_rate(system, results)
    return min(best, rates_of(system)[-2]) if task in CARRIED else best
