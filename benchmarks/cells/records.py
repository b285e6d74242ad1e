"""The records of docs/records.md: the recipes that are tried for each, their cells, and which recipe is the best on validation data."""

import argparse
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from transduce.paper.cells import Cell
from transduce.paper.results import Results

from .record_tasks import INFLECTED, PRONOUNCED, Form
from .session import scaled

PUBLISHED = Form()
# Words of the English test and validation data, and how many of them are in CMUdict's training file: tests/test_records.py counts them.
ENGLISH_WORDS, IN_CMUDICT = 4_168, {"test": 2_074, "valid": 2_013}
CONFIGS = Path(__file__).parents[2] / "configs"


# --- recipes and records --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """One way to train for a record."""

    name: str
    settings: str
    steps: int = 0
    seconds: float = 0.0  # a budget in time instead of steps
    form: Form = PUBLISHED
    apart: bool = True  # False: one model for all languages, with tags
    caveat: str = ""  # what a reader of its score must know


@dataclass(frozen=True)
class Record:
    """A public task with a published figure, and the recipes that are tried on it."""

    name: str
    title: str
    published: str
    baseline: float | None  # the published figure; None if it cannot be compared with ours
    difference: str  # why it cannot be compared
    recipes: tuple[Recipe, ...]
    seeds: int
    languages: tuple[str, ...] = ()
    tried_on: tuple[str, ...] = ()  # the languages on which recipes are compared; none for all
    expected_s: float = 60.0  # of a cell; cells that were measured know better

    def tasks(self, recipe: Recipe, languages: Iterable[str]) -> list[str]:
        return [f"{self.name} {one}" for one in languages] if recipe.apart and self.languages else [self.name]

    def cells(self, recipe: Recipe, purpose: str) -> Iterator[Cell]:
        """One seed of every language first, so that a mean is known early."""
        tuning = purpose == "tuning"
        for seed in range(1, 2 if tuning else self.seeds + 1):
            for task in self.tasks(recipe, (self.tried_on if tuning else ()) or self.languages):
                yield Cell(
                    task=task, system=recipe.name, purpose=purpose, settings=tuple(recipe.settings.split()), seed=seed,
                    seconds=recipe.seconds, steps=recipe.steps, tested=not tuning,
                )  # fmt: skip


BUDGETS = ("steps", "epochs", "minutes")  # settings of a recipe file that a cell has otherwise
ADAM = "train.optimizer=adam train.learning_rate=1e-3"
MUON = "train.optimizer=muon train.learning_rate=2e-3 model.positions=rotary"
PLAIN = f"{ADAM} model.positions=sinusoidal data.concatenate=0"
TOGETHER = "train.tokens_per_batch=4096 train.steps=16000 model.dropout=0.2"
WITH_MEDIUM = "train.tokens_per_batch=4096 train.steps=12000 model.dropout=0.2"
TWO_MINUTES = "train.minutes=2 train.epochs=0 train.steps=0 train.validate_every=0 train.checkpoint_every=0"


def from_config(name: str, config: str, changes: str = "", **others: Any) -> Recipe:
    """A recipe file of `configs/` with some settings changed."""
    layers = tomllib.loads((CONFIGS / config).read_text(encoding="utf-8"))
    settings = {f"{section}.{key}": value for section, values in layers.items() for key, value in values.items()}
    settings |= dict(change.split("=", 1) for change in changes.split())
    steps, _, minutes = (float(settings.pop(f"train.{budget}", 0)) for budget in BUDGETS)
    settings.pop("data.tags", None)  # the task has them
    written = " ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in settings.items()
    )
    return Recipe(name, written, int(0 if minutes else steps), 60 * minutes, **others)


