"""Table 1 as measured: layers against plain ones, operations against torch's counter, exponents, and path lengths."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from transduce.paper.complexity import (
    Stopwatch,
    counted_operations,
    ends,
    exponent,
    measure_constant,
    measure_grid,
    measure_path,
)
from transduce.paper.layers import KINDS, Kind, RestrictedSelfAttention

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
try:
    from pages import complexity
    from pages.parts import DOCS
finally:
    sys.path.pop(0)


@pytest.mark.parametrize("length", [5, 16, 21])
def test_blocks_of_neighbours_are_attention_under_a_mask(length: int) -> None:
    layer, x = RestrictedSelfAttention(16, neighbours=4), torch.randn(2, length, 16)
    position = torch.arange(length)
    keep = (position[:, None] - position).abs() <= 4
    queries, keys, values = (layer.split(part) for part in layer.stacked(x).chunk(3, dim=-1))
    masked = scaled_dot_product_attention(queries, keys, values, attn_mask=keep)
    torch.testing.assert_close(layer(x), layer.output(masked.transpose(1, 2).flatten(2)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("n", "d"), [(16, 64), (100, 128), (1024, 32)])
def test_operations_are_what_torch_counts(kind: Kind, n: int, d: int) -> None:
    assert kind.operations(n, d) == counted_operations(kind, n, d)


@pytest.mark.parametrize(
    ("layer", "layers", "steps"),
    [
        ("self-attention", 1, 1),
        ("recurrent", 1, 33),
        ("convolutional", 32, 32),
        ("convolutional, dilated", 6, 6),
        ("restricted, r = 8", 4, 4),
    ],
)
def test_path_lengths_are_the_papers(layer: str, layers: int, steps: int) -> None:
    """33 positions are 32 apart: 32 / 1, log2(32 + 1) rounded up, and 32 / 8 layers."""
    path = measure_path(layer, 33)
    assert (path.layers, path.steps) == (layers, steps)


def test_the_exponent_of_a_power_is_its_power() -> None:
    assert exponent([(n, 3e-6 * n**2) for n in (16, 32, 64)]) == pytest.approx(2)
    assert ends([(n, 1e-3 if n < 100 else 1e-5 * n) for n in (1, 10, 100, 1000)], 2) == pytest.approx((0, 1))


def test_every_layer_is_timed_at_every_size() -> None:
    seen = []
    watch = Stopwatch("cpu", seconds=0.0)
    grid = measure_grid(watch, [4, 8], [16], batch=2, done=seen.append)
    constant = measure_constant(watch, [4, 8], 16, positions=8, done=seen.append)
    assert [(t.layer, t.n) for t in grid] == [(kind.name, n) for kind in KINDS for n in (4, 8)]
    assert {t.n * t.batch for t in constant} == {8}
    assert seen == grid + constant
    assert all(t.seconds > 0 for t in seen)


def test_the_page_is_generated() -> None:
    names = {name: complexity.RESULTS / f"complexity-{name}.json" for name in ("cpu", "gpu")}
    found = {name: json.loads(path.read_text()) for name, path in names.items() if path.exists()}
    written = (DOCS / "complexity.md").read_text(encoding="utf-8")
    message = "docs/complexity.md is out of date; run: python benchmarks/complexity.py --page"
    assert written == complexity.replaced(written, found), message
