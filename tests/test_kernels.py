"""Each kernel against the plain PyTorch it stands in for: results and gradients, fresh random inputs every time.

Without a GPU they run in Triton's interpreter (conftest.py asks for it); without Triton there is nothing to test.
"""

from collections.abc import Callable

import copy

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, relu, scaled_dot_product_attention

pytest.importorskip("triton", reason="triton is not installed: plain PyTorch runs instead")

from transduce.config import ModelConfig
from transduce.data.batches import Batch
from transduce.model import Tokens, Transformer, kernels
from transduce.model.kernels import attention, cross_entropy, feed_forward, randomness, residual
from transduce.training.loss import batch_loss

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
PRECISIONS = [torch.float32, torch.bfloat16] if GPU else [torch.float32]  # the interpreter knows no bfloat16 products
NEAR = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.seed()


def random(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape, device=DEVICE) * scale).to(dtype).requires_grad_()


def assert_same(fast: Callable[..., Tensor], plain: Callable[..., Tensor], inputs: list[Tensor]) -> None:
    """Equal results and gradients; the plain one computes in double precision."""
    precise = [tensor.detach().double().requires_grad_() for tensor in inputs]
    ours, expected = fast(*inputs), plain(*precise)
    weights = torch.randn(expected.shape, device=DEVICE, dtype=torch.float64)
    gradients = torch.autograd.grad(ours, inputs, weights.to(ours.dtype))
    wanted = torch.autograd.grad(expected, precise, weights)
    for name, got, want in zip(
        ["result", *map(str, range(len(inputs)))], [ours, *gradients], [expected, *wanted], strict=True
    ):
        away = (got.double() - want).norm() / want.norm().clamp_min(0.01)
        assert away < NEAR[inputs[0].dtype], f"{name}: {away:.2e}"


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("shape", [(1, 1, 32), (3, 37, 96), (5, 128, 512)])
def test_residual(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    width = shape[-1]
    x, z, bias = random(*shape, dtype=dtype), random(*shape, dtype=dtype), random(width, dtype=dtype)
    gain, shift = random(width, dtype=dtype), random(width, dtype=dtype)
    assert_same(
        lambda x, z, bias, gain, shift: residual.add_and_norm(x, z, bias, gain, shift, 0.0, 1e-5),
        lambda x, z, bias, gain, shift: layer_norm(x + z + bias, (width,), gain, shift, 1e-5),
        [x, z, bias, gain, shift],
    )
    assert_same(lambda x, z, bias: residual.add(x, z, bias, 0.0), lambda x, z, bias: x + z + bias, [x, z, bias])


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_its_share_and_repeats_it_backwards(rate: float) -> None:
    x = torch.zeros(64, 512, device=DEVICE, requires_grad=True)
    z = torch.ones(64, 512, device=DEVICE, requires_grad=True)
    bias = torch.zeros(512, device=DEVICE, requires_grad=True)
    out = residual.add(x, z, bias, rate)
    of_x, of_z, of_bias = torch.autograd.grad(out.sum(), [x, z, bias])
    assert float((out == 0).float().mean()) == pytest.approx(rate, abs=0.01)
    assert out.max().item() == pytest.approx(1 / (1 - rate), rel=1e-5)
    assert torch.equal(of_z, out.detach()), "what was dropped forwards is dropped backwards"
    assert torch.equal(of_x, torch.ones_like(x))
    assert torch.allclose(of_bias, out.detach().sum(0))
    again = residual.add(x, z, bias, rate)
    assert not torch.equal(out, again), "another call drops others"
    share = float(((out == 0) & (again == 0)).float().mean())
    assert share == pytest.approx(rate * rate, abs=0.02), "and independently of the first"


def test_dropout_follows_torchs_seed() -> None:
    x = torch.ones(8, 64, device=DEVICE)
    outputs = []
    for _ in range(2):
        torch.manual_seed(5)
        outputs.append(residual.add(x, x, torch.zeros(64, device=DEVICE), 0.3))
    assert torch.equal(*outputs)
    assert randomness.threshold(0.0) == 0


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("places", [1, 50, 300])
def test_feed_forward(places: int, dtype: torch.dtype) -> None:
    x = random(1, places, 64, dtype=dtype)
    weight, bias = random(160, 64, dtype=dtype, scale=0.2), random(160, dtype=dtype, scale=0.2)
    assert_same(feed_forward.relu_product, lambda x, weight, bias: relu(x @ weight.T + bias), [x, weight, bias])


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize(("ids", "smoothing"), [(9, 0.0), (48, 0.1), (1000, 0.2)])
def test_cross_entropy(ids: int, smoothing: float, dtype: torch.dtype) -> None:
    hidden, table = random(7, 32, dtype=dtype), random(ids, 32, dtype=dtype, scale=0.3)
    labels = torch.randint(ids - 1, (7,), device=DEVICE)
    labels[[1, 4]] = -100

    def plain(hidden: Tensor, table: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(
            hidden @ table[:-1].T, labels, label_smoothing=smoothing, reduction="sum"
        )

    def fast(hidden: Tensor, table: Tensor) -> Tensor:
        return cross_entropy.projected_cross_entropy(hidden, table, labels, smoothing)

    assert_same(fast, plain, [hidden, table])


def page_segments(rows: int, width: int) -> Tensor:
    """Sentences of random lengths side by side, and some padding at the end of most rows."""
    segment = torch.zeros(rows, width, dtype=torch.int32)
    for row in segment:
        ends = torch.randint(1, width + 1, (int(torch.randint(1, 5, ())),)).sort().values.tolist()
        for number, (begin, end) in enumerate(zip([0, *ends], ends, strict=False), 1):
            row[begin:end] = number
    return segment.to(DEVICE)


def attention_in_double(queries: Tensor, keys: Tensor, values: Tensor, keep: Tensor, heads: int) -> Tensor:
    split = [x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (queries, keys, values)]
    return scaled_dot_product_attention(*split, attn_mask=keep[:, None]).transpose(1, 2).flatten(-2)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("rows", "width", "heads", "head"), [(1, 1, 1, 16), (2, 23, 3, 16), (3, 128, 2, 64)])
def test_self_attention(rows: int, width: int, heads: int, head: int, causal: bool, dtype: torch.dtype) -> None:
    segment = page_segments(rows, width)
    product, bias = random(rows, width, 3 * heads * head, dtype=dtype), random(3 * heads * head, dtype=dtype)
    keep = (segment[:, :, None] == segment[:, None, :]) | (segment == 0)[:, :, None]
    keep = keep & torch.ones(width, width, dtype=torch.bool, device=DEVICE).tril() if causal else keep

    def plain(product: Tensor, bias: Tensor) -> Tensor:
        return attention_in_double(*(product + bias).chunk(3, -1), keep, heads)

    assert_same(lambda p, b: attention.attend_to_self(p, b, segment, heads, causal), plain, [product, bias])


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize(("asking", "asked"), [(1, 1), (31, 50), (128, 100)])
def test_memory_attention(asking: int, asked: int, dtype: torch.dtype) -> None:
    heads, head = 2, 32
    target, source = page_segments(3, asking), page_segments(3, asked)
    source = torch.where(source > 1, 1, source)
    target = torch.where((target > 1) | (asking == 1), 1, target)
    queries, query_bias = random(3, asking, heads * head, dtype=dtype), random(heads * head, dtype=dtype)
    product, bias = random(3, asked, 2 * heads * head, dtype=dtype), random(2 * heads * head, dtype=dtype)
    keep = (target[:, :, None] == source[:, None, :]) | (target == 0)[:, :, None]

    def plain(queries: Tensor, query_bias: Tensor, product: Tensor, bias: Tensor) -> Tensor:
        return attention_in_double(queries + query_bias, *(product + bias).chunk(2, -1), keep, heads)

    assert_same(
        lambda q, qb, p, b: attention.attend_to_memory(q, qb, p, b, target, source, heads),
        plain,
        [queries, query_bias, product, bias],
    )


# --- the whole model -------------------------------------------------------------------------------------------

PAD = 40


def random_pairs(lengths: list[tuple[int, int]]) -> list[tuple[list[int], list[int]]]:
    draw = np.random.default_rng()
    return [(draw.integers(2, PAD, s).tolist(), draw.integers(2, PAD, t).tolist()) for s, t in lengths]


def batch_of(rows: list[list[tuple[list[int], list[int]]]]) -> Batch:
    sources = Tokens.packed([[source for source, _ in row] for row in rows], PAD)
    inputs = Tokens.packed([[[PAD, *target[:-1]] for _, target in row] for row in rows], PAD)
    labels = Tokens.packed([[target for _, target in row] for row in rows], Batch.IGNORED)
    return Batch(sources, inputs, labels.ids).to(DEVICE)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(
    "rows",
    [
        [[(1, 1)]],  # a batch of one, of length one
        [[(5, 9), (1, 1), (20, 7)], [(40, 3)], [(1, 30), (2, 2)]],
        [[(128, 128)], [(60, 100), (50, 20), (18, 1)]],  # the longest a page holds
    ],
)
def test_pages_with_kernels_are_padded_rows_without(
    rows: list[list[tuple[int, int]]], norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss and every gradient: sentences side by side through the kernels, and each in a row of its own without."""
    config = ModelConfig(
        d_model=32, d_ff=64, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, norm=norm, dropout=0
    )  # type: ignore[arg-type]
    model = Transformer(config, PAD + 1, PAD + 1).to(DEVICE)
    pairs = [random_pairs(row) for row in rows]
    expected = gradients(model.double(), batch_of([[pair] for row in pairs for pair in row]))
    served = copy.deepcopy(model).to(torch.bfloat16 if GPU else torch.float32)
    monkeypatch.setattr(kernels, "serve", lambda x: True)
    found = gradients(served, batch_of(pairs))
    assert found.keys() == expected.keys()
    near = 4e-2 if GPU else 1e-4
    largest = max(float(want.norm()) for want in expected.values())
    for name, want in expected.items():
        assert float((found[name].double() - want).norm()) <= near * (float(want.norm()) + 0.02 * largest), name


def gradients(model: Transformer, batch: Batch) -> dict[str, Tensor]:
    model.zero_grad()
    loss = batch_loss(model, batch, smoothing=0.1)
    loss.backward()
    return {"loss": loss.detach()} | {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
