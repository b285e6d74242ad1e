"""Convolutional models: torch's own layers with copied weights, what each position sees, sizes, and that they learn."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tests.families import BYTENET, CONVS2S, MODELS, accuracy_after, make
from transduce.config import build
from transduce.config.models import ByteNetConfig, ConvS2SConfig, ModelConfig
from transduce.errors import DataError, SettingError
from transduce.model import Model, Tokens, make_model, training_flops
from transduce.model.checks import PAD
from transduce.model.convolutional.convs2s import ConvS2S, ScaledGradient
from transduce.model.convolutional.neighbours import Past, causal, centred, with_neighbours
from transduce.model.convolutional.weight_norm import NormedLinear

pytestmark = pytest.mark.numerics

VARIANTS = {name: config for name, config in MODELS.items() if config.family in ("convs2s", "bytenet")}


@pytest.fixture(params=VARIANTS, ids=str)
def model(request: pytest.FixtureRequest) -> Model:
    return make(VARIANTS[request.param])


def sentences(*lengths: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, PAD, (n,), generator=generator).tolist() for n in lengths]


def hidden(model: Model, source: Tokens, target: Tokens) -> torch.Tensor:
    with torch.no_grad():
        return model.decode(target, model.encode(source))


# --- oracles: torch's layers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("kind", [centred, causal])
def test_taps_and_a_product_are_torchs_convolution(kind: Any, dilation: int) -> None:
    theirs = nn.Conv1d(4, 5, 3, dilation=dilation)
    x, offsets = torch.randn(2, 9, 4), kind(3, dilation)
    before, after = -offsets[0], max(0, offsets[-1])
    expected = theirs(nn.functional.pad(x.transpose(1, 2), (before, after))).transpose(1, 2)
    taps = with_neighbours(x, torch.ones(2, 9, dtype=torch.long), offsets)
    found = nn.functional.linear(taps, theirs.weight.transpose(1, 2).flatten(1), theirs.bias)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_a_normed_layer_is_torchs_weight_norm() -> None:
    ours = NormedLinear(6, 4, std=0.3)
    theirs = nn.utils.parametrizations.weight_norm(nn.Linear(6, 4))
    with torch.no_grad():
        ours.gain.mul_(torch.tensor([0.5, 1.0, 2.0, -1.0]))
        theirs.parametrizations.weight.original0.copy_(ours.gain[:, None])
        theirs.parametrizations.weight.original1.copy_(ours.direction)
        theirs.bias.copy_(ours.bias)
    x = torch.randn(3, 6)
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-6, rtol=1e-6)
    ours(x).square().sum().backward()
    theirs(x).square().sum().backward()
    torch.testing.assert_close(ours.direction.grad, theirs.parametrizations.weight.original1.grad, atol=1e-5, rtol=1e-5)


def test_a_convs2s_layer_is_torchs_convolution_and_glu() -> None:
    model = make(CONVS2S)
    assert isinstance(model, ConvS2S)
    layer, theirs = model.encoder[0], nn.Conv1d(16, 32, 3, padding=1)
    with torch.no_grad():
        theirs.weight.copy_(layer.convolution.product.weight.unflatten(1, (3, 16)).transpose(1, 2))
        theirs.bias.copy_(layer.convolution.product.bias)
        x = torch.randn(2, 7, 16)
        expected = (x + nn.functional.glu(theirs(x.transpose(1, 2)), dim=1).transpose(1, 2)) * 0.5**0.5
        found = layer(x, torch.ones(2, 7, dtype=torch.long))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_the_gradient_of_the_encoder_is_scaled_and_its_output_is_not() -> None:
    x = torch.randn(3, requires_grad=True)
    y = ScaledGradient.apply(x, 0.25)
    assert torch.equal(y, x)
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 0.25))


def test_variances_stay_what_they_are() -> None:
    """Which is what the factors of section 3.4 are for: without sqrt(1/2), twelve layers would multiply it by thousands."""
    model = make(dataclasses.replace(CONVS2S, d_model=64, num_encoder_layers=12))
    assert isinstance(model, ConvS2S)
    x = 0.1 * torch.randn(4, 20, 64)  # as embeddings are
    before = float(x.var())
    with torch.no_grad():
        for layer in model.encoder:
            x = layer(x, torch.ones(4, 20, dtype=torch.long))
    assert 0.3 < float(x.var()) / before < 3


# --- what a convolution sees ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_packing_is_invisible_and_neighbours_keep_their_bits(name: str) -> None:
    model = make(VARIANTS[name])
    sources, targets = sentences(6, 5, 4), sentences(5, 4, 6, seed=1)
    packed = hidden(model, Tokens.packed([sources], PAD), Tokens.packed([targets], PAD))[0]
    alone = hidden(model, Tokens.padded(sources[1:2], PAD), Tokens.padded(targets[1:2], PAD))[0]
    torch.testing.assert_close(packed[5:9], alone, atol=1e-5, rtol=1e-5)
    changed = hidden(
        model,
        Tokens.packed([[sources[0], *sentences(5, seed=7), sources[2]]], PAD),
        Tokens.packed([[targets[0], *sentences(4, seed=8), targets[2]]], PAD),
    )[0]
    assert torch.equal(changed[:5], packed[:5])
    assert torch.equal(changed[9:], packed[9:])
    assert not torch.equal(changed[5:9], packed[5:9])


def test_bytenet_reads_one_column_of_the_source_per_token() -> None:
    """Predictions before a source token's column, less what the encoder's convolutions spread, do not depend on it."""
    model = make(dataclasses.replace(BYTENET, num_encoder_layers=1))
    (source,), target = sentences(12), Tokens.padded(sentences(12, seed=1), PAD)
    changed = [*source[:8], source[8] - 1 if source[8] > 2 else 3, *source[9:]]
    one, other = (hidden(model, Tokens.padded([row], PAD), target)[0] for row in (source, changed))
    assert torch.equal(one[:7], other[:7])  # column 7 sees the token at 8 through a kernel of width 3
    assert not torch.equal(one[7], other[7])


def test_the_past_of_a_dilated_convolution() -> None:
    past, x = Past(causal(3, 2)), torch.arange(1.0, 8.0)[:, None, None]
    taps = [past.append(row)[0].tolist() for row in x]
    assert taps[:3] == [[0, 0, 1], [0, 0, 2], [0, 1, 3]]
    assert taps[-1] == [3, 5, 7]


# --- sizes and costs -----------------------------------------------------------------------------------------------


def test_the_parameters_of_the_published_models() -> None:
    """By hand: what sections 4.2 and 5.1 of ConvS2S and section 5 of ByteNet describe, with a vocabulary of 40,000."""
    v, d = 40_000, 512
    layer = 3 * d * 2 * d + 2 * (2 * d)  # directions, gains and biases
    attention = 2 * (d * d + 2 * d)
    ends = 4 * (d * d + 2 * d)
    tables = 3 * v * d + (v - 1) + 2 * 1024 * d
    assert parameters(ConvS2SConfig(family="convs2s"), v) == 40 * layer + 20 * attention + ends + tables
    d = 1600
    block = 2 * d * 800 + 3 * 800 * 800 + (800 + 800 + d) + 2 * (d + 800 + 800)
    assert parameters(ByteNetConfig(family="bytenet"), v) == 60 * block + 4 * d + d * d + d + 3 * v * d + v - 1


def parameters(config: ModelConfig, size: int) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in make_model(config, size, size).parameters())


def test_the_cost_is_what_torch_counts(model: Model) -> None:
    model.train()
    source, target = Tokens.padded(sentences(8, 8), PAD), Tokens.padded(sentences(8, 8, seed=1), PAD)
    labels = torch.randint(0, PAD, (2, 8))
    with FlopCounterMode(display=False) as counter:
        logits = model.project(model.decode(target, model.encode(source)))
        nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
    assert counter.get_total_flops() == training_flops(model.config, PAD, 16, 16, 8.0)


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"family": "convs2s", "widths": ["16"]}, "model.widths has 1 numbers"),
        ({"family": "convs2s", "kernels": ["3", "x"]}, "model.kernels = 3,x: must be whole numbers"),
        ({"family": "convs2s", "max_positions": 8}, "is over model.max_positions = 8"),
        ({"family": "bytenet", "d_model": 7}, "so it must be even"),
        ({"family": "bytenet", "num_heads": 4}, "unknown setting model.num_heads"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        build({"model": settings})


def test_a_sentence_beyond_the_learned_positions_is_refused() -> None:
    with pytest.raises(DataError, match=r"model\.max_positions = 40"):
        make(CONVS2S).encode(Tokens.padded(sentences(41), PAD))
    make(CONVS2S).encode(Tokens.packed([sentences(40, 30)], PAD))


# --- must learn ----------------------------------------------------------------------------------------------------

LEARNERS: dict[str, ModelConfig] = {
    "convs2s": dataclasses.replace(CONVS2S, d_model=32, num_encoder_layers=2),
    "bytenet": dataclasses.replace(BYTENET, d_model=32, num_encoder_layers=3, num_decoder_layers=3),
}


@pytest.mark.parametrize("family", LEARNERS)
def test_a_short_word_is_learned_backwards(family: str) -> None:
    assert accuracy_after(LEARNERS[family], steps=120, rate=1e-2, reverse=True) > 0.9
