"""docs/variations.md: its tables and plots."""

from collections import Counter
from collections.abc import Iterator

from cells.variations import BUDGETS, SHAPES

from transduce.paper.dot_products import DotProducts, measure_all
from transduce.paper.plots import Plot, draw, for_document
from transduce.paper.results import Figures, Results, mean_and_spread
from transduce.paper.variations import BASE, PAPER_BLEU, Row, rows

from .parts import DOCS, replace_part, table

COMMAND = "variations.py --report"


def write_page(results: Results) -> None:
    page = DOCS / "variations.md"
    page.write_text(replaced(page.read_text(encoding="utf-8"), results, measure_all()), encoding="utf-8")
    (DOCS / "images" / "dot-products.svg").write_text(
        for_document(draw(factor_plots(measure_all()), columns=3)), encoding="utf-8"
    )


def replaced(text: str, results: Results, products: list[DotProducts]) -> str:
    parts = [part for task in BUDGETS for part in task_parts(task, results)]
    text = replace_part(text, "measured", COMMAND, "\n\n".join(parts) or "Not measured yet.")
    return replace_part(text, "factor", COMMAND, factor_table(products))


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
