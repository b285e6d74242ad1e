"""Sessions that run the missing cells of a table until their time is up, with the options that the commands share."""

import argparse
import hashlib
import math
import platform
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path

import torch
from company import alone
from facts import CORES, RESULTS, default_data

from transduce.paper.cells import Cell, Finished, Task, by_length, run_cell, train_cell, warm_up
from transduce.paper.results import Results
from transduce.training.report import SilentReporter, StepReport

from .tasks import TASKS, Lines, without_bpe

AROUND_A_CELL_S = 25.0  # to translate and to score, and the warm-up
ASKED_EVERY_S = 2.0  # training runs, to stop
UNFINISHED = Path(tempfile.gettempdir()) / "transduce-cells"  # run folders of training runs that were stopped
LENGTHS = (1, 8, 12, 16, 20, 25, 30, 40, 50, 60, 1_000)  # of sources, in words
PROCESSES = partial(ProcessPoolExecutor, mp_context=get_context("spawn"))
Work = Callable[[Cell, Task], Finished]


# --- results, one line for each cell ------------------------------------------------------------------------------


def read_results(name: str, out: Path = RESULTS) -> Results:
    return Results.read(out / f"{name}.jsonl", RESULTS / f"{name}.jsonl")


def outputs_of(out: Path, key: str) -> Path:
    """The translations of a cell; not kept under version control."""
    return out / "outputs" / (key.replace(" / ", ".").replace(" ", "-").replace("/", "-") + ".txt")


def keep_outputs(path: Path, outputs: Lines) -> None:
    if outputs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in without_bpe(outputs)), encoding="utf-8")


# --- running ------------------------------------------------------------------------------------------------------


@dataclass
class Session:
    """Runs cells until the time is up."""

    results: Results
    data: Path
    until: float  # of time.perf_counter
    scale: float  # of all budgets: below 1 to try a table out
    only: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()  # of every cell, over its own
    most_lines: int | None = None
    at_once: int = 1  # cells that are trained side by side, where their budgets are steps
    _warm: set[tuple[str, str]] = field(default_factory=set)

    def run(self, cells: Iterable[Cell], work: Work | None = None) -> bool:
        """Run the cells that are missing, one by one; False if time ended before the last one."""
        for cell in cells:
            if self._is_missing(cell):
                if not self._has_time_for(cell):
                    return False
                if work is None:
                    self._warm_up(cell)
                with alone() if cell.seconds else nullcontext():
                    done = (work or train_alone)(self._prepared(cell), self._task(cell))
                self._keep(cell, done)
        return True

    def run_side_by_side(self, cells: Iterable[Cell]) -> bool:
        """Run the missing ones of these cells, `at_once` at a time; False if one failed, or is not finished because time was up.

        Their budgets are steps, so that it does not matter how long they take: the next session resumes those that are stopped.
        """
        waiting = [cell for cell in cells if self._is_missing(cell)]
        running: dict[Future[Finished], Cell] = {}
        complete = True
        with PROCESSES(self.at_once, initializer=stop_in_training_only) as pool:
            while running or (waiting and self._has_time_to_begin()):
                while waiting and len(running) < self.at_once and self._has_time_to_begin():
                    cell = waiting.pop(0)
                    running[pool.submit(train_resumable, self._prepared(cell), self._task(cell))] = cell
                left = min(max(0.0, self.until - time.perf_counter()), threading.TIMEOUT_MAX)
                done, others = wait(running, timeout=left, return_when=FIRST_COMPLETED)
                if not done:
                    print(
                        f"time is up: {len(others)} training runs are stopped, and resumed in the next session",
                        flush=True,
                    )
                    stop(running)
                    done = set(running)
                for future in done:
                    complete &= self._take(future, running.pop(future))
        if waiting:
            print(f"no time left for {waiting[0].key} and {len(waiting) - 1} more", flush=True)
        return complete and not waiting

    def _has_time_to_begin(self) -> bool:
        return time.perf_counter() + AROUND_A_CELL_S < self.until

    def _take(self, future: "Future[Finished]", cell: Cell) -> bool:
        """Keep what a process found; False if it failed or was stopped."""
        if error := future.exception():
            print(f"{cell.key}: {type(error).__name__}: {error}", flush=True)
            return False
        self._keep(cell, future.result())
        return True

    def _is_missing(self, cell: Cell) -> bool:
        return (not self.only or cell.system in self.only) and not self.results.has(self._prepared(cell))

    def _has_time_for(self, cell: Cell) -> bool:
        ends = time.perf_counter() + self.scale * cell.seconds + AROUND_A_CELL_S
        if ends > self.until:
            print(f"no time left for {cell.key}", flush=True)
        return ends <= self.until

    def _task(self, cell: Cell) -> Task:
        return replace(TASKS[cell.task](self.data), most_lines=self.most_lines)

    def _prepared(self, cell: Cell) -> Cell:
        return scaled(cell, self.scale, self.settings)

    def _warm_up(self, cell: Cell) -> None:
        if (cell.task, cell.system) not in self._warm:
            with tempfile.TemporaryDirectory() as folder:
                warm_up(self._prepared(cell), self._task(cell), Path(folder) / "warm-up")
            self._warm.add((cell.task, cell.system))

    def _keep(self, cell: Cell, done: Finished) -> None:
        figures = done.figures | {"hardware": hardware(), "date": time.strftime("%Y-%m-%d")}
        figures |= {"by_length": by_length(done.outputs, self._task(cell), LENGTHS)} if done.outputs else {}
        self.results.add(figures)
        keep_outputs(outputs_of(self.results.path.parent, cell.key), done.outputs)
        shown = ("score", "valid", "flops", "steps", "training_s", "train_tokens_per_s", "greedy_sentences_per_s")
        print(cell.key, {name: figures[name] for name in shown if name in figures}, flush=True)