RECORDS = (
    Record(
        "inflection", "CoNLL 2017 inflection, high, mean accuracy of seven languages",
        "95 to 96 (Wu et al. 2021, mean of 52 languages)", None, "seven languages instead of 52",
        (
            from_config("rotary", "inflection-gpu.toml", ADAM),
            from_config("rotary, Muon", "inflection-gpu.toml"),
            from_config("rotary, r-drop", "inflection-gpu.toml", f"{ADAM} train.r_drop=5 train.steps=4000"),
            from_config("rotary, both ways", "inflection-gpu.toml", f"{ADAM} train.steps=8000", form=Form(both_ways=True)),
        ),
        seeds=3, languages=INFLECTED, tried_on=("german", "finnish", "russian"), expected_s=120.0,
    ),
    Record(
        "g2p high", "SIGMORPHON 2021 pronunciation, high (English), WER", "41.94 (baseline of the shared task, ensemble of ten)", None, "also trained on CMUdict",
        (
            from_config("256", "g2p-high-gpu.toml", "model.dropout=0.3 train.steps=8000"),
            from_config("256, rotary, Muon", "g2p-high-gpu.toml", f"model.dropout=0.3 train.steps=8000 {MUON}"),
            from_config("256, r-drop", "g2p-high-gpu.toml", "model.dropout=0.3 train.r_drop=5 train.steps=5000"),
            from_config(
                "256, with CMUdict", "g2p-high-gpu.toml", form=Form(with_cmudict=True),
                caveat=f"whose training file has {IN_CMUDICT['test']:,} of the {ENGLISH_WORDS:,} test words (see Method)",
            ),
        ),
        seeds=5, languages=PRONOUNCED["high"], expected_s=100.0,
    ),
    Record(
        "g2p medium", "SIGMORPHON 2021 pronunciation, medium, mean WER of ten languages", "10.64 (baseline of the shared task, ensemble of ten)", 10.64, "",
        (
            from_config("apart", "g2p-medium-gpu.toml", PLAIN),
            from_config("apart, decomposed", "g2p-medium-gpu.toml", PLAIN, form=Form(decomposed=True)),
            from_config("together, decomposed", "g2p-medium-gpu.toml", f"{PLAIN} {TOGETHER}", form=Form(decomposed=True), apart=False),
            from_config("apart, rotary, Muon", "g2p-medium-gpu.toml", form=Form(decomposed=True)),
            from_config("together, rotary, Muon", "g2p-medium-gpu.toml", TOGETHER, form=Form(decomposed=True), apart=False),
        ),
        seeds=5, languages=PRONOUNCED["medium"], tried_on=("dut", "hbs_latn", "kor", "bul"), expected_s=60.0,
    ),
    Record(
        "g2p low", "SIGMORPHON 2021 pronunciation, low, mean WER of ten languages", "25.10 (baseline of the shared task, ensemble of ten)", 25.10, "",
        (
            from_config("together", "g2p-low-gpu.toml", PLAIN, apart=False),
            from_config("together, rotary, Muon", "g2p-low-gpu.toml", "data.concatenate=0", apart=False),
            from_config("together, joined", "g2p-low-gpu.toml", f"{PLAIN} train.steps=8000", form=Form(joined=4), apart=False),
            from_config("together, decomposed", "g2p-low-gpu.toml", PLAIN, form=Form(decomposed=True), apart=False),
            from_config("together with medium", "g2p-low-gpu.toml", f"{PLAIN} {WITH_MEDIUM}", form=Form(with_medium=True), apart=False),
            from_config("together, concatenated, rotary, Muon", "g2p-low-gpu.toml", apart=False),
        ),
        seeds=10, languages=PRONOUNCED["low"], expected_s=60.0,
    ),
    Record(
        "multi30k", "Multi30k En-De as published, tokenised BLEU, recipes that train for two minutes", "41.02 (without pictures)", 41.02, "",
        (
            from_config("longer", "multi30k-bpe-gpu.toml", TWO_MINUTES),
            from_config("dropout 0.4", "multi30k-bpe-gpu.toml", f"{TWO_MINUTES} model.dropout=0.4"),
            from_config("512, dropout 0.4", "multi30k-bpe-gpu.toml", f"{TWO_MINUTES} model.dropout=0.4 model.d_model=512 model.num_heads=8 train.learning_rate=1e-3"),
            from_config("r-drop 10", "multi30k-bpe-gpu.toml", f"{TWO_MINUTES} train.r_drop=10"),
            from_config("attention dropout", "multi30k-bpe-gpu.toml", f"{TWO_MINUTES} model.attention_dropout=0.1 model.activation_dropout=0.1"),
            from_config("6 + 3 layers", "multi30k-bpe-gpu.toml", f"{TWO_MINUTES} model.num_encoder_layers=6 train.learning_rate=1.5e-3"),
        ),
        seeds=3, expected_s=150.0,
    ),
)  # fmt: skip


# --- which cells are missing ----------------------------------------------------------------------------------------


def missing(record: Record, results: Results, chosen: argparse.Namespace) -> list[Cell]:
    """The cells that have no line yet; those of the test only when the best recipe is known."""

    def without_lines(cells: Iterable[Cell]) -> list[Cell]:
        return [cell for cell in cells if not results.has(scaled(cell, chosen.scale, chosen.set))]

    recipes = [one for one in record.recipes if not chosen.only or one.name in chosen.only]
    tried = [] if chosen.recipe else [cell for one in recipes for cell in record.cells(one, "tuning")]
    left = without_lines(tried)
    best = best_recipe(record, results, chosen.recipe)
    return left or without_lines(record.cells(best, "test") if best else ())


def best_recipe(record: Record, results: Results, name: str = "") -> Recipe | None:
    """The recipe of this name, or the one with the best validation scores; None while some were not tried."""
    if name:
        return recipe_of(record, name)
    scores = {one.name: validation_score(record, one, results) for one in record.recipes}
    known = {name: score for name, score in scores.items() if score is not None}
    if len(known) < len(record.recipes):
        return None
    return max(record.recipes, key=lambda one: known[one.name])


def validation_score(record: Record, recipe: Recipe, results: Results) -> float | None:
    """The mean over the languages that recipes are compared on, higher is better; None if one is missing."""
    # one line, or one for each language
    lines = [line for cell in record.cells(recipe, "tuning") for line in results.find(key=cell.key)]
    found = {name: score for line in lines for name, score in line["valid_by_language"].items()}
    wanted = record.tried_on or record.languages or ("",)
    if not all(name in found for name in wanted):
        return None
    return mean(found[name] for name in wanted) * (1 if lines[0]["higher_is_better"] else -1)


def find_cell(records: Iterable[Record], key: str) -> Cell:
    for record in records:
        for recipe in record.recipes:
            for purpose in ("tuning", "test"):
                for cell in record.cells(recipe, purpose):
                    if cell.key == key:
                        return cell
    raise SystemExit(f"--cell {key}: there is no such cell")


def recipe_of(record: Record, name: str) -> Recipe:
    recipes = {one.name: one for one in record.recipes}
    if name not in recipes:
        raise SystemExit(f"--recipe {name}: {record.name} has no such recipe, only: {', '.join(recipes)}; see --tasks")
    return recipes[name]


def record_of(task: str) -> Record:
    return next(record for record in RECORDS if task == record.name or task.startswith(f"{record.name} "))
