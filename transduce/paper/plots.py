"""Plots as SVG text, with the colours of the explorer's page. Knows series of points and nothing of what they mean."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

INK, PAPER = "#1c2227", "#fbfaf7"
COLOURS = ["#1f5fa8", "#c2500a", "#3f7f5f", "#7a4fa3", "#8a6d1f", "#3a8a94", "#a33f5f", "#5a646e", "#90603a", INK]
MARKERS = "osD^vPX<>h"
IN_PAGE = {
    INK: "currentColor",
    COLOURS[0]: "var(--series-0)",
    COLOURS[1]: "var(--series-1)",
    COLOURS[2]: "var(--series-2)",
}


@dataclass(frozen=True)
class Plot:
    """One panel: series of points by name."""

    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    log_x: bool = False
    log_y: bool = False
    lines: bool = True  # whether points are connected
    names_at_points: bool = False  # names beside single points instead of a legend


def draw(plots: Sequence[Plot], columns: int = 2) -> str:
    """The plots side by side, as one SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = -(-len(plots) // columns)
    style = {"svg.fonttype": "none", "svg.hashsalt": "transduce", "font.family": "sans-serif", "font.size": 9}
    colours = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    with matplotlib.rc_context(style | colours):
        figure = Figure(figsize=(5.2 * min(columns, len(plots)), 3.6 * rows), layout="constrained")
        panels = figure.subplots(rows, min(columns, len(plots)), squeeze=False).flat
        for panel, plot in zip(panels, plots, strict=False):
            _draw(panel, plot)
        for panel in list(panels)[len(plots) :]:
            panel.axis("off")
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return out.getvalue()


def for_page(svg: str) -> str:
    """The drawing alone, with the colours of the page around it, so that it follows light and dark."""
    drawing = svg[svg.index("<svg") :]
    for colour, variable in IN_PAGE.items():
        drawing = drawing.replace(colour, variable)
    return drawing


def for_document(svg: str) -> str:
    """With a light background of its own, for pages of either colour."""
    head, mark, rest = svg.partition("<defs>")
    return f'{head}<rect width="100%" height="100%" fill="{PAPER}"/>\n {mark}{rest}'


def _draw(panel: Any, plot: Plot) -> None:
    for number, (name, points) in enumerate(plot.series.items()):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        xs, ys = [x for x, _ in points], [y for _, y in points]
        panel.plot(
            xs, ys, f"{marker}{'-' if plot.lines else ''}", color=colour, label=name, markersize=4, linewidth=1.4
        )
        if plot.names_at_points and points:
            panel.annotate(name, points[-1], xytext=(5, 4), textcoords="offset points", color=colour)
    panel.set(title=plot.title, xlabel=plot.x, ylabel=plot.y)
    if plot.names_at_points:
        panel.margins(0.15)  # room for the names
    if plot.log_x:
        panel.set_xscale("log", base=2 if plot.x.startswith(("n", "d")) else 10)
        _label_short_axis(panel.xaxis, [x for points in plot.series.values() for x, _ in points])
    if plot.log_y:
        panel.set_yscale("log")
    panel.minorticks_off()
    panel.grid(alpha=0.25)
    if plot.series and not plot.names_at_points:
        panel.legend(frameon=False, fontsize=8)


def _label_short_axis(axis: Any, values: Sequence[float]) -> None:
    """Labels within a power of ten, where the powers alone would be one or two."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    if values and max(values) / min(values) < 100 and min(values) > 1_000:
        axis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}".replace("e+", "e")))
