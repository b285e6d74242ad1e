"""What benchmarks/rivals.py and benchmarks/variations.py share: their data, and results that are made piece by piece.

Every finished cell is one line of a JSONL file, so a table can be made over several sessions on a GPU: cells that have a line are
not trained again, and no cell is begun that would not end within `--seconds-left`. `--out FOLDER` writes the lines and the outputs
of this session elsewhere; append them to benchmarks/results afterwards.

Before `--side-by-side` on an NVIDIA GPU, start the Multi-Process Service (`nvidia-cuda-mps-control -d`), and run nothing outside of it: ten
small trainings together then do three times the work of one (docs/log.md).
"""

import argparse
import math
import platform
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
from facts import CORES, HERE, RESULTS, default_data
from sacrebleu.metrics.bleu import BLEU

from transduce.metrics import Score, translation_scores
from transduce.paper.cells import Cell, Finished, Task, TestFiles, by_length, run_cell, train_cell, warm_up, words
from transduce.paper.results import Results
from transduce.paper.reversal import SETTINGS, symbols_right, write_reversal

AROUND_A_CELL_S = 25.0  # to translate and to score, and the warm-up
LENGTHS = (1, 8, 12, 16, 20, 25, 30, 40, 50, 60, 1_000)  # of sources, in words
PROCESSES = partial(ProcessPoolExecutor, mp_context=get_context("spawn"))
Lines = list[str]
Work = Callable[[Cell, Task], Finished]


# --- data ---------------------------------------------------------------------------------------------------------


def multi30k(data: Path) -> Task:
    """Multi30k En-De as published: tokenised, lower-cased, joint 10k BPE; scored as `multi-bleu` does."""
    folder = data / "multi30k-bpe" / "en-de"
    settings = (
        "data.task=translation data.source_units=word data.target_units=word data.joint=true data.vocabulary_size=12000 "
        "data.normalization=identity data.unknown=unk train.tokens_per_batch=4096 train.schedule=linear train.warmup_steps=200 "
        "train.label_smoothing=0.1 train.clip_norm=1.0 train.r_drop=0 train.ema=0.998 train.steps=0 train.epochs=0 "
        "model.dropout=0.3 search.alpha=1.0 search.length_penalty=power"
    )
    test = TestFiles(folder / "test_2016_flickr.en", folder / "test_2016_flickr.de")
    valid = TestFiles(folder / "valid.en", folder / "valid.de")
    train = [(str(folder / "train.en"), str(folder / "train.de"))]
    return Task(
        "multi30k", train, valid, test, tuple(settings.split()), tokenised_bleu, beam=5, length=words_without_bpe
    )


def europarl(data: Path) -> Task:
    """Europarl De-En, two of the four shards."""
    folder = data / "europarl-de-en"
    settings = (
        "data.joint=true data.vocabulary_size=16000 data.vocabulary_sample=200000 data.max_length=128 "
        "train.tokens_per_batch=25600 train.schedule=linear train.warmup_steps=400 train.label_smoothing=0.1 "
        "train.clip_norm=1.0 train.steps=0 train.epochs=0 model.dropout=0.1 search.alpha=1.0 search.length_penalty=power"
    )
    train = [tuple(str(folder / f"train-{shard}.{side}.xz") for side in ("de", "en")) for shard in (0, 1)]
    valid, test = (TestFiles(folder / f"{split}.de", folder / f"{split}.en") for split in ("valid", "test"))
    return Task("europarl", train, valid, test, tuple(settings.split()), plain_bleu, beam=4, languages=("de", "en"))


def reversal(data: Path) -> Task:
    """Random sequences and the same backwards, written when needed."""
    folder = Path(tempfile.gettempdir()) / "transduce-reversal"
    write_reversal(folder)
    files = {
        split: TestFiles(folder / f"{split}.source", folder / f"{split}.target") for split in ("train", "valid", "test")
    }
    settings = (
        *SETTINGS,
        *"train.tokens_per_batch=4096 train.schedule=linear train.warmup_steps=100 train.clip_norm=1.0".split(),
    )
    train = [(str(files["train"].source), str(files["train"].target))]
    return Task(
        "reversal", train, files["valid"], files["test"], (*settings, "train.steps=0", "train.epochs=0"), symbols
    )


def symbols(outputs: Lines, references: Lines) -> Score:
    return Score("symbols right", symbols_right(outputs, references), "by place", higher_is_better=True)


TASKS = {"multi30k": multi30k, "europarl": europarl, "reversal": reversal}


def without_bpe(lines: Iterable[str]) -> Lines:
    return [line.replace("@@ ", "") for line in lines]


def words_without_bpe(line: str) -> int:
    return words(line.replace("@@ ", ""))


