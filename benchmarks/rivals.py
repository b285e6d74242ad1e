"""Table 2 of the paper, ours: the Transformer and its rivals on the same data, in the same time, under the same loop, search and scores.

    python benchmarks/rivals.py --seconds-left 570 --out $OUT      whatever is missing; again until nothing is left
    python benchmarks/rivals.py --only rnn gnmt --tasks multi30k   some rows
    python benchmarks/rivals.py --significance                     paired tests, from the outputs of all sessions
    python benchmarks/rivals.py --report                           writes docs/rivals.md and its plots

Multi30k (published tokenisation): three learning rates for each system, trained side by side for 30 s on the one GPU; with the best on the
validation data one seed of 40 s, alone, and two more seeds of as many steps, which `--side-by-side N` trains together. These 40 s are those of the whole training command,
after a warm-up that prepares data and compiles kernels. Europarl De-En: one seed, the rate carried over, and as many steps as a system makes in two minutes; its speed is
measured alone, and the training may share the GPU. Equal FLOPs: two shorter Transformer runs with the FLOPs of the cheapest rival and of the one in the middle. Reversal of
random sequences: the same number of steps for all, one seed.
"""

import argparse
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from statistics import mean
from typing import Any

from cells import (
    DOCS,
    TASKS,
    Session,
    begin,
    options,
    outputs_of,
    read_results,
    replace_part,
    table,
    time_alone,
    without_bpe,
)
from facts import RESULTS, write_result

import transduce
from transduce.paper.cells import Cell, read_lines
from transduce.paper.plots import Plot, draw, for_document
from transduce.paper.results import Figures, Results, mean_and_spread
from transduce.paper.rivals import BASELINE, PUBLISHED, SYSTEMS, System, available_systems

NAME = "rivals"
RATE, TRIES = 1e-3, (0.4, 1.0, 2.5)  # of the Transformer, and how much lower and higher the others are tried
SHAPES = {"multi30k": (256, 3), "europarl": (512, 6), "reversal": (128, 2)}  # width and layers of the Transformer
TUNING_S, SEEDS = 30.0, (1, 2, 3)
SPEED_STEPS = 200  # to measure the speed of a system alone on the GPU


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
TITLES = {"multi30k": "Multi30k En-De", "europarl": "Europarl De-En", "reversal": "Reversing random sequences"}
SPEED = "speed"  # the purpose of cells that are only timed
BEAMS = {"multi30k": 5, "europarl": 4, "reversal": 1}
LONG_SENTENCES = {  # the systems whose scores are drawn over the length of the source
    "multi30k": ("seq2seq", "rnn", BASELINE),
    "europarl": ("seq2seq", "rnn", BASELINE),
    "reversal": ("seq2seq", "rnn", "convs2s", BASELINE),
}
REVERSAL = (
    "The first symbol of a source is the last of its target. In `seq2seq`, the way from one to the other passes through every state "
    "between them, and in `bytenet` through as many convolutions as it takes to span them. The other systems but `ff` attend to the source: the way "
    "is one step, whatever the length. The score is the share of symbols that are right at their place."
)
UNITS = {"multi30k": "words", "europarl": "words", "reversal": "symbols"}  # of which lengths are counted


def main() -> None:
    chosen = options(__doc__ or "", BUDGETS, add)
    if chosen.report:
        write_page(read_results(NAME, chosen.out))
    elif chosen.significance:
        print(compare(read_results(NAME, chosen.out), chosen))
    else:
        finished = run(begin(NAME, chosen), chosen.tasks)
        print("finished" if finished else "time is up: run this command again")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--significance", action="store_true", help="test the outputs of all sessions against the Transformer's"
    )


# --- cells --------------------------------------------------------------------------------------------------------


