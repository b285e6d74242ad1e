"""A picture of attention: every head of every layer, in the paper's three uses, for one sentence pair or recording.

Sees tokens and weights; the translator provides both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.errors import SettingError
from transduce.files import check_place
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
Axis = tuple[range, list[str]]  # where names are written along a side of a panel, and which


def check_picture_path(path: str | Path, formats: Sequence[str] = PICTURES) -> Path:
    """Refuse a format that cannot be drawn, or a folder that does not exist, before anything is computed."""
    path = Path(path)
    if path.suffix.lower() not in formats:
        raise SettingError(f"{path}: a picture's name must end in {', '.join(formats[:-1])} or {formats[-1]}")
    check_place(path)
    return path


def draw_attention(attention: Attention, path: str | Path) -> None:
    """Rows are layers, columns are heads; in each panel, rows are queries and columns are keys."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    path = check_picture_path(path)
    _check_size(attention)
    parts = _parts(attention)
    layers = [len(part.maps) for part in parts]
    across = IN_TIME if attention.in_time else PER_TOKEN * len(attention.source)
    side = max(across, PER_TOKEN * len(attention.target), PANEL)
    heads = parts[0].maps[0].shape[1]
    figure = Figure(figsize=(side * heads + 1.5, side * sum(layers) + 1.2 * len(parts)), dpi=110, layout="constrained")
    figures = figure.subfigures(len(parts), 1, height_ratios=layers, squeeze=False)[:, 0]
    for one, part in zip(figures, parts, strict=True):
        one.suptitle(part.title, fontsize=12, fontweight="bold")
        _draw_part(one, [layer[0].float().cpu().numpy() for layer in part.maps], part.queries, part.keys)
    figure.savefig(path)


@dataclass(frozen=True)
class _Part:
    """One of the paper's three uses of attention: its weights in each layer, and what is written along both sides."""

    title: str
    maps: "Sequence[Tensor]"
    queries: Axis
    keys: Axis


def _parts(attention: Attention) -> list[_Part]:
    """The uses that the model has: a recurrent model attends to the source only."""
    source = _axis(attention.source, TIMES) if attention.in_time else _axis(attention.source)
    written, before = _axis(attention.written), _axis([START, *attention.target[1:]])
    encoder = f"Encoder self-attention{' (seconds)' * attention.in_time}"
    decoder = "Decoder self-attention: each output token attends to those before it"
    cross = f"Cross-attention: each output token attends to the {_of_source(attention)}"
    parts = [
        _Part(encoder, attention.maps.encoder, source, source),
        _Part(decoder, attention.maps.decoder, written, before),
        _Part(cross, attention.maps.cross, written, source),
    ]
    return [part for part in parts if part.maps]


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


def _axis(names: list[str], at_most: int = MOST_TOKENS) -> Axis:
    every = max(1, -(-len(names) // at_most))
    return range(0, len(names), every), names[::every]


def _draw_part(figure: Any, layers: list[Any], queries: Axis, keys: Axis) -> None:
    panels = figure.subplots(len(layers), layers[0].shape[0], squeeze=False)
    for number, (row, heads) in enumerate(zip(panels, layers, strict=True), start=1):
        for head, (panel, weights) in enumerate(zip(row, heads, strict=True), start=1):
            panel.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
            panel.set_xticks(keys[0], keys[1] if number == len(layers) else [], rotation=90, fontsize=7)
            panel.set_yticks(queries[0], queries[1] if head == 1 else [], fontsize=7)
            panel.tick_params(length=0)
            if number == 1:
                panel.set_title(f"head {head}", fontsize=8)
        row[0].set_ylabel(f"layer {number}", fontsize=8)