def tokenised_bleu(outputs: Lines, references: Lines) -> Score:
    metric = BLEU(tokenize="none", force=True)
    value = metric.corpus_score(without_bpe(outputs), [without_bpe(references)]).score
    return Score("BLEU", value, str(metric.get_signature()), higher_is_better=True)


def plain_bleu(outputs: Lines, references: Lines) -> Score:
    return translation_scores(outputs, [[reference] for reference in references]).main


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
    longest_s: float = AROUND_A_CELL_S  # that a cell beside others takes; measured as they end
    _warm: set[tuple[str, str]] = field(default_factory=set)

    def run(self, cells: Iterable[Cell], work: Work | None = None) -> bool:
        """Run the cells that are missing, one by one; False if time ended before the last one."""
        for cell in cells:
            if self._is_missing(cell):
                if not self._has_time_for(cell):
                    return False
                if work is None:
                    self._warm_up(cell)
                self._keep(cell, (work or train_alone)(self._prepared(cell), self._task(cell)))
        return True

    def run_together(self, cells: Iterable[Cell]) -> bool:
        """Run the missing ones of these cells, of one system, at the same time, in processes that share the machine."""
        missing = [cell for cell in cells if self._is_missing(cell)]
        if not missing:
            return True
        if not self._has_time_for(missing[0]):
            return False
        self._warm_up(missing[0])
        with PROCESSES(len(missing)) as pool:
            trained = pool.map(train_alone, map(self._prepared, missing), map(self._task, missing))
            for cell, done in zip(missing, trained, strict=True):
                self._keep(cell, done)
        return True

    def run_side_by_side(self, cells: Iterable[Cell]) -> bool:
        """Run the missing ones of these cells, `at_once` at a time; False if one failed, or was not begun because time was up.

        Their budgets are steps, so that it does not matter how long they take.
        """
        waiting = [cell for cell in cells if self._is_missing(cell)]
        running: dict[Future[Finished], tuple[Cell, float]] = {}
        failed = False
        with PROCESSES(self.at_once) as pool:
            while waiting or running:
                while waiting and len(running) < self.at_once and time.perf_counter() + self.longest_s < self.until:
                    cell = waiting.pop(0)
                    future = pool.submit(train_alone, self._prepared(cell), self._task(cell))
                    running[future] = cell, time.perf_counter()
                if not running:
                    print(f"no time left for {waiting[0].key} and {len(waiting) - 1} more", flush=True)
                    return False
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    failed |= not self._take(future, *running.pop(future))
        return not failed

    def _take(self, future: "Future[Finished]", cell: Cell, begun: float) -> bool:
        """Keep what a process found; False if it failed."""
        self.longest_s = max(self.longest_s, time.perf_counter() - begun)
        if error := future.exception():
            print(f"{cell.key} failed: {error}", flush=True)
            return False
        self._keep(cell, future.result())
        return True

    def _is_missing(self, cell: Cell) -> bool:
        return (not self.only or cell.system in self.only) and not self.results.has(cell)

    def _has_time_for(self, cell: Cell) -> bool:
        ends = time.perf_counter() + self.scale * cell.seconds + AROUND_A_CELL_S
        if ends > self.until:
            print(f"no time left for {cell.key}", flush=True)
        return ends <= self.until

    def _task(self, cell: Cell) -> Task:
        return replace(TASKS[cell.task](self.data), most_lines=self.most_lines)

    def _prepared(self, cell: Cell) -> Cell:
        budget = {"seconds": self.scale * cell.seconds, "steps": math.ceil(self.scale * cell.steps)}
        return replace(cell, **budget, settings=(*cell.settings, *self.settings))

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


def train_alone(cell: Cell, task: Task) -> Finished:
    """The finished cell; its run folder is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        return run_cell(cell, task, Path(folder) / "run")


def time_alone(cell: Cell, task: Task) -> Finished:
    """Some steps of a cell, for its speed only."""
    with tempfile.TemporaryDirectory() as folder:
        every = f"train.log_every={max(1, cell.steps // 10)}"
        often = replace(cell, settings=(*cell.settings, every, "train.validate_every=1000000"))
        return Finished(train_cell(often, task, Path(folder) / "run"), [])


def hardware() -> str:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{CORES} cores of {platform.machine()}"
    return f"{gpu}, torch {torch.__version__}"


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


# --- pages --------------------------------------------------------------------------------------------------------

DOCS = HERE.parent / "docs"


def replace_part(text: str, name: str, script: str, part: str) -> str:
    """The page with a new text between the marks of a generated part."""
    begin, end = f"<!-- {name}: python benchmarks/{script}.py --report -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{part}\n\n{end}{after}"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(header)
    lines = [names, ["---"] * len(names), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