def scaled(cell: Cell, scale: float, settings: Iterable[str]) -> Cell:
    """The cell with a part of its budget and with settings over its own: a table can be tried out before it is measured."""
    budget = {"seconds": scale * cell.seconds, "steps": math.ceil(scale * cell.steps)}
    return replace(cell, **budget, settings=(*cell.settings, *settings))


def train_alone(cell: Cell, task: Task) -> Finished:
    """The finished cell; its run folder is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        return run_cell(cell, task, Path(folder) / "run")


def train_resumable(cell: Cell, task: Task) -> Finished:
    """The finished cell; a training that is stopped goes on in the next session on this machine."""
    folder = unfinished(cell, task)
    done = run_cell(cell, task, folder, timing=alone)
    shutil.rmtree(folder, ignore_errors=True)
    return replace(done, figures=done.figures | {"greedy_alone": True})


def unfinished(cell: Cell, task: Task) -> Path:
    """The run folder of a cell, the same in every session."""
    return UNFINISHED / hashlib.sha256(repr((cell, task.settings)).encode()).hexdigest()[:16]


def stop_in_training_only() -> None:
    """In a process that runs cells: SIGTERM stops a training, which handles it, but not the search and the scores after it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def stop(running: Iterable["Future[Finished]"]) -> None:
    """Stop trainings, and wait for them: one that is still preparing its data does not listen yet and is asked again."""
    left = set(running)
    while left:
        stop_children()
        left = wait(left, timeout=ASKED_EVERY_S).not_done


def stop_children() -> None:
    for process in active_children():
        process.terminate()


def time_alone(cell: Cell, task: Task) -> Finished:
    """Some steps of a cell, for its speed only; all but a few have the device to themselves."""
    every = max(1, cell.steps // 10)
    often = replace(cell, settings=(*cell.settings, f"train.log_every={every}", "train.validate_every=1000000"))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        figures = train_cell(often, task, Path(folder) / "run", AloneFrom(every, stack))
    return Finished(figures | {"settings": list(cell.settings)}, [])


class AloneFrom(SilentReporter):
    """Stops the company between a step and the last one: what comes before and after is not timed."""

    def __init__(self, begin: int, stack: ExitStack) -> None:
        self.begin, self.stack = begin, stack

    def step(self, report: StepReport) -> None:
        if report.step == self.begin:
            self.stack.enter_context(alone())
        elif report.step == report.last_step:
            self.stack.close()


def hardware() -> str:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{CORES} cores of {platform.machine()}"
    return f"{gpu}, torch {torch.__version__}"


# --- the command line ---------------------------------------------------------------------------------------------


def options(
    description: str, tasks: Iterable[str], add: Callable[[argparse.ArgumentParser], None] | None = None
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--only", nargs="+", default=[], metavar="SYSTEM", help="only these rows")
    parser.add_argument("--tasks", nargs="+", choices=list(tasks), default=list(tasks))
    parser.add_argument(
        "--seconds-left", type=float, default=1e9, help="begin no cell that would not end within this time"
    )
    parser.add_argument(
        "--side-by-side",
        type=int,
        default=1,
        metavar="N",
        help="cells that are trained at once, if their budgets are steps",
    )
    trial = parser.add_argument_group("to try a table out")
    trial.add_argument("--scale", type=float, default=1.0, help="multiplies all budgets")
    trial.add_argument("--set", nargs="+", default=[], metavar="SETTING", help="settings of every cell, over its own")
    trial.add_argument("--lines", type=int, default=None, help="lines of validation and test data")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the lines and outputs of this session")
    parser.add_argument("--report", action="store_true", help="write the page from the results instead")
    if add:
        add(parser)
    return parser.parse_args()


def begin(name: str, chosen: argparse.Namespace) -> Session:
    until = time.perf_counter() + chosen.seconds_left
    return Session(
        results=read_results(name, chosen.out),
        data=chosen.data,
        until=until,
        scale=chosen.scale,
        only=tuple(chosen.only),
        settings=tuple(chosen.set),
        most_lines=chosen.lines,
        at_once=chosen.side_by_side,
    )
