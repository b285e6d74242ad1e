"""The cells of docs/rivals.md: which systems are trained on which data, with which learning rates, and for how long."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean
from typing import Any

from transduce.paper.cells import Cell
from transduce.paper.results import Figures, Results
from transduce.paper.rivals import BASELINE, SYSTEMS, System

RATE, TRIES = 1e-3, (0.4, 1.0, 2.5)  # of the Transformer, and how much lower and higher the others are tried
# Times the best rate of Multi30k: on Europarl the model is twice as wide, and the paper's rates fall with sqrt(d_model).
CARRIED = {"europarl": 2**-0.5}
SHAPES = {"multi30k": (256, 3), "europarl": (512, 6), "reversal": (128, 2)}  # width and layers of the Transformer
TUNING_S, SEEDS = 30.0, (1, 2, 3)
SPEED_STEPS = 60  # to measure the speed of a system alone on the GPU
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


def tuning(system: System) -> Iterator[Cell]:
    for factor in TRIES:
        yield make_cell(system, "multi30k", f"rate x {factor:g}", factor, seconds=TUNING_S, tested=False)


def speeds(task: str, systems: list[System]) -> Iterator[Cell]:
    """A few steps of each system, where seconds become steps."""
    for system in systems if not BUDGETS[task].alone else ():
        yield make_cell(system, task, SPEED, 1.0, steps=SPEED_STEPS, tested=False)


def timed_seed(task: str, systems: list[System], results: Results) -> Iterator[Cell]:
    """Each system for the time of the table, with the learning rate that was best on Multi30k's validation data."""
    budget = BUDGETS[task]
    for system in systems if budget.alone and budget.seconds else ():
        if factor := best_factor(system.name, results):
            yield make_cell(system, task, "test", factor, seconds=budget.seconds, seed=budget.seeds[0])


def stepped(task: str, systems: list[System], results: Results) -> Iterator[Cell]:
    """The cells whose budgets are steps, so that they need not be alone on the machine."""
    budget = BUDGETS[task]
    for seed in budget.seeds:
        for system in systems:
            steps, factor = steps_of(task, system.name, results), best_factor(system.name, results)
            if steps and factor and not (budget.alone and budget.seconds and seed == budget.seeds[0]):
                yield make_cell(system, task, "test", factor, steps=steps, seed=seed)


def steps_of(task: str, system: str, results: Results) -> int:
    """How many steps the budget of a task is for a system; 0 while it is not known."""
    budget = BUDGETS[task]
    if budget.steps:
        return budget.steps
    if budget.alone:  # as many as the first seed made in its time
        timed = results.find(task=task, system=system, purpose="test", seed=budget.seeds[0])
    else:
        timed = results.find(task=task, system=system, purpose=SPEED)
    if not timed:
        return 0
    return timed[0]["steps"] if budget.alone else round(budget.seconds * steps_per_s(timed[0]))


def steps_per_s(timed: Figures) -> float:
    """By the median speed of a run, so that what happens once at its start does not count."""
    return timed["train_tokens_per_s"] * timed["steps"] / timed["target_tokens"]


def equal_flops(results: Results) -> Iterator[Cell]:
    """Two Transformers that stop at the FLOPs of the cheapest rival, and of the one in the middle."""
    system, ours = SYSTEMS[-1], results.find(task="multi30k", system=BASELINE, purpose="test")
    per_step = mean(one["flops"] / one["steps"] for one in ours) if ours else 0.0
    for rival, flops in chosen_flops(results):
        yield make_cell(
            system, "multi30k", f"FLOPs of {rival}", best_factor(BASELINE, results), steps=round(flops / per_step)
        )


def chosen_flops(results: Results) -> list[tuple[str, float]]:
    """The cheapest and the middle one of the rivals that had fewer FLOPs than the Transformer in the same time."""
    spent = {one["system"]: one["flops"] for one in results.find(task="multi30k", purpose="test", seed=1)}
    cheaper = sorted((flops, name) for name, flops in spent.items() if flops < spent.get(BASELINE, 0.0))
    picked = dict.fromkeys((0, len(cheaper) // 2)) if cheaper else ()
    return [(cheaper[n][1], cheaper[n][0]) for n in picked]


def make_cell(system: System, task: str, purpose: str, factor: float, **others: Any) -> Cell:
    settings = (*system.shaped(*SHAPES[task]), f"train.learning_rate={rate_of(system, task, factor):g}")
    return Cell(task=task, system=system.name, purpose=purpose, settings=settings, **others)


def rate_of(system: System, task: str, factor: float) -> float:
    return float(f"{factor * system.learning_rate(RATE) * CARRIED.get(task, 1.0):.3g}")


def best_factor(system: str, results: Results) -> float:
    """The best try on the validation data; 0 if not all have been made."""
    tried = {factor: results.find(task="multi30k", system=system, purpose=f"rate x {factor:g}") for factor in TRIES}
    if not all(tried.values()):
        return 0.0
    return max(TRIES, key=lambda factor: tried[factor][0]["valid"])
