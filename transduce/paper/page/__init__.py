"""The page of `transduce paper`: one HTML file that needs no server, in the style of the explorer."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path as FilePath

from transduce.explore.page import document, read_files
from transduce.files import write_result
from transduce.paper.complexity import Path, Points, Timing, ends, exponent
from transduce.paper.dot_products import DotProducts
from transduce.paper.layers import KINDS
from transduce.paper.plots import Plot, draw, for_page
from transduce.paper.results import Figures, Results
from transduce.paper.rivals import PUBLISHED, SYSTEMS
from transduce.paper.variations import BASE, PAPER_BLEU, Row

TEMPLATE = "paper.html"


@dataclass(frozen=True)
class PageData:
    """Everything that the page shows."""

    results: Results
    timings: list[Timing]
    constant: list[Timing]
    paths: list[Path]
    products: list[DotProducts]
    rows: list[Row]
    minutes: float
    warning: str = ""


def write_page(data: PageData, path: FilePath) -> None:
    text = document(TEMPLATE, read_files(FilePath(__file__).parent))
    about = f"Small versions of the paper's three tables, measured on this machine in {data.minutes:.1f} minutes by transduce paper."
    content = "\n".join(
        [
            *([f'<p class="warning">{escape(data.warning)}</p>'] if data.warning else []),
            layers_section(data),
            rivals_section(data),
            length_section(data),
            variations_section(data),
            factor_section(data),
        ]
    )
    write_result(path, text.replace("{{about}}", about).replace("{{content}}", content))


# --- Table 1 ------------------------------------------------------------------------------------------------------


def layers_section(data: PageData) -> str:
    widest = max(timing.d for timing in data.timings)
    rows = [
        (
            *(kind.name, *(f"O({order})" for order in kind.paper)),
            _ends(in_n(data.timings, kind.name, widest)),
            _ends(in_d(data.timings, kind.name)),
            _path(data.paths, kind.name),
        )
        for kind in KINDS
    ]
    header = (
        *("layer", "paper: complexity", "sequential", "path", f"time grows with n to the power, d = {widest}"),
        *("with d to the power", "layers from the first to the last of 16, 64 positions"),
    )
    said = (
        "An exponent of 2 means that twice the length takes four times as long; each entry goes from small to large sizes. Below a few hundred positions, the projections of a "
        "self-attention layer take more time than attention itself, so its exponent stays below 2. On one core, a recurrent layer takes as long for many short rows as for few "
        "long ones: sequential steps cost time only on hardware with thousands of parallel units."
    )
    plots = [
        Plot(f"time over length, d = {widest}", "n", "CPU seconds", {k.name: in_n(data.timings, k.name, widest) for k in KINDS}, True, True),
        Plot("the same number of positions in rows of n", "n", "CPU seconds", {k.name: in_n(data.constant, k.name, widest) for k in KINDS}, True, True),
    ]  # fmt: skip
    return section("Table 1: what a layer costs", said, table(header, rows), plots)


def in_n(timings: Sequence[Timing], layer: str, d: int) -> Points:
    return [(timing.n, timing.seconds) for timing in timings if timing.layer == layer and timing.d == d]


def in_d(timings: Sequence[Timing], layer: str) -> Points:
    lengths = sorted({timing.n for timing in timings})
    middle = lengths[len(lengths) // 2]
    return [(timing.d, timing.seconds) for timing in timings if timing.layer == layer and timing.n == middle]


def _ends(points: Points) -> str:
    if len(points) < 6:
        return f"{exponent(points):.1f}"
    small, large = ends(points, 3)
    return f"{small:.1f} → {large:.1f}"


def _path(paths: Sequence[Path], layer: str) -> str:
    """The paths of a layer and of its variants, such as dilated convolutions."""
    found: dict[str, list[str]] = {}
    for path in paths:
        if path.layer.startswith(layer):
            found.setdefault(path.layer.removeprefix(layer).strip(", "), []).append(str(path.layers))
    listed = [f"{', '.join(layers)}{f' ({variant})' if variant else ''}" for variant, layers in found.items()]
    return "; ".join(listed) + (", through every position" if layer == "recurrent" else "")


# --- Table 2 ------------------------------------------------------------------------------------------------------


def rivals_section(data: PageData) -> str:
    cells = {one["system"]: one for one in data.results.find(task="rivals")}
    paper = {published.system: published for published in PUBLISHED}
    rows = []
    for system in SYSTEMS:
        if system.name in cells:
            one, there = cells[system.name], paper.get(system.name)
            published = f"{there.en_de:g}" if there and there.en_de else ""
            rows.append((system.name, system.about, *_figures(one), published))
    header = (
        "system",
        "architecture",
        "words right, %",
        "FLOPs",
        "M parameters",
        "training tokens/s",
        "words/s",
        "paper: En-De BLEU",
    )
    budget = next(iter(cells.values()))["budget_s"] if cells else 0.0
    said = f"Each system was trained for {budget:.0f} s to pronounce English words, at the same width. The score is the share of unseen words with every phoneme correct."
    costs = {name: [(one["flops"], one["score"])] for name, one in cells.items()}
    curves = {name: [(x, y) for x, y in one["curve"]] for name, one in cells.items()}
    plots = [
        Plot("words right over training FLOPs", "FLOPs", "%", costs, log_x=True, lines=False, names_at_points=True),
        Plot("training loss over time", "seconds", "cross-entropy", curves),
    ]
    return section("Table 2: the Transformer and other architectures", said, table(header, rows), plots)


def _figures(one: Figures) -> tuple[str, ...]:
    return (
        f"{one['score']:.1f}",
        f"{one['flops']:.1e}",
        f"{one['parameters_m']:.1f}",
        f"{one['train_tokens_per_s']:,}",
        f"{one['greedy_sentences_per_s']:,.0f}",
    )


def length_section(data: PageData) -> str:
    cells = {one["system"]: one["by_length"] for one in data.results.find(task="reversal")}
    groups = [(group["from"], group["below"]) for group in next(iter(cells.values()), [])]
    rows = [(name, *(f"{group['score']:.0f}" for group in found)) for name, found in cells.items()]
    header = ("system", *(f"{low} to {below - 1} letters" for low, below in groups))
    said = (
        "The task is to write a random sequence of letters backwards; the table has the share of letters that are correct at their position, in percent, by length. A "
        "network that represents a sequence by a single vector fails on long ones; attention can look up each letter."
    )
    series = {name: [(group["from"], group["score"]) for group in found] for name, found in cells.items()}
    return section(
        "Long sequences", said, table(header, rows), [Plot("letters right by length", "letters, at least", "%", series)]
    )


# --- Table 3 ------------------------------------------------------------------------------------------------------


def variations_section(data: PageData) -> str:
    cells = {one["system"]: one for one in data.results.find(task="variations")}
    base = cells.get(f"{BASE}: {BASE}")
    rows = []
    for row in data.rows:
        if row.key in cells and base:
            one = cells[row.key]
            paper = f"{row.bleu - PAPER_BLEU:+.1f}" if row.bleu is not None and row.group != BASE else ""
            effect = f"{one['score'] - base['score']:+.1f}" if row.group != BASE else ""
            rows.append(
                (
                    row.group,
                    row.name,
                    f"{one['score']:.1f}",
                    effect,
                    f"{one['parameters_m']:.1f}",
                    f"{one['steps']:,}",
                    paper,
                )
            )
    header = ("", "row", "words right, %", "effect", "M parameters", "steps", "paper: effect on BLEU")
    budget = base["budget_s"] if base else 0.0
    said = (
        f"Each row changes one thing in the Transformer and trains for {budget:.0f} s, one seed. Small effects may be chance. The rows “why” revert a choice "
        "that the paper justifies in words."
    )
    return section("Table 3: what each part contributes", said, table(header, rows), [])


def factor_section(data: PageData) -> str:
    said = (
        "Why dot products are divided by sqrt(d_k): for random queries and keys the variance of q · k is d_k. Without the factor, softmax gives one key nearly all the "
        "weight as d_k grows, and the gradient of most queries nearly vanishes. With it, neither depends on d_k."
    )
    plots = [
        _factor_plot(data, "variance of the logits", lambda one: one.variance, log_y=True),
        _factor_plot(data, "gradient of softmax (median norm)", lambda one: one.gradient),
        _factor_plot(data, "largest attention weight", lambda one: one.largest),
    ]
    return section("The factor 1/sqrt(d_k)", said, "", plots)


def _factor_plot(data: PageData, title: str, value: Callable[[DotProducts], float], log_y: bool = False) -> Plot:
    kinds = {"q · k": False, "q · k / sqrt(d_k)": True}
    series = {
        name: [(one.d_k, value(one)) for one in data.products if one.scaled is scaled] for name, scaled in kinds.items()
    }
    return Plot(title, "d_k", "", series, log_x=True, log_y=log_y)


# --- HTML ---------------------------------------------------------------------------------------------------------


def section(title: str, said: str, content: str, plots: Sequence[Plot]) -> str:
    drawing = for_page(draw(plots, columns=3)) if plots else ""
    return f'<section class="paper">\n<h2>{escape(title)}</h2>\n<p>{escape(said)}</p>\n{content}\n{drawing}\n</section>'


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [_row("th", header), *(_row("td", row) for row in rows)]
    return '<div class="scrolling"><table>\n' + "\n".join(lines) + "\n</table></div>"


def _row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(_cells(tag, cells))}</tr>"


def _cells(tag: str, cells: Iterable[str]) -> Iterator[str]:
    return (f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
