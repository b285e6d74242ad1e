"""A picture of attention: every head of every layer, in the paper's three uses, for one sentence pair.

Sees tokens and weights; the translator provides both.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transduce.errors import SettingError
from transduce.files import check_place
from transduce.translator.outputs import Attention

PICTURES = (".png", ".pdf", ".svg")
PAGE = ".html"  # one file to look around in, made by `standalone`
MOST_TOKENS = 150
PANEL = 1.5  # inches a side of one head's small picture, at least
START = "‹start›"  # what the decoder is given before its first token
PER_TOKEN = 0.13  # inches a token needs to be legible


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
    source, target = attention.source, attention.target
    if max(len(source), len(target)) > MOST_TOKENS:
        raise SettingError(
            f"{len(source)} and {len(target)} tokens: a picture has room for at most {MOST_TOKENS} on each side"
        )
    written, before = attention.written, [START, *target[1:]]
    parts = [
        ("Encoder self-attention", attention.maps.encoder, source, source),
        (
            "Decoder self-attention: each output token attends to those before it",
            attention.maps.decoder,
            written,
            before,
        ),
        ("Cross-attention: each output token attends to the source", attention.maps.cross, written, source),
    ]
    parts = [part for part in parts if part[1]]  # a recurrent model attends to the source only
    heights = [len(maps) for _, maps, _, _ in parts]
    side = max(PANEL, PER_TOKEN * max(len(source), len(target)))
    heads = parts[0][1][0].shape[1]
    figure = Figure(figsize=(side * heads + 1.5, side * sum(heights) + 1.2 * len(parts)), dpi=110, layout="constrained")
    figures = figure.subfigures(len(parts), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, (title, maps, queries, keys) in zip(figures, parts, strict=True):
        part.suptitle(title, fontsize=12, fontweight="bold")
        _draw_part(part, [layer[0].float().cpu().numpy() for layer in maps], queries, keys)
    figure.savefig(path)


def _draw_part(figure: Any, layers: list[Any], queries: list[str], keys: list[str]) -> None:
    panels = figure.subplots(len(layers), layers[0].shape[0], squeeze=False)
    for number, (row, heads) in enumerate(zip(panels, layers, strict=True), start=1):
        for head, (panel, weights) in enumerate(zip(row, heads, strict=True), start=1):
            panel.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
            panel.set_xticks(range(len(keys)), keys if number == len(layers) else [], rotation=90, fontsize=7)
            panel.set_yticks(range(len(queries)), queries if head == 1 else [], fontsize=7)
            panel.tick_params(length=0)
            if number == 1:
                panel.set_title(f"head {head}", fontsize=8)
        row[0].set_ylabel(f"layer {number}", fontsize=8)
