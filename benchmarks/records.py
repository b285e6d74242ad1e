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
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from cells import AROUND_A_CELL_S, DOCS, Lines, hardware, options, outputs_of, read_results, replace_part, table
from facts import CORES, HERE, RESULTS
from record_tasks import INFLECTED, PRONOUNCED, Form, language_of, make_task

from transduce.paper.cells import Cell, Task, train_cell, warm_up
from transduce.paper.results import Figures, Results, mean_and_spread
from transduce.translator import LoadOptions, Translator

NAME = "records"
FILES = Path(tempfile.gettempdir()) / "transduce-records"  # training files in the form of their recipe
N_BEST = 5
POLL_S = 0.5

PUBLISHED = Form()
Candidates = list[list[tuple[str, float]]]  # for each line, outputs with their log-probabilities


# --- what is measured -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """One way to train for a record."""

    name: str
    settings: str
    steps: int = 0
    seconds: float = 0.0  # a budget in time instead of steps
    form: Form = PUBLISHED
    apart: bool = True  # False: one model for all languages, with tags


@dataclass(frozen=True)
class Record:
    """A goal, and the recipes that are tried to reach it."""

    name: str
    title: str
    published: str
    goal: str
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


CONFIGS = HERE.parent / "configs"
BUDGETS = ("steps", "epochs", "minutes")  # settings of a recipe file that a cell has otherwise
ADAM = "train.optimizer=adam train.learning_rate=1e-3"
MUON = "train.optimizer=muon train.learning_rate=2e-3 model.positions=rotary"
PLAIN = f"{ADAM} model.positions=sinusoidal"
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
        "95 to 96 (Wu et al. 2021, mean of 52 languages)", "95.5, then 96.5",
        (
            from_config("rotary", "inflection-gpu.toml", ADAM),
            from_config("rotary, Muon", "inflection-gpu.toml"),
            from_config("rotary, r-drop", "inflection-gpu.toml", f"{ADAM} train.r_drop=5 train.steps=4000"),
            from_config("rotary, both ways", "inflection-gpu.toml", f"{ADAM} train.steps=8000", form=Form(both_ways=True)),
        ),
        seeds=3, languages=INFLECTED, tried_on=("german", "finnish", "russian"), expected_s=120.0,
    ),
    Record(
        "g2p high", "SIGMORPHON 2021 pronunciation, high (English), WER", "41.94 (baseline of the shared task, ensemble of ten)", "below 41.94",
        (
            from_config("256", "g2p-high-gpu.toml", "model.dropout=0.3 train.steps=8000"),
            from_config("256, rotary, Muon", "g2p-high-gpu.toml", f"model.dropout=0.3 train.steps=8000 {MUON}"),
            from_config("256, r-drop", "g2p-high-gpu.toml", "model.dropout=0.3 train.r_drop=5 train.steps=5000"),
            from_config("256, with CMUdict", "g2p-high-gpu.toml", form=Form(with_cmudict=True)),
        ),
        seeds=5, languages=PRONOUNCED["high"], expected_s=100.0,
    ),
    Record(
        "g2p medium", "SIGMORPHON 2021 pronunciation, medium, mean WER of ten languages", "10.64 (baseline of the shared task, ensemble of ten)", "below 10.64",
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
        "g2p low", "SIGMORPHON 2021 pronunciation, low, mean WER of ten languages", "25.10 (baseline of the shared task, ensemble of ten)", "below 25.10",
        (
            from_config("together", "g2p-low-gpu.toml", PLAIN, apart=False),
            from_config("together, rotary, Muon", "g2p-low-gpu.toml", apart=False),
            from_config("together, joined", "g2p-low-gpu.toml", f"{PLAIN} train.steps=8000", form=Form(joined=4), apart=False),
            from_config("together, decomposed", "g2p-low-gpu.toml", PLAIN, form=Form(decomposed=True), apart=False),
            from_config("together with medium", "g2p-low-gpu.toml", f"{PLAIN} {WITH_MEDIUM}", form=Form(with_medium=True), apart=False),
            from_config("together, joined, rotary, Muon", "g2p-low-gpu.toml", "train.steps=8000", form=Form(joined=4), apart=False),
            from_config("together with medium, rotary, Muon", "g2p-low-gpu.toml", WITH_MEDIUM, form=Form(with_medium=True), apart=False),
        ),
        seeds=10, languages=PRONOUNCED["low"], expected_s=60.0,
    ),
    Record(
        "multi30k", "Multi30k En-De as published, BLEU of one model in two minutes", "41.02", "43",
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


# --- which cells are missing ----------------------------------------------------------------------------------------


def missing(record: Record, results: Results, chosen: argparse.Namespace) -> list[Cell]:
    """The cells that have no line yet; those of the test only when the best recipe is known."""
    recipes = [one for one in record.recipes if not chosen.only or one.name in chosen.only]
    tried = [] if chosen.recipe else [cell for one in recipes for cell in record.cells(one, "tuning")]
    left = [cell for cell in tried if not results.has(cell)]
    best = best_recipe(record, results, chosen.recipe)
    tested = record.cells(best, "test") if best and not left else ()
    return left or [cell for cell in tested if not results.has(cell)]


def best_recipe(record: Record, results: Results, name: str = "") -> Recipe | None:
    """The recipe of this name, or the one with the best validation scores; None while some were not tried."""
    if name:
        return next((one for one in record.recipes if one.name == name), None)
    scores = {one.name: validation_score(record, one, results) for one in record.recipes}
    known = {name: score for name, score in scores.items() if score is not None}
    if len(known) < len(record.recipes):
        return None
    return max(record.recipes, key=lambda one: known[one.name])


def validation_score(record: Record, recipe: Recipe, results: Results) -> float | None:
    """The mean over the languages that recipes are compared on, higher is better; None if one is missing."""
    lines = [
        line for cell in record.cells(recipe, "tuning") for line in results.find(key=cell.key)
    ]  # one, or one for each language
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
    return next(one for one in record.recipes if one.name == name)


def record_of(task: str) -> Record:
    return next(record for record in RECORDS if task == record.name or task.startswith(f"{record.name} "))


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
    scaled = replace(
        cell, seconds=chosen.scale * cell.seconds, steps=math.ceil(chosen.scale * cell.steps), settings=(*cell.settings, *chosen.set)
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        if cell.seconds:
            warm_up(scaled, task, Path(folder) / "warm-up")
        figures = train_cell(scaled, task, Path(folder) / "run")
        found = candidates(Path(folder) / "run", task, ("valid", "test") if cell.tested else ("valid",))
    outputs = {split: [first(line) for line in lines] for split, lines in found.items()}
    figures |= scores(task, cell.task, outputs)
    figures |= {"hardware": hardware(), "date": time.strftime("%Y-%m-%d"), "at_once": chosen.side_by_side}
    keep(candidates_of(chosen.out, cell.key), found)
    results.add(figures | {"whole_s": round(time.perf_counter() - begun, 1)})
    shown = {name: figures[name] for name in ("score", "valid", "steps", "command_s") if name in figures}
    print(cell.key, shown, flush=True)


def candidates(run: Path, task: Task, splits: Iterable[str]) -> dict[str, Candidates]:
    """The best outputs of a model for each line, with their log-probabilities, the model's first choice first."""
    translator = Translator.load(run, LoadOptions(engine="torch"))
    found = {}
    for split in splits:
        sources, _ = task.lines(getattr(task, split))
        lists = translator.n_best(sources, N_BEST, beam=max(task.beam, N_BEST))
        found[split] = [[(output.text, output.log_probability) for output in one.outputs] for one in lists]
    return found


def first(candidates: Sequence[tuple[str, float]]) -> str:
    return candidates[0][0] if candidates else ""


def scores(task: Task, name: str, outputs: dict[str, Lines]) -> Figures:
    """Scores of the validation data and, if there are such outputs, of the test data; also language by language."""
    found: Figures = {}
    for split, lines in outputs.items():
        sources, references = task.lines(getattr(task, split))
        score = task.score(lines, references)
        found |= {"metric": score.name, "signature": score.signature, "higher_is_better": score.higher_is_better}
        found["score" if split == "test" else split] = round(score.value, 2)
        found[f"{split}_by_language"] = by_language(task, name, sources, lines, references)
    return found


def by_language(task: Task, name: str, sources: Lines, outputs: Lines, references: Lines) -> dict[str, float]:
    """The score of each language that a tag names; without tags, of the language in the name of the task."""
    record, groups = record_of(name), {}
    for line in zip(sources, outputs, references, strict=True):
        language = language_of(line[0]) or name.removeprefix(record.name).strip()
        groups.setdefault(language, []).append(line[1:])
    return {
        language: round(task.score([line[0] for line in lines], [line[1] for line in lines]).value, 2)
        for language, lines in groups.items()
    }


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


def vote(members: Sequence[Candidates]) -> Lines:
    """For each line the output with the largest sum of probabilities, over all models."""
    return [elected([pair for candidates in line for pair in candidates]) for line in zip(*members, strict=True)]


def elected(candidates: Iterable[Sequence[Any]]) -> str:
    sums: dict[str, float] = {}
    for text, log_probability in candidates:
        sums[text] = sums.get(text, 0.0) + math.exp(log_probability)
    return max(sums, key=lambda text: sums[text], default="")


def candidates_of(out: Path, key: str) -> Path:
    """The file of a cell's outputs; not kept under version control."""
    return outputs_of(out, key).with_suffix(".json")


def keep(path: Path, found: dict[str, Candidates]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


def read_candidates(path: Path) -> dict[str, Candidates]:
    """The outputs of a cell, or nothing if they are not here."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


# --- the page -------------------------------------------------------------------------------------------------------


def write_page(results: Results) -> None:
    page = DOCS / "records.md"
    page.write_text(replaced(page.read_text(encoding="utf-8"), results), encoding="utf-8")


def replaced(text: str, results: Results) -> str:
    header = ("task", "published", "goal", "one model", "vote", "recipe", "seconds", "hardware")
    rows = table(header, [*(summary(record, results) for record in RECORDS), *cmudict_summary()])
    details = [part for record in RECORDS for part in details_of(record, results)]
    return replace_part(text, "measured", NAME, "\n\n".join([rows, *details]))


def summary(record: Record, results: Results) -> tuple[str, ...]:
    begin = (record.title, record.published, record.goal)
    tested = tests_of(record, results)
    if not tested:
        return (*begin, "not measured yet", "", "", "", "")
    recipe = tested[0]["system"]
    company = " (shared GPU)" if any(line["at_once"] > 1 for line in tested) else ""
    seconds = f"{mean(line['command_s'] for line in tested):.0f}{company}"
    votes = votes_of(record, recipe, results)
    together = f"{language_mean(votes):.2f} (of {votes[-1]['members']})" if complete(record, votes) else ""
    return (*begin, single_model(record, tested), together, recipe, seconds, tested[-1]["hardware"])


def cmudict_summary() -> list[tuple[str, ...]]:
    """The row of the record that benchmarks/cmudict.py measures."""
    path = RESULTS / "cmudict-cpu.json"
    if not path.exists():
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    title = "CMUdict on two CPU cores in ten minutes, WER without stress marks (`benchmarks/cmudict.py`)"
    scores = [run["scores"]["plain"]["WER"] for run in record["runs"]]
    seconds = f"{mean(run['command_s'] for run in record['runs']):.0f}"
    hardware = f"{record['hardware']['cores']} cores ({record['hardware']['cpu']})"
    one = f"{mean_and_spread(scores)}, {len(scores)} seeds"
    return [(title, "none with these splits", "29.0", one, "", "configs/cmudict-cpu.toml", seconds, hardware)]


def single_model(record: Record, tested: Sequence[Figures]) -> str:
    """The mean over languages, for every seed that has all of them."""
    seeds = {line["seed"]: [other for other in tested if other["seed"] == line["seed"]] for line in tested}
    means = [language_mean(lines) for lines in seeds.values() if complete(record, lines)]
    if not means:
        return f"{len({line['task'] for line in tested})} of {len(record.languages)} languages measured"
    return mean_and_spread(means) + (f", {len(means)} seeds" if len(means) > 1 else ", one seed")


def tests_of(record: Record, results: Results) -> list[Figures]:
    """The tested models of the recipe that was tested last."""
    lines = [line for line in results.find(purpose="test") if record_of(line["task"]) is record]
    return [line for line in lines if line["system"] == lines[-1]["system"]]


def votes_of(record: Record, recipe: str, results: Results) -> list[Figures]:
    """The largest vote of each task, by models of one recipe."""
    lines = [line for line in results.find(purpose="vote", system=recipe) if record_of(line["task"]) is record]
    return list({line["task"]: line for line in sorted(lines, key=lambda line: line["members"])}.values())


def language_mean(lines: Iterable[Figures]) -> float:
    return mean(score for line in lines for score in line["test_by_language"].values())


def complete(record: Record, lines: Iterable[Figures]) -> bool:
    return {name for line in lines for name in line["test_by_language"]} == set(record.languages or ("",))


def details_of(record: Record, results: Results) -> Iterator[str]:
    """How the recipes compared on the validation data, and the languages of the test."""
    tried = {one.name: validation_score(record, one, results) for one in record.recipes}
    known = [(name, f"{abs(score):.2f}") for name, score in tried.items() if score is not None]
    if known:
        yield f"## {record.title}"
        on = ", ".join(record.tried_on or record.languages)
        yield f"Validation data{f' of {on}' if on else ''}, seed 1:"
        yield table(("recipe", "score"), known)
    recipe = next((line["system"] for line in tests_of(record, results)), "")
    lines = votes_of(record, recipe, results)
    votes = {name: score for line in lines for name, score in line["test_by_language"].items()}
    if votes and record.languages:
        yield "Test data, vote of all seeds:"
        yield table(("language", "score"), [(name, f"{votes[name]:.2f}") for name in record.languages if name in votes])


if __name__ == "__main__":
    main()
