"""Each kernel against the plain PyTorch it stands in for: results and gradients, fresh random inputs every time.

Without a GPU they run in Triton's interpreter (conftest.py asks for it); without Triton there is nothing to test.
"""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, relu, scaled_dot_product_attention

pytest.importorskip("triton", reason="triton is not installed: plain PyTorch runs instead")

from transduce.config import TransformerConfig
from transduce.config.models import PrefixConfig
from transduce.data.batches import Batch
from transduce.model import IGNORED, Model, Prefix, Tokens, Transformer, fused, kernels
from transduce.model.kernels import (
    OutputParameters,
    ResidualOptions,
    attention,
    causal,
    cross_entropy,
    r_drop,
    randomness,
    residual,
    sums,
)
from transduce.model.layers import EncoderLayer
from transduce.model.positions import rotate
from transduce.model.speech.ctc import NEVER, _scan_by_steps
from transduce.model.tokens import keep_whole_row
from transduce.training.loss import batch_loss

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
PRECISIONS = [torch.float32, torch.bfloat16] if GPU else [torch.float32]  # the interpreter knows no bfloat16 products
NEAR = {torch.float32: 1e-5, torch.bfloat16: 5e-3}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    print(f"torch.manual_seed({torch.seed()}) repeats this")


def random(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape, device=DEVICE) * scale).to(dtype).requires_grad_()


def assert_same(fast: Callable[..., Tensor], plain: Callable[..., Tensor], inputs: list[Tensor]) -> None:
    """Equal results and gradients, hardly further from those in double precision than the plain form's own."""
    precise = [tensor.detach().double().requires_grad_() for tensor in inputs]
    weights = torch.randn_like(plain(*precise))
    wanted = results(plain, precise, weights)
    ours, theirs = results(fast, inputs, weights), results(plain, inputs, weights)
    for number, (got, usual, want) in enumerate(zip(ours, theirs, wanted, strict=True)):
        assert away(got, want) <= 2 * away(usual, want) + NEAR[inputs[0].dtype], number


def results(function: Callable[..., Tensor], inputs: list[Tensor], weights: Tensor) -> list[Tensor]:
    out = function(*inputs)
    return [out, *torch.autograd.grad(out, inputs, weights.to(out.dtype))]


def away(found: Tensor, expected: Tensor) -> float:
    found, expected = found.detach().double(), expected.detach()
    return float((found - expected).norm() / expected.norm().clamp_min(0.01))


RESIDUALS = [
    kernels.ResidualOptions(pre=False, rate=0.0, eps=1e-5),
    kernels.ResidualOptions(pre=True, rate=0.0, eps=1e-5),
]


def parameters(width: int, inner: int, dtype: torch.dtype) -> list[Tensor]:
    """Weight and bias of the last product, gain and shift of the norm."""
    return [random(*shape, dtype=dtype, scale=0.3) for shape in [(width, inner), (width,), (width,), (width,)]]


def around(x: Tensor, sublayer: Callable[[Tensor], Tensor], last: OutputParameters, pre: bool) -> Tensor:
    """The residual connection, as the paper writes it."""
    norm = lambda y: layer_norm(y, y.shape[-1:], last.gain, last.shift, 1e-5)  # noqa: E731
    if pre:
        return x + sublayer(norm(x)) @ last.weight.T + last.bias
    return norm(x + sublayer(x) @ last.weight.T + last.bias)


