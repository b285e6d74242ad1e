"""`transduce paper`: small versions of the paper's three tables, measured on this machine, on one page.

Everything is scaled to a budget in minutes. Models learn to pronounce English (CMU dictionary); a finished cell is not trained again.
"""

import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from transduce.errors import SettingError
from transduce.metrics import Score, score_outputs
from transduce.paper.cells import Cell, Lines, Scorer, Task, TestFiles, by_length
from transduce.paper.complexity import PATHS, Stopwatch, Timing, measure_constant, measure_grid, measure_path
from transduce.paper.dot_products import measure_all
from transduce.paper.layers import KINDS
from transduce.paper.page import PageData, write_page
from transduce.paper.results import Results
from transduce.paper.reversal import LONGEST, symbols_right, write_reversal
from transduce.paper.reversal import SETTINGS as REVERSAL_SETTINGS
from transduce.paper.rivals import BASELINE, System, available_systems
from transduce.paper.side_by_side import count_at_once, time_of_all, train_side_by_side
from transduce.paper.variations import BASE, Shape, available_rows
from transduce.pronunciations import read_dictionary, split_dictionary

MINUTES = 10.0
LAYERS = 0.08  # of the budget
SHARES = {"rivals": 0.43, "variations": 0.37, "reversal": 0.20}  # of the rest
AROUND_A_CELL_S = 2.5  # to warm up, to translate and to score
LEAST_S = 10.0  # of a training command, which needs about four of them to start and to end
FEWEST_STEPS = 300  # a model with fewer has hardly begun to learn
SHAPE = Shape(d_model=64, heads=4, layers=2, dropout=0.0)
TELLING = (
    *(BASE, "1 head", "d_k 4", "1 layer", "d_model 32", "no label smoothing", "learned positions", "no positions"),
    *("unscaled dot products", "additive attention", "BatchNorm"),
)
REVERSING = ("seq2seq", "rnn", "convs2s", BASELINE)
TEST_WORDS, VALID_WORDS = 1_000, 200
SHARED = (
    "train.tokens_per_batch=1024 train.schedule=linear train.warmup_steps=50 train.clip_norm=1.0 "
    "train.label_smoothing=0.1 train.average=0 train.log_every=10 train.steps=0 train.epochs=0 search.beam=1"
)
RATE = 2e-3  # of the Transformer
LENGTHS = [16 * 2**i for i in range(7)]
WIDTHS = [64, 128, 256]
GROUPS = range(1, LONGEST + 11, 10)  # of lengths
TITLES = {"rivals": "Table 2", "variations": "Table 3", "reversal": "Long sequences"}


def run_paper(folder: Path, minutes: float = MINUTES) -> Path:
    """Measure what is missing, and write `paper.html`."""
    check_minutes(minutes)
    begun = time.perf_counter()
    tasks = {"rivals": pronunciation(folder / "data"), "reversal": reversal(folder / "data")}
    tasks["variations"] = tasks["rivals"]
    results, planned = Results.read(folder / "cells.jsonl"), all_cells(60 * minutes, count_at_once())
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        runner = TableRunner(console, bar, results)
        timings, constant = runner.layers(60 * minutes * LAYERS)
        runner.cells([(cell, tasks[cell.task]) for cell in planned])
    data = PageData(
        results=results,
        timings=timings,
        constant=constant,
        paths=[measure_path(name, n) for name in PATHS for n in (16, 64)],
        products=measure_all(),
        rows=available_rows(SHAPE),
        minutes=(time.perf_counter() - begun) / 60,
        warning=warning_of(planned, results, minutes),
    )
    page = folder / "paper.html"
    write_page(data, page)
    if data.warning:
        console.print(f"warning: {data.warning}", markup=False)
    print(f"{page}  the paper's tables as measured here ({data.minutes:.1f} minutes)")
    return page


def check_minutes(minutes: float) -> None:
    """Refuse a budget in which the models would not learn anything."""
    if not minutes > 0:
        raise SettingError(f"minutes = {minutes:g}: must be more than 0")
    cells = all_cells(60 * MINUTES, count_at_once())
    shortest = min(cell.seconds for cell in cells) + AROUND_A_CELL_S  # in proportion to the minutes
    least = MINUTES * (LEAST_S + AROUND_A_CELL_S) / shortest
    if minutes < least:
        raise SettingError(
            f"minutes = {minutes:g}: too few for the {len(cells)} models of the tables; give at least {math.ceil(least)}"
        )


def warning_of(planned: list[Cell], results: Results, minutes: float) -> str:
    """A warning if models had too few steps to learn anything; otherwise nothing."""
    short = sum(line["steps"] < FEWEST_STEPS for cell in planned for line in results.find(key=cell.key))
    if not short:
        return ""
    return (
        f"{short} of {len(planned)} models were trained for fewer than {FEWEST_STEPS} steps, so their scores say nothing: this machine is slow "
        f"or busy. Run the command again with --minutes {math.ceil(3 * minutes)}"
    )