def run(session: Session, tasks: list[str]) -> bool:
    """Whatever is missing; False if time ended first. Rates are tried on Multi30k, whatever the tasks."""
    systems = available_systems()[::-1]  # the Transformer first
    return (
        all(session.run_together(tuning(system)) for system in systems)
        and all(session.run(speeds(task, systems), time_alone) for task in tasks)
        and all(session.run(timed_seed(task, systems, session.results)) for task in tasks)
        and session.run_side_by_side(cell for task in tasks for cell in stepped(task, systems, session.results))
        and session.run_side_by_side(equal_flops(session.results) if "multi30k" in tasks else ())
    )


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
    settings = (*system.shaped(*SHAPES[task]), f"train.learning_rate={rate_of(system, factor):g}")
    return Cell(task=task, system=system.name, purpose=purpose, settings=settings, **others)


def rate_of(system: System, factor: float) -> float:
    return factor * system.learning_rate(RATE)


def best_factor(system: str, results: Results) -> float:
    """The best try on the validation data; 0 if not all have been made."""
    tried = {factor: results.find(task="multi30k", system=system, purpose=f"rate x {factor:g}") for factor in TRIES}
    if not all(tried.values()):
        return 0.0
    return max(TRIES, key=lambda factor: tried[factor][0]["valid"])


# --- significance -------------------------------------------------------------------------------------------------


def compare(results: Results, chosen: argparse.Namespace) -> Path:
    """Each system against the Transformer, with all seeds, by the paired bootstrap of `transduce compare`."""
    found = {task: compare_on(task, results, chosen) for task in ("multi30k", "europarl")}
    return write_result("rivals-significance", "python benchmarks/rivals.py --significance", ["sacrebleu"], tasks=found)


def compare_on(task: str, results: Results, chosen: argparse.Namespace) -> dict[str, Figures]:
    keys = {
        s.name: [one["key"] for one in results.find(task=task, system=s.name, purpose="test")] for s in SYSTEMS[::-1]
    }
    files = {name: [path for key in of if (path := outputs_of(chosen.out, key)).exists()] for name, of in keys.items()}
    texts = [f"{name}={','.join(map(str, paths))}" for name, paths in files.items() if paths]
    if len(texts) < 2 or not files.get(BASELINE):
        return {}
    tokenize = tokenizer_of(task, results)
    with tempfile.TemporaryDirectory() as folder:
        source, target = undone(TASKS[task](chosen.data).test, Path(folder))
        compared = transduce.compare(
            texts, source=source, references=target, metrics=["bleu"], tokenize=tokenize, merge="separate", quiet=True
        )
    main = compared.main
    return {
        one.name: {"difference": round(one.test.difference, 2), "p": one.test.p_corrected, "verdict": main.verdict(one)}
        for one in main.systems
        if one.test
    } | {"signature": {"text": main.signature}}


def tokenizer_of(task: str, results: Results) -> str:
    """The tokenizer by which the scores in the table were computed, from their signature."""
    found = {re.search(r"\|tok:([^|]+)", one["signature"])[1] for one in results.find(task=task, purpose="test")}
    assert len(found) == 1, f"scores of {task} by several tokenizers: {found}"
    return found.pop()


def undone(test, folder: Path) -> tuple[Path, Path]:
    """The test set with its BPE undone, as the outputs have been kept."""
    paths = folder / "source", folder / "reference"
    for path, original in zip(paths, (test.source, test.target), strict=True):
        path.write_text("".join(f"{line}\n" for line in without_bpe(read_lines(original))), encoding="utf-8")
    return paths


# --- the page -----------------------------------------------------------------------------------------------------


def write_page(results: Results) -> None:
    page = DOCS / "rivals.md"
    page.write_text(replaced(page.read_text(encoding="utf-8"), results, significance()), encoding="utf-8")
    for task in TASKS:
        if results.find(task=task, purpose="test"):
            svg = draw([cost_plot(task, results), curves_plot(task, results), length_plot(task, results)], columns=3)
            (DOCS / "images" / f"rivals-{task}.svg").write_text(for_document(svg), encoding="utf-8")


def significance() -> dict[str, dict[str, Figures]]:
    path = RESULTS / "rivals-significance.json"
    return json.loads(path.read_text())["tasks"] if path.exists() else {}