@pytest.mark.numerics
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("frame", RESIDUALS)
@pytest.mark.parametrize(("rows", "width", "inner"), [(1, 64, 160), (37, 96, 256), (200, 32, 64)])
def test_feed_forward(rows: int, width: int, inner: int, frame: ResidualOptions, dtype: torch.dtype) -> None:
    x = random(2, rows, width, dtype=dtype)
    first, bias = random(inner, width, dtype=dtype, scale=0.2), random(inner, dtype=dtype, scale=0.2)

    def fast(x: Tensor, first: Tensor, bias: Tensor, *last: Tensor) -> Tensor:
        return kernels.feed_forward(x, first, bias, OutputParameters(*last), frame)

    def plain(x: Tensor, first: Tensor, bias: Tensor, *last: Tensor) -> Tensor:
        return around(x, lambda y: relu(y @ first.T + bias), OutputParameters(*last), frame.pre)

    assert_same(fast, plain, [x, first, bias, *parameters(width, inner, dtype)])


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_its_share_and_repeats_it_backwards(rate: float) -> None:
    zeros, ones = torch.zeros(64, 512, device=DEVICE), torch.ones(64, 512, device=DEVICE)
    seed = randomness.sample_seed(ones)
    out = residual.add(zeros, ones, zeros[0], rate, seed)
    of_z, of_bias = residual.add_backward(ones, zeros[0], rate, seed)
    assert float((out == 0).float().mean()) == pytest.approx(rate, abs=0.02)
    assert out.max().item() == pytest.approx(1 / (1 - rate), rel=1e-5)
    assert torch.equal(of_z, out), "what was dropped forwards is dropped backwards"
    assert torch.allclose(of_bias, out.sum(0))
    again = residual.add(zeros, ones, zeros[0], rate, randomness.sample_seed(ones))
    assert not torch.equal(out, again), "another call drops others"
    share = float(((out == 0) & (again == 0)).float().mean())
    assert share == pytest.approx(rate * rate, abs=0.02), "and independently of the first"


def test_dropout_follows_torchs_seed() -> None:
    seeds = []
    for _ in range(2):
        torch.manual_seed(5)
        seeds.append([int(randomness.sample_seed(torch.zeros(1, device=DEVICE))) for _ in range(3)])
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 3
    assert randomness.threshold(0.0) == 0


@pytest.mark.numerics
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
        return cross_entropy.projected_cross_entropy(hidden, table, labels, smoothing)[0]

    assert_same(fast, plain, [hidden, table])
    _, unsmoothed = cross_entropy.projected_cross_entropy(hidden, table, labels, smoothing)
    smoothing = 0.0
    torch.testing.assert_close(unsmoothed.double(), plain(hidden.double(), table.double()), atol=0.05, rtol=0.01)


@pytest.mark.numerics
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize(("ids", "smoothing", "weight"), [(9, 0.0, 1.0), (48, 0.1, 5.0), (1000, 0.2, 0.5)])
def test_r_drop(ids: int, smoothing: float, weight: float, dtype: torch.dtype) -> None:
    hidden, table = random(14, 32, dtype=dtype), random(ids, 32, dtype=dtype, scale=0.3)
    labels = torch.randint(ids - 1, (7,), device=DEVICE)
    labels[[1, 4]] = -100

    def plain(hidden: Tensor, table: Tensor) -> Tensor:
        one, other = (hidden @ table[:-1].T).log_softmax(-1).chunk(2)
        entropies = [
            torch.nn.functional.nll_loss(p, labels, reduction="sum") * (1 - smoothing)
            - smoothing * p[labels >= 0].mean(1).sum()
            for p in (one, other)
        ]
        apart = ((one.exp() - other.exp()) * (one - other))[labels >= 0].sum()
        return (entropies[0] + entropies[1] + weight * apart / 2) / 2

    def fast(hidden: Tensor, table: Tensor) -> Tensor:
        return r_drop.projected_r_drop(hidden, table, labels, smoothing, weight)[0]

    assert_same(fast, plain, [hidden, table])
    _, unsmoothed = r_drop.projected_r_drop(hidden, table, labels, smoothing, weight)
    smoothing, weight = 0.0, 0.0
    torch.testing.assert_close(unsmoothed.double(), plain(hidden.double(), table.double()), atol=0.05, rtol=0.01)


