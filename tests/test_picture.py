"""Pictures of attention: every title and every token is inside the picture, however short or long the texts are."""

import pytest
import torch
from matplotlib.text import Text

from transduce.model.taps import AttentionMaps
from transduce.translator.outputs import Attention
from transduce.translator.picture import START, attention_figure


def seen(source: list[str], output: list[str], heads: int, layers: int, in_time: bool = False) -> Attention:
    s, t = len(source), len(output) + 1
    shapes = {"encoder": (s, s), "decoder": (t, t), "cross": (t, s)}
    maps = {name: [torch.rand(1, heads, *shape)] * layers for name, shape in shapes.items() if min(shape)}
    return Attention(source, ["<pad>", *output], AttentionMaps(**maps), in_time=in_time)


def cut_off(attention: Attention) -> list[str]:
    """The texts that are not wholly inside the picture."""
    figure = attention_figure(attention)
    figure.draw_without_rendering()
    inside = figure.bbox.padded(1)  # pixels
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    assert START in {text.get_text() for text in texts}
    boxes = ((text.get_text(), text.get_window_extent()) for text in texts)
    return [text for text, box in boxes if not all(inside.contains(*corner) for corner in box.corners())]


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("output", [[], ["a", "b"], [f"▁{n}" for n in range(30)]])
def test_nothing_is_cut_off(output: list[str], heads: int) -> None:
    assert cut_off(seen(["▁one", "</s>"], output, heads, layers=1)) == []


def test_many_heads_and_layers_are_not_cut_off() -> None:
    assert cut_off(seen(["▁one", "</s>"], ["a"], heads=4, layers=2)) == []


@pytest.mark.parametrize("length", [20, 60])
def test_long_tokens_are_not_cut_off(length: int) -> None:
    assert cut_off(seen(["x" * length, "</s>"], ["y" * length], heads=1, layers=1)) == []


def test_recordings_and_texts_alone_are_not_cut_off() -> None:
    times = [f"{n / 25:.2f}" for n in range(40)]
    assert cut_off(seen(times, ["a"], heads=1, layers=1, in_time=True)) == []
    assert cut_off(seen([], ["a"], heads=1, layers=2)) == []
