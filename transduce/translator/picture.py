"""A picture of attention: every head of every layer, in the paper's three uses, for one sentence pair or recording.

Sees tokens and weights; the translator provides both.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.errors import SettingError
from transduce.files import check_place, write_result
from transduce.translator.outputs import Attention

if TYPE_CHECKING:
    from torch import Tensor

PICTURES = (".png", ".pdf", ".svg")
PAGE = ".html"  # one file to look around in, made by `standalone`
MOST_TOKENS = 150
PANEL = 1.5  # inches a side of one head's small picture, at least
START = "‹start›"  # what the decoder is given before its first token
PER_TOKEN = 0.13  # inches a token needs to be legible
IN_TIME = 2.6  # inches a side, where the source is a recording
MOST_POSITIONS = 1_500  # of a recording: a minute
TIMES = 6  # that are written below a recording
PER_LETTER = 0.1  # inches that a letter of a title takes, about
PER_SMALL_LETTER = 0.07  # and of a token


def check_picture_path(path: str | Path, formats: Sequence[str] = PICTURES) -> Path:
    """Refuse a format that cannot be drawn, or a folder that does not exist, before anything is computed."""
    path = Path(path)
    if path.suffix.lower() not in formats:
        raise SettingError(f"{path}: a picture's name must end in {', '.join(formats[:-1])} or {formats[-1]}")
    check_place(path)
    return path


def draw_attention(attention: Attention, path: str | Path) -> None:
    """Draw the weights of all heads to a file."""
    path = check_picture_path(path)
    _check_size(attention)
    drawn = BytesIO()
    attention_figure(attention).savefig(drawn, format=path.suffix[1:].lower())
    write_result(path, drawn.getvalue())


def attention_figure(attention: Attention) -> Any:
    """Rows are layers, columns are heads; in each panel, rows are queries and columns are keys."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    parts = _parts(attention)
    layers, heads = [len(part.maps) for part in parts], parts[0].maps[0].shape[1]
    across = IN_TIME if attention.in_time else PER_TOKEN * len(attention.source)
    side = max(across, PER_TOKEN * len(attention.target), PANEL)
    width = side * heads + max(1.5, 0.9 + max(part.queries.inches for part in parts))
    titles = [textwrap.wrap(part.title, max(20, int(width / PER_LETTER))) for part in parts]
    above = [0.2 * len(lines) + max(1.0, 0.6 + part.keys.inches) for lines, part in zip(titles, parts, strict=True)]
    heights = [side * count + inches for count, inches in zip(layers, above, strict=True)]
    figure = Figure(figsize=(width, sum(heights)), dpi=110, layout="constrained")
    figures = figure.subfigures(len(parts), 1, height_ratios=heights, squeeze=False)[:, 0]
    for place, part, lines in zip(figures, parts, titles, strict=True):
        place.suptitle("\n".join(lines), fontsize=12, fontweight="bold")
        _draw_part(place, [layer[0].float().cpu().numpy() for layer in part.maps], part.queries, part.keys)
    return figure


@dataclass(frozen=True)
class _Axis:
    """The names along a side of a panel."""

    at: range  # where they are written
    names: list[str]

    @staticmethod
    def of(names: list[str], at_most: int = MOST_TOKENS) -> "_Axis":
        every = max(1, -(-len(names) // at_most))
        return _Axis(range(0, len(names), every), names[::every])

    @property
    def inches(self) -> float:
        """The length of the longest name."""
        return PER_SMALL_LETTER * max(map(len, self.names))


@dataclass(frozen=True)
class _Part:
    """One of the three uses of attention: the weights of its layers, and the names of queries and keys."""

    title: str
    maps: list["Tensor"]
    queries: _Axis
    keys: _Axis


def _parts(attention: Attention) -> list[_Part]:
    maps, seconds = attention.maps, " (seconds)" * attention.in_time
    source = _Axis.of(attention.source, TIMES if attention.in_time else MOST_TOKENS) if attention.source else None
    written, before = _Axis.of(attention.written), _Axis.of([START, *attention.target[1:]])
    decoder = "Decoder self-attention: each output token attends to those before it"
    cross = f"Cross-attention: each output token attends to the {_of_source(attention)}"
    parts = [_Part(decoder, maps.decoder, written, before)]
    if source:
        encoder = _Part(f"Encoder self-attention{seconds}", maps.encoder, source, source)
        parts = [encoder, *parts, _Part(cross, maps.cross, written, source)]
    return [part for part in parts if part.maps]  # a recurrent model attends to the source only


def _check_size(attention: Attention) -> None:
    source, target = len(attention.source), len(attention.target)
    if attention.in_time and source > MOST_POSITIONS:
        raise SettingError(
            f"a recording of {float(attention.source[-1]):.0f} s: a picture has room for at most a minute"
        )
    if max(0 if attention.in_time else source, target) > MOST_TOKENS:
        raise SettingError(f"{source} and {target} tokens: a picture has room for at most {MOST_TOKENS} on each side")


def _of_source(attention: Attention) -> str:
    return "recording (seconds)" if attention.in_time else "source"


def _draw_part(figure: Any, layers: list[Any], queries: _Axis, keys: _Axis) -> None:
    panels = figure.subplots(len(layers), layers[0].shape[0], squeeze=False)
    for number, (row, heads) in enumerate(zip(panels, layers, strict=True), start=1):
        for head, (panel, weights) in enumerate(zip(row, heads, strict=True), start=1):
            panel.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
            panel.set_xticks(keys.at, keys.names if number == len(layers) else [], rotation=90, fontsize=7)
            panel.set_yticks(queries.at, queries.names if head == 1 else [], fontsize=7)
            panel.tick_params(length=0)
            if number == 1:
                panel.set_title(f"head {head}", fontsize=8)
        row[0].set_ylabel(f"layer {number}", fontsize=8)
