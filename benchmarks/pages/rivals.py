"""docs/rivals.md: its tables and plots."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import compress
from statistics import mean

from cells.rivals import BUDGETS, SPEED, best_rate, rate_for, rates_of, seconds_of_a_step, tries_of
from facts import RESULTS

from transduce.config import settings_layer
from transduce.paper.plots import Plot, draw, for_document
from transduce.paper.results import Figures, Results, mean_and_spread
from transduce.paper.rivals import BASELINE, PUBLISHED, SYSTEMS, System

from .parts import DOCS, replace_part, table

COMMAND = "rivals.py --report"
NAMES = [system.name for system in SYSTEMS]
TITLES = {"multi30k": "Multi30k En-De", "europarl": "Europarl De-En", "reversal": "Reversing random sequences"}
BEAMS = {"multi30k": 5, "europarl": 4, "reversal": 1}
SIGNATURES = {
    "by place": "share of symbols that are correct at their position"
}  # in words, where they are not of a tool
UNITS = {"multi30k": "words", "europarl": "words", "reversal": "symbols"}  # of which lengths are counted
LONG_SENTENCES = {  # the systems whose scores are drawn over the length of the source
    "multi30k": ("seq2seq", "rnn", BASELINE),
    "europarl": ("seq2seq", "rnn", BASELINE),
    "reversal": ("seq2seq", "rnn", "convs2s", BASELINE),
}
REVERSAL = (
    "The first symbol of a source is the last of its target. In `seq2seq`, the path between the two passes through every recurrent state "
    "between them, and in `bytenet` through enough convolutions to span the distance. The other systems except `ff` attend to the source: the path "
    "has length one, whatever the length of the source."
)


def write_page(results: Results) -> None:
    page = DOCS / "rivals.md"
    page.write_text(replaced(page.read_text(encoding="utf-8"), results, significance()), encoding="utf-8")
    for task in BUDGETS:
        if results.find(task=task, purpose="test"):
            svg = draw([cost_plot(task, results), curves_plot(task, results), length_plot(task, results)], columns=3)
            (DOCS / "images" / f"rivals-{task}.svg").write_text(for_document(svg), encoding="utf-8")


def significance() -> dict[str, dict[str, Figures]]:
    path = RESULTS / "rivals-significance.json"
    return json.loads(path.read_text())["tasks"] if path.exists() else {}


def replaced(text: str, results: Results, tested: dict[str, dict[str, Figures]]) -> str:
    parts = [part for task in BUDGETS for part in task_parts(task, results, tested.get(task, {}))]
    measured = "\n\n".join(parts) or "Not measured yet."
    return replace_part(replace_part(text, "published", COMMAND, published_table()), "measured", COMMAND, measured)


def published_table() -> str:
    def cell(value: float | None) -> str:
        return "" if value is None else f"{value:g}"

    rows = [
        (p.model, p.system, cell(p.en_de), cell(p.en_fr), cell(p.flops_en_de), cell(p.flops_en_fr)) for p in PUBLISHED
    ]
    return table(
        ("paper, Table 2", "system on this page", "En-De BLEU", "En-Fr BLEU", "En-De FLOPs", "En-Fr FLOPs"), rows
    )


def task_parts(task: str, results: Results, tested: dict[str, Figures]) -> Iterator[str]:
    cells = results.find(task=task, purpose="test")
    if not cells:
        return
    budget, last = BUDGETS[task], cells[-1]
    yield f"## {TITLES[task]}: {budget} each"
    signature = SIGNATURES.get(last["signature"], f"`{last['signature']}`")
    yield f"{seeds_measured(cells, budget.seeds)}, on {last['hardware']}. {last['metric']}: {signature}, beam {BEAMS[task]}."
    yield systems_table(task, results, tested)
    yield f"![score over FLOPs, training loss, score by source length](images/rivals-{task}.svg)"
    if task == "reversal":
        yield REVERSAL
    if shorter := flops_rows(task, results):
        yield "The Transformer at equal FLOPs:"
        yield table(
            ("Transformer stopped at", "FLOPs", "seconds", "its BLEU", "BLEU of that system in the full time"), shorter
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
        *(
            "system",
            "architecture",
            "M parameters",
            "score",
            "difference from the Transformer",
            "FLOPs",
            "training s, alone",
            "tuning s",
        ),
        *("training, target tokens/s", "greedy, sentences/s", "learning rate"),
    )
    rows = []
    for system in SYSTEMS:
        cells = results.find(task=task, system=system.name, purpose="test")
        if cells:
            rows.append(system_row(task, system, cells, results, tested.get(system.name)))
    known = [any(column) for column in zip(*rows, strict=True)]  # a task may have no speeds, and no paired test
    return table(compress(header, known), [compress(row, known) for row in rows])


def system_row(
    task: str, system: System, cells: list[Figures], results: Results, tested: Figures | None
) -> tuple[str, ...]:
    against = f"{tested['difference']:+.2f}, p = {tested['p']:.3f}: {tested['verdict']}" if tested else ""
    timed = results.find(task=task, system=system.name, purpose=SPEED)
    undisturbed = [  # others shared the GPU
        one for one in cells if BUDGETS[task].seconds and (one["budget_s"] or one.get("greedy_alone"))
    ]

    def middle(name: str) -> float:
        return mean(one[name] for one in cells)

    def speed(name: str, of: list[Figures]) -> str:
        return f"{mean(one[name] for one in of):,.0f}" if of else ""

    return (
        system.name,
        system.about,
        f"{middle('parameters_m'):.1f}",
        mean_and_spread([one["score"] for one in cells]),
        against,
        f"{middle('flops'):.1e}",
        rounded(seconds_alone(task, system.name, cells, results) / len(cells)),
        rounded(seconds_alone("multi30k", system.name, tries_of(system.name, results).values(), results)),
        speed("train_tokens_per_s", timed),
        speed("greedy_sentences_per_s", undisturbed),
        f"{rate_in(cells[0])}{' (at the edge)' if is_at_the_edge(task, system.name, results) else ''}",
    )


def seconds_alone(task: str, system: str, cells: Iterable[Figures], results: Results) -> float:
    """How long these trainings together take alone on the GPU; 0 while that is not known."""
    timed = results.find(task=task, system=system, purpose=SPEED)
    return sum(one["steps"] for one in cells) * seconds_of_a_step(timed[0]) if timed else 0.0


def rounded(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds else ""


def is_at_the_edge(task: str, system: str, results: Results) -> bool:
    """Whether another rate than those tried might be better."""
    used, rates = rate_for(task, system, results), rates_of(system)
    return best_rate(system, results) > 0 and used in (rates[0], rates[-1])


def rate_in(cell: Figures) -> str:
    """The learning rate with which a cell was measured; the one that is fitted to its family may have changed since."""
    return f"{float(settings_layer(cell['settings'])['train']['learning_rate']):g}"


def flops_rows(task: str, results: Results) -> list[tuple[str, ...]]:
    """What the shorter runs cost and gave; their time is that of as many steps alone on the GPU."""
    rows = []
    for one in results.find(task=task, system=BASELINE):
        word, _, rival = one["purpose"].partition(" of ")
        if word == "FLOPs":
            theirs = [line["score"] for line in results.find(task=task, system=rival, purpose="test")]
            figures = (
                f"{one['flops']:.1e}",
                rounded(seconds_alone(task, BASELINE, [one], results)),
                f"{one['score']:.2f}",
            )
            rows.append((f"the FLOPs of {rival}", *figures, mean_and_spread(theirs)))
    return rows


def length_table(task: str, results: Results) -> str:
    by_system = {name: lengths(task, name, results) for name in NAMES if lengths(task, name, results)}
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
    """Over the time that a training takes alone on the GPU, or over steps where that is not measured."""
    series, timed = {}, BUDGETS[task].seconds > 0
    for one in sorted(results.find(task=task, purpose="test", seed=1), key=lambda one: NAMES.index(one["system"])):
        length = seconds_alone(task, one["system"], [one], results) if timed else one["steps"]
        series[one["system"]] = [(x * length / one["training_s"], y) for x, y in one["curve"]]
    what, unit = ("time", "seconds") if timed else ("steps", "steps")
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
