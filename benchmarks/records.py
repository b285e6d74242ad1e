"""Quality records on public tasks: inflection, pronunciation, and Multi30k as published.

    python benchmarks/records.py --tasks inflection --side-by-side 6 --seconds-left 520 --out $OUT    whatever is missing
    python benchmarks/records.py --tasks multi30k --seconds-left 520 --out $OUT                       budgets in seconds: one at a time
    python benchmarks/records.py --vote --out FOLDER                                                  ensembles, from the outputs of all sessions
    python benchmarks/records.py --report                                                             writes docs/records.md

Run it again until it says that it has finished. Recipes are compared on validation data first (cells `tuning`); the best one is then
trained with several seeds and tested (cells `test`). `--recipe NAME` skips the comparison. An ensemble is a vote: every model gives the
probabilities of its five best outputs, and the output with the largest sum wins. So a session needs no models of earlier sessions, only their
outputs: FOLDER/outputs has those of every cell, and FOLDER/records.jsonl one line of figures for each.

Tiny models do not fill a GPU, so `--side-by-side N` trains N cells at once, each in a process of its own. Records with a budget in
seconds are always trained one at a time.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from cells.record_tasks import make_task
from cells.records import RECORDS, Record, best_recipe, find_cell, missing, recipe_of, record_of
from cells.session import AROUND_A_CELL_S, hardware, options, outputs_of, read_results, scaled
from cells.votes import candidates, candidates_of, first, keep, read_candidates, scores, vote
from facts import CORES
from pages.records import write_page

from transduce.paper.cells import Cell, train_cell, warm_up
from transduce.paper.results import Results

NAME = "records"
FILES = Path(tempfile.gettempdir()) / "transduce-records"  # training files in the form of their recipe
POLL_S = 0.5


def main() -> None:
    chosen = options(__doc__ or "", [record.name for record in RECORDS], add)
    records = [record for record in RECORDS if record.name in chosen.tasks]
    results, chosen.until = read_results(NAME, chosen.out), time.perf_counter() + chosen.seconds_left
    if chosen.report:
        write_page(results)
    elif chosen.vote:
        for record in records:
            add_votes(record, results, chosen)
    elif chosen.cell:
        run_one(find_cell(records, chosen.cell), results, chosen)
    else:
        finished = [run(record, results, chosen) for record in records]
        print("finished" if all(finished) else "not finished: run this command again")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipe", default="", metavar="NAME", help="test this recipe and compare none")
    parser.add_argument("--vote", action="store_true", help="score the ensembles, from the outputs of all sessions")
    parser.add_argument("--cell", default="", metavar="KEY", help="one cell, in this process")


# --- running, each cell in a process of its own ---------------------------------------------------------------------


@dataclass
class Running:
    """A cell that is being trained."""

    cell: Cell
    process: subprocess.Popen[bytes]
    log: Path


def run(record: Record, results: Results, chosen: argparse.Namespace) -> bool:
    """Train what is missing of a record; False if something is left."""
    at_once = 1 if any(one.seconds for one in record.recipes) else chosen.side_by_side
    failed: set[str] = set()
    while True:
        cells = [cell for cell in missing(record, results, chosen) if cell.key not in failed]
        if not cells:
            return not failed and best_recipe(record, results, chosen.recipe) is not None
        if not run_all(cells, expected_s(record, results, at_once), at_once, chosen, failed):
            return False
        results.lines[:] = read_results(NAME, chosen.out).lines


def run_all(cells: list[Cell], each_s: float, at_once: int, chosen: argparse.Namespace, failed: set[str]) -> bool:
    """Run cells, so many at once, and begin none that would not end in time; False if one was not begun."""
    waiting, running = list(cells), []
    while waiting or running:
        for one in [one for one in running if one.process.poll() is not None]:
            running.remove(one)
            report_end(one, failed)
        late = time.perf_counter() + each_s > chosen.until
        if waiting and not late and len(running) < at_once:
            running.append(start(waiting.pop(0), at_once, chosen))
        elif waiting and late and not running:
            print(f"no time left for {waiting[0].key}, which takes about {each_s:.0f} s", flush=True)
            return False
        else:
            time.sleep(POLL_S)
    return True


def start(cell: Cell, at_once: int, chosen: argparse.Namespace) -> Running:
    """The same program, told to run one cell."""
    log = chosen.out / "logs" / outputs_of(chosen.out, cell.key).with_suffix(".log").name
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, "--cell", cell.key, "--data", str(chosen.data), "--out", str(chosen.out)]
    command += ["--scale", str(chosen.scale), "--side-by-side", str(at_once)]
    command += ["--set", *chosen.set] if chosen.set else []
    command += ["--lines", str(chosen.lines)] if chosen.lines else []
    threads = {"OMP_NUM_THREADS": str(max(1, CORES // at_once))} if at_once > 1 else {}
    with open(log, "wb") as file:
        return Running(cell, subprocess.Popen(command, stdout=file, stderr=file, env=threads | os.environ), log)


def report_end(one: Running, failed: set[str]) -> None:
    last = one.log.read_text(encoding="utf-8", errors="replace").rstrip().split("\n")
    if one.process.returncode == 0:
        print(last[-1], flush=True)
    else:
        failed.add(one.cell.key)
        print(f"{one.cell.key} failed; its log is {one.log}:", *last[-5:], sep="\n", flush=True)


def expected_s(record: Record, results: Results, at_once: int) -> float:
    """How long a cell takes: the longest that was measured with so many at once, or a guess: six slow each other down to half the speed."""
    names = {cell.task for recipe in record.recipes for cell in record.cells(recipe, "test")}
    known = [line["whole_s"] for line in results.lines if line["task"] in names and line.get("at_once") == at_once]
    guess = record.expected_s * (1 + (at_once - 1) / 5) + AROUND_A_CELL_S
    return (max(known) if known else guess) + 5.0


# --- one cell -------------------------------------------------------------------------------------------------------


def run_one(cell: Cell, results: Results, chosen: argparse.Namespace) -> None:
    """Train one cell, score it, and keep its line and its outputs."""
    begun = time.perf_counter()
    recipe = recipe_of(record_of(cell.task), cell.system)
    task = replace(make_task(cell.task, recipe.form, chosen.data, FILES), most_lines=chosen.lines)
    trial = scaled(cell, chosen.scale, chosen.set)
    with tempfile.TemporaryDirectory() as folder:
        if cell.seconds:
            warm_up(trial, task, Path(folder) / "warm-up")
        figures = train_cell(trial, task, Path(folder) / "run")
        found = candidates(Path(folder) / "run", task, ("valid", "test") if cell.tested else ("valid",))
    outputs = {split: [first(line) for line in lines] for split, lines in found.items()}
    figures |= scores(task, cell.task, outputs)
    figures |= {"hardware": hardware(), "date": time.strftime("%Y-%m-%d"), "at_once": chosen.side_by_side}
    keep(candidates_of(chosen.out, cell.key), found)
    results.add(figures | {"whole_s": round(time.perf_counter() - begun, 1)})
    shown = {name: figures[name] for name in ("score", "valid", "steps", "command_s") if name in figures}
    print(cell.key, shown, flush=True)


# --- ensembles ------------------------------------------------------------------------------------------------------


def add_votes(record: Record, results: Results, chosen: argparse.Namespace) -> None:
    """One line for each task whose tested seeds have outputs here."""
    recipe = best_recipe(record, results, chosen.recipe)
    for name in record.tasks(recipe, record.languages) if recipe else ():
        cells = [cell for cell in record.cells(recipe, "test") if cell.task == name]
        members = [read for cell in cells if (read := read_candidates(candidates_of(chosen.out, cell.key)))]
        if len(members) > 1:
            task = replace(make_task(name, recipe.form, chosen.data, FILES), most_lines=chosen.lines)
            outputs = {split: vote([member[split] for member in members]) for split in ("valid", "test")}
            line = {"key": f"{name} / {recipe.name} / vote of {len(members)}", "task": name, "system": recipe.name}
            line |= {"purpose": "vote", "members": len(members), **scores(task, name, outputs)}
            results.add(line)
            print(line["key"], {split: line[split] for split in ("score", "valid")}, flush=True)


if __name__ == "__main__":
    main()