def page_segments(rows: int, width: int) -> Tensor:
    """Sentences of random lengths side by side, and some padding at the end of most rows."""
    segment = torch.zeros(rows, width, dtype=torch.int32)
    for row in segment:
        ends = torch.randint(1, width + 1, (int(torch.randint(1, 5, ())),)).sort().values.tolist()
        for number, (begin, end) in enumerate(zip([0, *ends], ends, strict=False), 1):
            row[begin:end] = number
    return segment.to(DEVICE)


def attention_in_double(queries: Tensor, keys: Tensor, values: Tensor, keep: Tensor, heads: int) -> Tensor:
    """Where nothing may be seen, nothing comes out; real places always see something."""
    split = [x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (queries, keys, values)]
    blind = ~keep.any(-1)
    heads_out = scaled_dot_product_attention(*split, attn_mask=(keep | blind[..., None])[:, None])
    return heads_out.transpose(1, 2).flatten(-2).masked_fill(blind[..., None], 0.0)


def stacked_product(y: Tensor, stacked: Tensor, bias: Tensor, rotary: Tensor | None, heads: int) -> list[Tensor]:
    """Queries, keys and values; queries and keys are rotated if positions are given."""
    queries, keys, values = (y @ stacked.T + bias).chunk(3, -1)
    if rotary is None:
        return [queries, keys, values]
    split = [x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (queries, keys)]
    return [*(rotate(x, rotary).transpose(1, 2).flatten(-2) for x in split), values]


def positions_of(rows: int, width: int, rotary: bool) -> Tensor | None:
    return torch.randint(0, 900, (rows, width), dtype=torch.int32, device=DEVICE) if rotary else None


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("frame", RESIDUALS)
@pytest.mark.parametrize(
    ("causal", "rotary", "window"),
    [(False, False, 0), (True, False, 0), (True, True, 0), (False, False, 4), (True, True, 3)],
)
@pytest.mark.parametrize(
    ("rows", "width", "heads", "head"),
    [(1, 1, 1, 16), (2, 23, 3, 16), (3, 128, 2, 64), (2, 33, 2, 32), (2, 17, 1, 128)],
)
def test_self_attention(
    rows: int, width: int, heads: int, head: int, causal: bool, rotary: bool, window: int, frame: ResidualOptions, dtype: torch.dtype
) -> None:  # fmt: skip
    position = positions_of(rows, width, rotary)
    segment, d_model = page_segments(rows, width), heads * head
    x = random(rows, width, d_model, dtype=dtype)
    stacked, bias = random(3 * d_model, d_model, dtype=dtype, scale=0.2), random(3 * d_model, dtype=dtype)
    keep = segment[:, :, None] == segment[:, None, :]
    band = torch.ones(width, width, dtype=torch.bool, device=DEVICE)
    keep = keep & band.tril() if causal else keep
    keep = keep & band.tril(window).triu(-window) if window else keep

    def fast(x: Tensor, stacked: Tensor, bias: Tensor, *last: Tensor) -> Tensor:
        return kernels.self_attention(
            x, stacked, bias, OutputParameters(*last), frame, segment, heads, causal, position, window
        )

    def plain(x: Tensor, stacked: Tensor, bias: Tensor, *last: Tensor) -> Tensor:
        def attend(y: Tensor) -> Tensor:
            return attention_in_double(*stacked_product(y, stacked, bias, position, heads), keep, heads)

        return around(x, attend, OutputParameters(*last), frame.pre)

    assert_same(fast, plain, [x, stacked, bias, *parameters(d_model, d_model, dtype)])