def replaced(text: str, results: Results, tested: dict[str, dict[str, Figures]]) -> str:
    parts = [part for task in TASKS for part in task_parts(task, results, tested.get(task, {}))]
    measured = "\n\n".join(parts) or "Not measured yet."
    return replace_part(replace_part(text, "published", NAME, published_table()), "measured", NAME, measured)


def published_table() -> str:
    def cell(value: float | None) -> str:
        return "" if value is None else f"{value:g}"

    rows = [
        (p.model, p.system, cell(p.en_de), cell(p.en_fr), cell(p.flops_en_de), cell(p.flops_en_fr)) for p in PUBLISHED
    ]
    return table(("paper, Table 2", "here", "En-De BLEU", "En-Fr BLEU", "En-De FLOPs", "En-Fr FLOPs"), rows)


def task_parts(task: str, results: Results, tested: dict[str, Figures]) -> Iterator[str]:
    cells = results.find(task=task, purpose="test")
    if not cells:
        return
    budget, last = BUDGETS[task], cells[-1]
    yield f"## {TITLES[task]}: {budget} each"
    yield f"{seeds_measured(cells, budget.seeds)}, on {last['hardware']}. {last['metric']}: `{last['signature']}`, beam {BEAMS[task]}."
    yield systems_table(task, results, tested)
    yield f"![score over FLOPs, training loss, score by source length](images/rivals-{task}.svg)"
    if task == "reversal":
        yield REVERSAL
    if task == "multi30k" and (shorter := flops_rows(results)):
        yield "The Transformer at equal FLOPs:"
        yield table(
            ("Transformer stopped at", "FLOPs", "seconds", "its BLEU", "BLEU of that rival in the full time"), shorter
        )
    if any(one["by_length"] for one in cells):
        yield f"{last['metric']} by the length of the source, in {UNITS[task]}:"
        yield length_table(task, results)


def seeds_measured(cells: list[Figures], wanted: tuple[int, ...]) -> str:
    """How many seeds every system has, and how many it will have."""
    counts = Counter(one["system"] for one in cells)
    least, all_seeds = min(counts.values()), f"{len(wanted)} seed{'s' * (len(wanted) > 1)}"
    return all_seeds if least == len(wanted) else f"{least} of {all_seeds} measured so far"


def systems_table(task: str, results: Results, tested: dict[str, Figures]) -> str:
    header = (
        *("system", "what", "M parameters", "score", "against the Transformer", "FLOPs", "training s", "tuning s"),
        *("training, target tokens/s", "greedy, sentences/s", "learning rate"),
    )
    rows = []
    for system in SYSTEMS:
        cells = results.find(task=task, system=system.name, purpose="test")
        if cells:
            timed = results.find(task=task, system=system.name, purpose=SPEED)
            rows.append(system_row(system, cells, timed, results, tested.get(system.name)))
    known = [any(column) for column in zip(*rows, strict=True)]  # a task may have no speeds, and no paired test
    return table(compress(header, known), [compress(row, known) for row in rows])


def system_row(
    system: System, cells: list[Figures], timed: list[Figures], results: Results, tested: Figures | None
) -> tuple[str, ...]:
    tuned = [
        one["training_s"]
        for factor in TRIES
        for one in results.find(task="multi30k", system=system.name, purpose=f"rate x {factor:g}")
    ]
    against = f"{tested['difference']:+.2f}, p = {tested['p']:.3f}: {tested['verdict']}" if tested else ""

    alone = [one for one in cells if one["budget_s"]] or timed  # the others shared the GPU

    def middle(name: str) -> float:
        return mean(one[name] for one in cells)

    def speed(name: str) -> str:
        return f"{mean(one[name] for one in alone):,.0f}" if alone and name in alone[0] else ""

    seconds = [
        one["steps"] / steps_per_s(timed[0]) if timed else one["training_s"] for one in (cells if timed else alone)
    ]
    factor = best_factor(system.name, results)
    edge = " (at the edge)" if factor in (TRIES[0], TRIES[-1]) else ""
    return (
        system.name,
        system.about,
        f"{middle('parameters_m'):.1f}",
        mean_and_spread([one["score"] for one in cells]),
        against,
        f"{middle('flops'):.1e}",
        f"{mean(seconds):.0f}" if seconds else "",
        f"{sum(tuned):.0f}",
        speed("train_tokens_per_s"),
        speed("greedy_sentences_per_s"),
        f"{rate_of(system, factor):g}{edge}",
    )


