"""docs/variations.md: its tables and plots."""

from collections import Counter
from collections.abc import Iterator
from statistics import mean

from cells.variations import BUDGETS, SHAPES

from transduce.paper.dot_products import DotProducts, measure_all
from transduce.paper.plots import Plot, draw, for_document
from transduce.paper.results import Figures, Results, mean_and_spread
from transduce.paper.variations import BASE, PAPER_BLEU, Row, rows

from .parts import DOCS, replace_part, table

COMMAND = "variations.py --report"
SETS = ("valid", "score")  # of a line of results: the validation score and the test score


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
    scores = ("validation: BLEU", "effect", "test: BLEU", "effect", "clear")
    header = ("", "row", "M parameters", *scores, "FLOPs", "paper: BLEU", "paper: effect", "paper: perplexity")
    lines = []
    for row in rows(SHAPES[task]):
        if found := results.find(task=task, system=row.key):
            lines.append(row_cells(row, found, base))
    return table(header, lines)


def row_cells(row: Row, found: list[Figures], base: list[Figures]) -> tuple[str, ...]:
    paper = ("", "", "")
    if row.bleu is not None:
        paper = (
            f"{row.bleu:.1f}",
            "" if row.group == BASE else f"{row.bleu - PAPER_BLEU:+.1f}",
            f"{row.perplexity:.2f}",
        )
    flops = sum(one["flops"] for one in found) / len(found)
    clear = "yes" if row.group != BASE and is_clear(found, base) else ""
    scores = [cell for name in SETS for cell in (spread_of(found, name), effect_cell(row, found, base, name))]
    return (row.group, row.name, f"{found[0]['parameters_m']:.1f}", *scores, clear, f"{flops:.1e}", *paper)


def spread_of(found: list[Figures], name: str) -> str:
    return mean_and_spread([one[name] for one in found])


def effect_cell(row: Row, found: list[Figures], base: list[Figures], name: str) -> str:
    return "" if row.group == BASE else effect_of(found, base, name)


def effect_of(found: list[Figures], base: list[Figures], name: str) -> str:
    """The mean difference to the base model, and the extremes over all pairs of a seed of this row and a seed of the base."""
    differences = differences_of(found, base, name)
    if not differences:
        return ""
    spread = f" ({min(differences):+.2f} to {max(differences):+.2f})" if len(differences) > 1 else ""
    return f"{mean(differences):+.2f}{spread}"


def differences_of(found: list[Figures], base: list[Figures], name: str) -> list[float]:
    return [one[name] - other[name] for one in found for other in base]


def is_clear(found: list[Figures], base: list[Figures]) -> bool:
    """Whether both sets show the same direction in all seeds, and an effect that exceeds the spread of the seeds."""
    by_set = [differences_of(found, base, name) for name in SETS]
    everything = [difference for differences in by_set for difference in differences]
    if min(len(found), len(base)) < 2 or min(everything) <= 0 <= max(everything):
        return False
    return all(
        abs(mean(differences)) > max(width_of(found, name), width_of(base, name))
        for differences, name in zip(by_set, SETS, strict=True)
    )


def width_of(found: list[Figures], name: str) -> float:
    """The difference between the best and the worst seed."""
    scores = [one[name] for one in found]
    return max(scores) - min(scores)


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