@pytest.mark.numerics
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("frame", RESIDUALS)
@pytest.mark.parametrize("rotary", [False, True])
def test_causal_attention_in_wide_rows(rotary: bool, frame: ResidualOptions, dtype: torch.dtype) -> None:
    rows, width, heads, d_model = 2, 150, 2, 32
    position = positions_of(rows, width, rotary)
    x = random(rows, width, d_model, dtype=dtype)
    stacked, bias = random(3 * d_model, d_model, dtype=dtype, scale=0.2), random(3 * d_model, dtype=dtype)
    keep = torch.ones(rows, width, width, dtype=torch.bool, device=DEVICE).tril()

    def fast(x: Tensor, stacked: Tensor, bias: Tensor, *last: Tensor) -> Tensor:
        return kernels.causal_attention(x, stacked, bias, OutputParameters(*last), frame, heads, position)

    def plain(x: Tensor, stacked: Tensor, bias: Tensor, *last: Tensor) -> Tensor:
        def attend(y: Tensor) -> Tensor:
            return attention_in_double(*stacked_product(y, stacked, bias, position, heads), keep, heads)

        return around(x, attend, OutputParameters(*last), frame.pre)

    if GPU and dtype == torch.float32:
        pytest.skip("flash attention computes in bfloat16 only")
    assert_same(fast, plain, [x, stacked, bias, *parameters(d_model, d_model, dtype)])


@pytest.mark.parametrize(("frames", "states"), [(1, 3), (17, 9), (40, 1)])
def test_sums_over_paths(frames: int, states: int) -> None:
    """The scan of CTC: what each frame says, and which states may skip the blank before them."""
    emitted = torch.randn(4, frames, states, device=DEVICE).log_softmax(-1)
    skips = torch.where(torch.rand(4, states, device=DEVICE) < 0.5, 0.0, NEVER)
    wanted = _scan_by_steps(emitted.double(), skips.double())
    possible = wanted > NEVER / 2
    sums = kernels.ctc_sums(emitted, skips)
    torch.testing.assert_close(sums[possible], wanted[possible].float(), atol=1e-4, rtol=1e-5)
    assert bool((sums[~possible] < NEVER / 2).all())


@pytest.mark.gpu
def test_gradients_of_wide_rows_are_the_same_bits_every_time() -> None:
    heads, d_model = 6, 384
    product = random(64, 1024, 3 * d_model, dtype=torch.bfloat16).detach()
    gradient = random(64, 1024, d_model, dtype=torch.bfloat16).detach()
    attended = causal.attend_causally(product, heads)
    first = causal.attend_causally_backward(gradient, product, attended, heads)
    for _ in range(10):
        assert torch.equal(causal.attend_causally_backward(gradient, product, attended, heads), first)


@pytest.mark.parametrize(
    ("shared", "head", "fits"), [(101_376, 64, True), (101_376, 128, False), (166_912, 128, True), (232_448, 64, True)]
)
def test_heads_that_a_chip_cannot_hold_are_computed_as_written(
    shared: int, head: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "chip_of", lambda device: attention.Chip(processors=3, shared=shared))
    segment = page_segments(2, 20)
    assert kernels.fits_a_page(segment, segment, head) is fits


def test_a_chip_without_room_to_fetch_ahead_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    segment, heads = page_segments(5, 20), 2
    inputs = [random(5, 20, 64, dtype=torch.float32).detach() for _ in range(4)]
    biases = tuple(random(3, 64, dtype=torch.float32).detach())
    found = []
    for chip in (attention.Chip(processors=2, shared=1 << 30), attention.Chip(processors=3, shared=101_376)):
        monkeypatch.setattr(attention, "chip_of", lambda device, chip=chip: chip)
        out, levels = attention.attend(tuple(inputs[:3]), biases, segment, segment, heads, causal=True)
        gradients = tuple(torch.empty_like(one) for one in inputs[:3])
        of_biases = attention.attend_backward(
            inputs[3], levels, tuple(inputs[:3]), biases, gradients, segment, segment, heads, causal=True
        )
        found.append([out, of_biases, *gradients])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.numerics
