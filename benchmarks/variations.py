"""Table 3 of the paper, ours: rows A to E and rows that take a choice of the paper back, each beside the base model and the paper.

    python benchmarks/variations.py --seconds-left 570 --out $OUT     whatever is missing; again until nothing is left
    python benchmarks/variations.py --only base "why: no positions"   some rows
    python benchmarks/variations.py --report                          writes docs/variations.md and its plots

Multi30k (published tokenisation): 6,000 steps and two seeds a row, about 25 s of a GPU each. Six rows also on Europarl De-En, 2,000 steps and one seed, about a minute. All
rows have the same number of steps, as in the paper, and the same learning rate; only what the row names is changed. `--side-by-side N` trains N at once.
"""

from collections import Counter
from collections.abc import Iterator

from cells import DOCS, begin, options, read_results, replace_part, table

from transduce.paper.cells import Cell
from transduce.paper.dot_products import DotProducts, measure_all
from transduce.paper.plots import Plot, draw, for_document
from transduce.paper.results import Figures, Results, mean_and_spread
from transduce.paper.variations import BASE, PAPER_BLEU, Row, Shape, available_rows, rows

NAME = "variations"
RATE = {"multi30k": 1e-3, "europarl": 7e-4}
SHAPES = {"multi30k": Shape(256, 4, 3, 0.3), "europarl": Shape(512, 8, 6, 0.1)}
WARMUP = 1_000  # steps; post-norm needs more than pre-norm does
BUDGETS = {"multi30k": (6_000, (1, 2)), "europarl": (2_000, (1,))}  # steps, seeds
TELLING = (  # of the rows that also run on Europarl; their keys at its size
    *(f"{BASE}: {BASE}", "A: 1 head", "B: d_k 16", "C: 2 layers", "why: no positions", "why: unscaled dot products"),
    "D: no label smoothing",
)


def main() -> None:
    chosen = options(__doc__ or "", BUDGETS)
    if chosen.report:
        write_page(read_results(NAME, chosen.out))
        return
    session = begin(NAME, chosen)
    finished = session.run_side_by_side(cell for task in chosen.tasks for cell in cells(task))
    print("finished" if finished else "time is up: run this command again")


def cells(task: str) -> Iterator[Cell]:
    """One seed of every row first, so that a table is complete early."""
    steps, seeds = BUDGETS[task]
    common = (*SHAPES[task].settings, f"train.learning_rate={RATE[task]:g}", f"train.warmup_steps={WARMUP}")
    for seed in seeds:
        for row in available_rows(SHAPES[task]):
            if task == "multi30k" or row.key in TELLING:
                settings = (*common, *row.settings)
                yield Cell(task=task, system=row.key, purpose="test", settings=settings, seed=seed, steps=steps)


# --- the page -----------------------------------------------------------------------------------------------------


def write_page(results: Results) -> None:
    page = DOCS / "variations.md"
    page.write_text(replaced(page.read_text(encoding="utf-8"), results, measure_all()), encoding="utf-8")
    (DOCS / "images" / "dot-products.svg").write_text(
        for_document(draw(factor_plots(measure_all()), columns=3)), encoding="utf-8"
    )


def replaced(text: str, results: Results, products: list[DotProducts]) -> str:
    parts = [part for task in BUDGETS for part in task_parts(task, results)]
    text = replace_part(text, "measured", NAME, "\n\n".join(parts) or "Not measured yet.")
    return replace_part(text, "factor", NAME, factor_table(products))


def task_parts(task: str, results: Results) -> Iterator[str]:
    found = results.find(task=task)
    if not found:
        return
    steps, seeds = BUDGETS[task]
    yield f"## {task.capitalize()}: {steps:,} steps each"
    yield f"{seeds_of_rows(found, len(seeds))}, on {found[-1]['hardware']}. BLEU: `{found[-1]['signature']}`."
    yield rows_table(task, results)


def seeds_of_rows(found: list[Figures], wanted: int) -> str:
    """How many seeds the rows have, and how many all of them will have."""
    counts = Counter(one["system"] for one in found)
    done = sum(count >= wanted for count in counts.values())
    several = f"{wanted} seed{'s' * (wanted > 1)}"
    return several if done == len(counts) else f"One seed measured so far; {several} for {done} of {len(counts)} rows"


def rows_table(task: str, results: Results) -> str:
    base = results.find(task=task, system=f"{BASE}: {BASE}")
    header = ("", "row", "M parameters", "BLEU", "effect", "FLOPs", "paper: BLEU", "paper: effect", "paper: perplexity")
    lines = []
    for row in rows(SHAPES[task]):
        if found := results.find(task=task, system=row.key):
            lines.append(row_cells(row, found, base))
    return table(header, lines)


def row_cells(row: Row, found: list[Figures], base: list[Figures]) -> tuple[str, ...]:
    effect = "" if row.group == BASE else effect_of(found, base)
    paper = ("", "", "")
    if row.bleu is not None:
        paper = (
            f"{row.bleu:.1f}",
            "" if row.group == BASE else f"{row.bleu - PAPER_BLEU:+.1f}",
            f"{row.perplexity:.2f}",
        )
    flops = sum(one["flops"] for one in found) / len(found)
    scores = mean_and_spread([one["score"] for one in found])
    return (row.group, row.name, f"{found[0]['parameters_m']:.1f}", scores, effect, f"{flops:.1e}", *paper)


def effect_of(found: list[Figures], base: list[Figures]) -> str:
    """The mean difference to the base model, and the extremes over all pairs of seeds."""
    differences = [one["score"] - other["score"] for one in found for other in base]
    if not differences:
        return ""
    mean = sum(differences) / len(differences)
    spread = f" ({min(differences):+.2f} to {max(differences):+.2f})" if len(differences) > 1 else ""
    return f"{mean:+.2f}{spread}"


# --- the factor 1 / sqrt(d_k) -------------------------------------------------------------------------------------


def factor_table(products: list[DotProducts]) -> str:
    header = (
        "d_k",
        "variance, unscaled",
        "scaled",
        "gradient of softmax, unscaled",
        "scaled",
        "largest weight, unscaled",
        "scaled",
    )
    by_width = {(one.d_k, one.scaled): one for one in products}
    lines = []
    for d_k in sorted({one.d_k for one in products}):
        pair = by_width[d_k, False], by_width[d_k, True]
        cells = [f"{getattr(one, name):.3g}" for name in ("variance", "gradient", "largest") for one in pair]
        lines.append((str(d_k), *cells))
    return table(header, lines) + "\n\n![variance, gradient and largest weight over d_k](images/dot-products.svg)"


def factor_plots(products: list[DotProducts]) -> list[Plot]:
    titles = {
        "variance": "variance of the logits",
        "gradient": "gradient of softmax",
        "largest": "largest attention weight",
    }
    return [
        Plot(title, "d_k", "", {said: [(one.d_k, getattr(one, name)) for one in products if one.scaled is scaled]
             for said, scaled in (("q · k", False), ("q · k / sqrt(d_k)", True))}, log_x=True, log_y=name == "variance")
        for name, title in titles.items()
    ]  # fmt: skip


if __name__ == "__main__":
    main()