def flops_rows(results: Results) -> list[tuple[str, ...]]:
    """What the shorter runs cost and gave; their time is that of as many steps alone on the GPU."""
    ours = [one for one in results.find(task="multi30k", system=BASELINE, purpose="test") if one["budget_s"]]
    a_step = mean(one["training_s"] / one["steps"] for one in ours) if ours else 0.0
    rows = []
    for one in results.find(task="multi30k", system=BASELINE):
        word, _, rival = one["purpose"].partition(" of ")
        if word == "FLOPs":
            theirs = [line["score"] for line in results.find(task="multi30k", system=rival, purpose="test")]
            figures = f"{one['flops']:.1e}", f"{a_step * one['steps']:.0f}", f"{one['score']:.2f}"
            rows.append((f"the FLOPs of {rival}", *figures, mean_and_spread(theirs)))
    return rows


def length_table(task: str, results: Results) -> str:
    by_system = {
        name: lengths(task, name, results) for name in [s.name for s in SYSTEMS] if lengths(task, name, results)
    }
    groups = list(next(iter(by_system.values())))
    return table(
        ("system", *(f"{low} to {below - 1}" if below < 1_000 else f"{low} or more" for low, below in groups)),
        [(name, *(f"{mean(found[group]):.1f}" for group in groups)) for name, found in by_system.items()],
    )


def lengths(task: str, system: str, results: Results) -> dict[tuple[int, int], list[float]]:
    """The scores of the seeds, by lengths."""
    found: dict[tuple[int, int], list[float]] = {}
    for one in results.find(task=task, system=system, purpose="test"):
        for group in one["by_length"]:
            found.setdefault((group["from"], group["below"]), []).append(group["score"])
    return found


def cost_plot(task: str, results: Results) -> Plot:
    """Every system is a point; the Transformer at equal FLOPs makes it a line."""
    series = {}
    for system in SYSTEMS:
        cells = [one for one in results.find(task=task, system=system.name) if "score" in one]
        groups = [[one for one in cells if one["purpose"] == purpose] for purpose in {one["purpose"] for one in cells}]
        points = sorted((mean(one["flops"] for one in group), mean(one["score"] for one in group)) for group in groups)
        if points:
            series[system.name] = points
    return Plot("score over training FLOPs", "FLOPs", "score", series, log_x=True, names_at_points=True)


def curves_plot(task: str, results: Results) -> Plot:
    """Over time where cells were alone on the GPU, and otherwise over steps."""
    cells = {one["system"]: one for one in results.find(task=task, purpose="test", seed=1)}
    alone = all(one["budget_s"] for one in cells.values())
    series = {
        system.name: [(x if alone else x * one["steps"] / one["training_s"], y) for x, y in one["curve"]]
        for system in SYSTEMS
        if (one := cells.get(system.name))
    }
    what, unit = ("time", "seconds") if alone else ("steps", "steps")
    return Plot(f"training loss over {what}", unit, "cross-entropy per token", series)


def length_plot(task: str, results: Results) -> Plot:
    series = {
        name: [(low, mean(scores)) for (low, _), scores in lengths(task, name, results).items()]
        for name in LONG_SENTENCES[task]
    }
    metric = metric_of(task, results)
    drawn = {name: points for name, points in series.items() if points}
    return Plot(f"{metric} by source length", f"{UNITS[task]}, at least", metric, drawn)


def metric_of(task: str, results: Results) -> str:
    return next((one["metric"] for one in results.find(task=task, purpose="test")), "score")


if __name__ == "__main__":
    main()
