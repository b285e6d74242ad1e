"""A cell of a table: one model, trained with some settings and one budget, and scored on a test set.

Trains and translates as `transduce train` and `transduce evaluate` do. Knows no table: what is compared with what is in
`transduce/paper/rivals.py` and `transduce/paper/variations.py`.
"""

import gc
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from transduce.errors import SettingError
from transduce.metrics import Score
from transduce.run_log import read_events
from transduce.training import Reporter, Result, TrainingRequest, train
from transduce.training.request import requested_settings
from transduce.translator import LoadOptions, Translator

CURVE_POINTS = 24
WARM_UP_STEPS = 12
FEWEST_SENTENCES = 25  # of a group that gets a score

Lines = list[str]
Scorer = Callable[[Lines, Lines], Score]  # outputs and references
Timing = Callable[[], AbstractContextManager[None]]  # while a speed is measured


def words(text: str) -> int:
    return len(text.split())


@dataclass(frozen=True)
class TestFiles:
    """Sources and references, one per line."""

    __test__ = False  # tells pytest that this is not a class of tests

    source: Path
    target: Path


@dataclass(frozen=True)
class Task:
    """What all cells of a table are trained and tested on."""

    name: str
    train: Sequence[Sequence[str]]  # groups of files, as in `transduce.train`
    valid: TestFiles
    test: TestFiles
    settings: tuple[str, ...]  # what all cells have in common
    score: Scorer
    beam: int = 1
    languages: tuple[str, ...] = ()
    most_lines: int | None = None  # of validation and test data; None for all
    length: Callable[[str], int] = words  # of a source
    valid_groups: Sequence[
        Sequence[str]
    ] = ()  # the validation files as training reads them, if they differ from `valid`
    threads: int = 0  # CPU threads; 0: one per core

    def lines(self, files: TestFiles) -> tuple[Lines, Lines]:
        """Sources and references."""
        return read_lines(files.source)[: self.most_lines], read_lines(files.target)[: self.most_lines]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training. Its key names it in a file of results."""

    task: str
    system: str
    purpose: str  # "rate 0.001", "test"
    settings: tuple[str, ...]
    seed: int = 1
    seconds: float = 0.0  # the budget of the whole training command; 0 if there are steps
    steps: int = 0
    tested: bool = True  # False: validated only, to choose a learning rate

    @property
    def key(self) -> str:
        return f"{self.task} / {self.system} / {self.purpose} / seed {self.seed}"


@dataclass(frozen=True)
class Finished:
    """What a cell gave: figures for a table, and its outputs on the test set."""

    figures: dict[str, Any]
    outputs: Lines


def is_available(settings: Sequence[str]) -> bool:
    """Whether this version has the settings; families and settings that it lacks are left out of the tables."""
    try:
        requested_settings(TrainingRequest(settings=settings))
    except SettingError:
        return False
    return True


def run_cell(
    cell: Cell, task: Task, folder: Path, reporter: Reporter | None = None, timing: Timing = nullcontext
) -> Finished:
    """Train a cell within its budget, and score it on the validation and on the test data; the speed of greedy search is measured in `timing()`."""
    figures = train_cell(cell, task, folder, reporter)
    translator = load(folder, task)
    figures["valid"] = round(_validate(translator, task), 2)
    tested = _test(translator, task, timing) if cell.tested else Finished({}, [])
    del translator
    _free_memory()
    return Finished(figures | tested.figures, tested.outputs)


def train_cell(cell: Cell, task: Task, folder: Path, reporter: Reporter | None = None) -> dict[str, Any]:
    """Train a cell within its budget, and return the figures that tables show."""
    begun = time.perf_counter()
    trained = train(folder, _request(cell, task), reporter=reporter)
    command_s = time.perf_counter() - begun
    return {
        "key": cell.key,
        "task": cell.task,
        "system": cell.system,
        "purpose": cell.purpose,
        "seed": cell.seed,
        "settings": list(cell.settings),
        "budget_s": cell.seconds,
        "command_s": round(command_s, 1),
        **_training_figures(folder, trained),
    }


def warm_up(cell: Cell, task: Task, folder: Path) -> None:
    """A few steps of the same model, so that preparing data and compiling kernels is in no cell's budget."""
    run = replace(cell, seconds=0.0, steps=WARM_UP_STEPS)
    train(folder, _request(run, task))
    load(folder, task).translate(read_lines(task.valid.source)[:8], beam=task.beam)
    _free_memory()