@pytest.mark.parametrize("parts", [1, 256, 700])
def test_sums_of_parts(parts: int) -> None:
    given = torch.randn(parts, 3, 21, device=DEVICE)
    expected = given.double().sum(0).float()
    torch.testing.assert_close(sums.sum_of_parts(given, torch.float32), expected, atol=1e-4, rtol=1e-5)
    assert sums.sum_of_parts(given, torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("frame", RESIDUALS)
@pytest.mark.parametrize(("num_queries", "num_keys"), [(1, 1), (31, 50), (128, 100)])
def test_source_attention(num_queries: int, num_keys: int, frame: ResidualOptions, dtype: torch.dtype) -> None:
    heads, d_model = 2, 64
    target, source = page_segments(3, num_queries).clamp(max=1), page_segments(3, num_keys).clamp(max=1)
    source[:, 0] = 1  # every target has a source
    x, memory = random(3, num_queries, d_model, dtype=dtype), random(3, num_keys, d_model, dtype=dtype)
    stacked, bias = random(3 * d_model, d_model, dtype=dtype, scale=0.2), random(3 * d_model, dtype=dtype)
    keep = target[:, :, None] == source[:, None, :]

    def fast(x: Tensor, memory: Tensor, stacked: Tensor, bias: Tensor, *last: Tensor) -> Tensor:
        return kernels.source_attention(x, memory, stacked, bias, OutputParameters(*last), frame, target, source, heads)

    def plain(x: Tensor, memory: Tensor, stacked: Tensor, bias: Tensor, *last: Tensor) -> Tensor:
        def attend(y: Tensor) -> Tensor:
            queries = y @ stacked[:d_model].T + bias[:d_model]
            keys, values = (memory @ stacked[d_model:].T + bias[d_model:]).chunk(2, -1)
            return attention_in_double(queries, keys, values, keep, heads)

        return around(x, attend, OutputParameters(*last), frame.pre)

    assert_same(fast, plain, [x, memory, stacked, bias, *parameters(d_model, d_model, dtype)])


# --- the whole model -------------------------------------------------------------------------------------------

PAD = 40


def random_pairs(lengths: list[tuple[int, int]]) -> list[tuple[list[int], list[int]]]:
    return [tuple(torch.randint(2, PAD, (n,)).tolist() for n in pair) for pair in lengths]  # type: ignore[misc]


def batch_of(rows: list[list[tuple[list[int], list[int]]]]) -> Batch:
    sources = Tokens.packed([[source for source, _ in row] for row in rows], PAD)
    inputs = Tokens.packed([[[PAD, *target[:-1]] for _, target in row] for row in rows], PAD)
    labels = Tokens.packed([[target for _, target in row] for row in rows], IGNORED)
    return Batch(sources, inputs, labels.ids).to(DEVICE)


ONE_TOKEN = [[(1, 1)]]  # a batch of one, of length one
THREE_PAGES = [[(5, 9), (1, 1), (20, 7)], [(40, 3)], [(1, 30), (2, 2)]]
FULL_PAGES = [[(128, 128)], [(60, 100), (50, 20), (18, 1)]]  # the longest a page holds


@pytest.mark.parametrize(
    ("rows", "norm", "positions"),
    [
        (ONE_TOKEN, "post", "sinusoidal"),
        (THREE_PAGES, "post", "sinusoidal"),
        (THREE_PAGES, "pre", "sinusoidal"),
        (THREE_PAGES, "pre", "rotary"),
        (FULL_PAGES, "post", "sinusoidal"),
        pytest.param(ONE_TOKEN, "pre", "rotary", marks=pytest.mark.slow),
        pytest.param(FULL_PAGES, "pre", "sinusoidal", marks=pytest.mark.slow),
    ],
)
def test_pages_with_kernels_are_padded_rows_without(
    rows: list[list[tuple[int, int]]], norm: str, positions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TransformerConfig(
        d_model=32, d_ff=64, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, norm=norm, dropout=0,
        positions=positions,
    )  # type: ignore[arg-type]  # fmt: skip
    assert_pages_with_kernels_are_padded_rows_without(Transformer(config, PAD + 1, PAD + 1), rows, monkeypatch)


def test_a_decoder_of_source_and_target_has_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides of a page pass the kernels as one row; rows that are too wide for them are computed without."""
    config = PrefixConfig(family="prefix", d_model=32, d_ff=64, num_heads=2, num_decoder_layers=2, dropout=0)
    model = Prefix(config, PAD + 1, PAD + 1)
    assert model.layers[0].kernels_understand
    for rows in ([[(5, 9), (1, 1), (20, 7)], [(40, 3)]], [[(70, 60), (1, 1)]]):
        assert_pages_with_kernels_are_padded_rows_without(model, rows, monkeypatch)


def test_weights_of_another_precision_are_computed_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under autocast, what comes from a convolution has 16 bits and the weights of the layer have 32."""
    monkeypatch.setattr(kernels, "supports", lambda x: True)
    config = TransformerConfig(d_model=32, d_ff=64, num_heads=2)
    layer, keep = EncoderLayer(config), keep_whole_row(torch.ones(1, 5, dtype=torch.int32))
    assert fused.covers(layer, torch.zeros(1, 5, 32), [keep])
    assert not fused.covers(layer, torch.zeros(1, 5, 32, dtype=torch.bfloat16), [keep])


def assert_pages_with_kernels_are_padded_rows_without(
    model: Model, rows: list[list[tuple[int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss and every gradient: sentences side by side through the kernels, and each in a row of its own without."""
    model.to(DEVICE)
    pairs = [random_pairs(row) for row in rows]
    expected = gradients(model.double(), batch_of([[pair] for row in pairs for pair in row]))
    served = copy.deepcopy(model).to(torch.bfloat16 if GPU else torch.float32)
    monkeypatch.setattr(kernels, "supports", lambda x: False)
    plain = errors(gradients(served, batch_of([[pair] for row in pairs for pair in row])), expected)
    monkeypatch.setattr(kernels, "supports", lambda x: True)
    found = errors(gradients(served, batch_of(pairs)), expected)
    for name, error in found.items():  # no further off than plain PyTorch in the same precision, give or take
        assert error <= 2 * plain[name] + (0.02 if GPU else 1e-5), name


@pytest.mark.parametrize("rows", [THREE_PAGES, [[(70, 129)]]])  # the second is too wide for the kernels
def test_a_window_passes_the_kernels(rows: list[list[tuple[int, int]]], monkeypatch: pytest.MonkeyPatch) -> None:
    config = TransformerConfig(
        d_model=32, d_ff=64, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, window=3, dropout=0
    )
    assert fused.understands(config)
    assert_pages_with_kernels_are_padded_rows_without(Transformer(config, PAD + 1, PAD + 1), rows, monkeypatch)


@pytest.mark.parametrize("served", [False, True])
def test_sentences_of_a_page_do_not_see_each_other(served: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another sentence beside it changes nothing, to the last bit: neither what is predicted nor what is learned."""
    monkeypatch.setattr(kernels, "supports", lambda x: served)
    config = TransformerConfig(d_model=32, d_ff=64, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, dropout=0)
    model = Transformer(config, PAD + 1, PAD + 1).to(DEVICE, torch.bfloat16 if GPU else torch.float32)
    (first,), one, other = random_pairs([(7, 9)]), random_pairs([(20, 11)]), random_pairs([(20, 11)])
    hidden = []
    for beside in (one, other):
        batch = batch_of([[first, *beside]])
        hidden.append(model.decode(batch.target, model.encode(batch.source))[0].detach())
    assert torch.equal(hidden[0][:9], hidden[1][:9])
    assert not torch.equal(hidden[0][9:20], hidden[1][9:20])


def errors(found: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """How far off each is, of its own size; what is next to nothing is measured by the largest."""
    assert found.keys() == expected.keys()
    largest = max(float(want.norm()) for want in expected.values())
    return {
        name: float((found[name].double() - want).norm() / (want.norm() + 0.02 * largest))
        for name, want in expected.items()
    }


def gradients(model: Model, batch: Batch) -> dict[str, Tensor]:
    model.zero_grad()
    loss = batch_loss(model, batch, smoothing=0.1).minimised
    loss.backward()
    return {"loss": loss.detach()} | {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
