"""The cells of docs/variations.md: the base model and its variations, with their sizes, steps and seeds."""

from collections.abc import Iterator

from transduce.paper.cells import Cell
from transduce.paper.variations import BASE, Shape, available_rows

SHAPES = {"multi30k": Shape(256, 4, 3, 0.3), "europarl": Shape(512, 8, 6, 0.1)}
RECIPES = {
    "multi30k": ("train.learning_rate=1e-3", "train.warmup_steps=1000"),
    # the paper's post-norm has hardly begun to attend after so few steps (docs/log.md)
    "europarl": ("model.norm=pre", "train.learning_rate=1.5e-3", "train.warmup_steps=400"),
}
BUDGETS = {"multi30k": (6_000, (1, 2)), "europarl": (2_000, (1,))}  # steps, seeds
TELLING = (  # of the rows that also run on Europarl; their keys at its size
    *(f"{BASE}: {BASE}", "A: 1 head", "B: d_k 16", "C: 2 layers", "why: no positions", "why: unscaled dot products"),
    "D: no label smoothing",
)


def cells(task: str) -> Iterator[Cell]:
    """One seed of every row first, so that a table is complete early."""
    steps, seeds = BUDGETS[task]
    common = (*SHAPES[task].settings, *RECIPES[task])
    for seed in seeds:
        for row in available_rows(SHAPES[task]):
            if task == "multi30k" or row.key in TELLING:
                settings = (*common, *row.settings)
                yield Cell(task=task, system=row.key, purpose="test", settings=settings, seed=seed, steps=steps)