def load(folder: Path, task: Task) -> Translator:
    return Translator.load(folder, LoadOptions(engine="torch", threads=task.threads))


def _request(cell: Cell, task: Task) -> TrainingRequest:
    budget = [f"train.minutes={cell.seconds / 60}"] if cell.seconds else [f"train.steps={cell.steps}"]
    return TrainingRequest(
        train=[tuple(group) for group in task.train],
        valid=[tuple(group) for group in task.valid_groups] or [(str(task.valid.source), str(task.valid.target))],
        languages=task.languages,
        settings=[f"train.threads={task.threads}", *task.settings, *cell.settings, f"train.seed={cell.seed}", *budget],
    )


# --- figures of a finished training -------------------------------------------------------------------------------


def _training_figures(folder: Path, trained: Result) -> dict[str, Any]:
    events = [event for event in read_events(folder / "metrics.jsonl") if event["event"] == "train"]
    card = (folder / "README.md").read_text(encoding="utf-8")
    return {
        "training_s": round(trained.seconds, 1),
        "steps": trained.steps,
        "flops": float(_figure(r"cost: (\S+) FLOPs", card)),
        "parameters_m": float(_figure(r"([\d.]+) M parameters", card)),
        "target_tokens": events[-1]["target_tokens"] if events else 0,
        "train_tokens_per_s": round(median(event["tokens_per_second"] for event in events)) if events else 0,
        "curve": _curve(events, trained),
    }


def _figure(pattern: str, card: str) -> str:
    found = re.search(pattern, card)
    assert found, f"the model card has no {pattern}"
    return found[1]


def _curve(events: Sequence[dict[str, Any]], trained: Result) -> list[list[float]]:
    """[seconds, training cross-entropy], at most CURVE_POINTS points; all steps are assumed to take equally long."""
    every = -(-len(events) // CURVE_POINTS) or 1
    a_step = trained.seconds / max(1, trained.steps)
    return [[round(event["step"] * a_step, 1), round(event["cross_entropy"], 3)] for event in events[::-every][::-1]]


# --- scores -------------------------------------------------------------------------------------------------------


def _validate(translator: Translator, task: Task) -> float:
    """The score on the whole validation data with greedy search; the one that training reports may be of fewer lines."""
    sources, references = task.lines(task.valid)
    return task.score(translator.translate(sources, beam=1), references).value


def _test(translator: Translator, task: Task, timing: Timing) -> Finished:
    """The score with the beam of the task, and the speed of greedy search."""
    sources, references = task.lines(task.test)
    with timing():
        greedy = translator.evaluate(sources, references, beam=1, metrics=["chrf"], merge="separate")
    outputs = translator.translate(sources, beam=task.beam) if task.beam > 1 else greedy.outputs
    score = task.score(outputs, references)
    figures = {
        "score": round(score.value, 2),
        "metric": score.name,
        "signature": score.signature,
        "greedy_tokens_per_s": round(greedy.tokens_per_second),
        "greedy_sentences_per_s": round(greedy.sentences_per_second, 1),
    }
    return Finished(figures, outputs)


def by_length(outputs: Lines, task: Task, edges: Sequence[int]) -> list[dict[str, Any]]:
    """The scores of sources of similar length; groups of few sentences have none."""
    sources, references = task.lines(task.test)
    lengths = [task.length(source) for source in sources]
    found = []
    for low, high in pairwise(edges):
        chosen = [number for number, length in enumerate(lengths) if low <= length < high]
        if len(chosen) >= FEWEST_SENTENCES:
            score = task.score([outputs[n] for n in chosen], [references[n] for n in chosen])
            found.append({"from": low, "below": high, "sentences": len(chosen), "score": round(score.value, 2)})
    return found


def read_lines(path: Path) -> Lines:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _free_memory() -> None:
    """Captured graphs of a model hold on to the memory of a GPU until they are collected."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