# --- data ---------------------------------------------------------------------------------------------------------


def pronunciation(folder: Path) -> Task:
    """English words and their first pronunciations."""
    splits = split_dictionary(read_dictionary())
    chosen = {"train": None, "valid": VALID_WORDS, "test": TEST_WORDS}
    for split, count in chosen.items():
        first = dict(reversed(splits[split]))  # the first of several pronunciations
        every = max(1, len(first) // count) if count else 1
        _write(folder / f"words.{split}", list(first.items())[::every][:count])
    return _task("words", folder, "words.{}", (*SHARED.split(), "data.task=symbols", "data.joint=false"), words_right)


def reversal(folder: Path) -> Task:
    write_reversal(folder / "reversal")
    return _task("reversal", folder / "reversal", "{}", (*SHARED.split(), *REVERSAL_SETTINGS), symbols)


def _task(name: str, folder: Path, pattern: str, settings: tuple[str, ...], score: Scorer) -> Task:
    train, valid, test = (
        TestFiles(folder / f"{pattern.format(split)}.source", folder / f"{pattern.format(split)}.target")
        for split in ("train", "valid", "test")
    )
    return Task(name, [(str(train.source), str(train.target))], valid, test, settings, score)


def _write(stem: Path, pairs: list[tuple[str, str]]) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    for number, side in enumerate(("source", "target")):
        Path(f"{stem}.{side}").write_text("".join(f"{pair[number]}\n" for pair in pairs), encoding="utf-8")


def words_right(outputs: Lines, references: Lines) -> Score:
    return score_outputs(outputs, [[reference] for reference in references], ["exact-match"]).main


def symbols(outputs: Lines, references: Lines) -> Score:
    return Score("symbols right", symbols_right(outputs, references), "by place", higher_is_better=True)


# --- cells --------------------------------------------------------------------------------------------------------


def all_cells(seconds: float, at_once: int) -> list[Cell]:
    """The cells of all tables, with equal budgets within a table."""
    systems = {system.name: system_settings(system, joint=False) for system in available_systems()}
    reversing = {
        system.name: system_settings(system, joint=True) for system in available_systems() if system.name in REVERSING
    }
    shape = (*SHAPE.settings, f"train.learning_rate={RATE}", "model.tie=target")
    rows = {row.key: (*shape, *row.settings) for row in available_rows(SHAPE) if row.name in TELLING}
    tables = {"rivals": systems, "variations": rows, "reversal": reversing}
    parts = {table: SHARES[table] / len(named) for table, named in tables.items()}  # of one cell
    together = time_of_all([parts[table] for table, named in tables.items() for _ in named], at_once)
    whole = {table: seconds * (1 - LAYERS) * part / together for table, part in parts.items()}
    return [
        Cell(
            task=table, system=name, purpose="test", settings=settings, seconds=round(whole[table] - AROUND_A_CELL_S, 1)
        )
        for table, named in tables.items()
        for name, settings in named.items()
    ]


def system_settings(system: System, joint: bool) -> tuple[str, ...]:
    rate = f"train.learning_rate={system.learning_rate(RATE):g}"
    return (*system.shaped(SHAPE.d_model, SHAPE.layers, joint), rate, "model.dropout=0.0")


@dataclass
class TableRunner:
    """Measures what the tables show, with a progress bar."""

    console: Console
    bar: Progress
    results: Results

    def layers(self, seconds: float) -> tuple[list[Timing], list[Timing]]:
        """Table 1 on this CPU, with one thread."""
        threads, sizes = torch.get_num_threads(), len(KINDS) * len(LENGTHS) * (len(WIDTHS) + 1)
        watch = Stopwatch("cpu", seconds=seconds / sizes / 2)
        task = self.bar.add_task("Table 1: layers", total=sizes)
        torch.set_num_threads(1)
        try:
            grid = measure_grid(watch, LENGTHS, WIDTHS, 1, lambda timing: self.bar.advance(task))
            constant = measure_constant(
                watch, LENGTHS, WIDTHS[-1], 2 * LENGTHS[-1], lambda timing: self.bar.advance(task)
            )
        finally:
            torch.set_num_threads(threads)
        return grid, constant

    def cells(self, planned: list[tuple[Cell, Task]]) -> None:
        """Tables 2 and 3, and the long sequences."""
        missing = [(cell, task) for cell, task in planned if not self.results.has(cell)]
        shown = self.bar.add_task("Tables 2 and 3: models", total=len(planned), completed=len(planned) - len(missing))
        try:
            for cell, task, done in train_side_by_side(missing, count_at_once()):
                self.results.add(done.figures | {"by_length": by_length(done.outputs, task, GROUPS)})
                score = f"{done.figures['metric']} {done.figures['score']:.1f}"
                self.console.print(f"{TITLES[cell.task]}: {cell.system}: {score}", markup=False)
                self.bar.advance(shown)
        except KeyboardInterrupt:
            self.console.print("Interrupted. Run the command again to train the remaining models.")
            raise
