"""Convolutional models: torch's own layers with copied weights, and what must hold of any model."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import transduce
from tests.test_recurrent import accuracy_after
from tests.test_seams import write_pairs
from transduce.checkpoint import read_tensors
from transduce.config import build
from transduce.config.models import ByteNetConfig, ConvS2SConfig, ModelConfig
from transduce.errors import DataError, SettingError
from transduce.explore.views import attention_view
from transduce.model import Model, Tokens, make_model, training_flops
from transduce.model.convolutional.convs2s import ConvS2S, ScaledGradient
from transduce.model.convolutional.neighbours import Past, causal, centred, with_neighbours
from transduce.model.convolutional.weight_norm import NormedLinear
from transduce.translator.picture import draw_attention

pytestmark = [pytest.mark.numerics, pytest.mark.usefixtures("few_threads")]

SIZE = 30
PAD = SIZE - 1
CONVS2S = ConvS2SConfig(
    family="convs2s", d_model=12, num_encoder_layers=3, num_decoder_layers=2, dropout=0.0, max_positions=40
)
BYTENET = ByteNetConfig(
    family="bytenet", d_model=12, num_encoder_layers=3, num_decoder_layers=4, largest_dilation=4, dropout=0.0
)
VARIANTS: dict[str, ModelConfig] = {
    "convs2s": CONVS2S,
    "convs2s, widths": dataclasses.replace(CONVS2S, num_encoder_layers=2, widths=("8", "16"), kernels=("3", "1")),
    "convs2s, even kernels, tied": dataclasses.replace(CONVS2S, kernel_width=4, tie="all"),
    "bytenet": BYTENET,
    "bytenet, kernel 2, tied": dataclasses.replace(BYTENET, kernel_width=2, tie="target"),
}


@pytest.fixture(params=VARIANTS, ids=str)
def model(request: pytest.FixtureRequest) -> Model:
    return make(VARIANTS[request.param])


def make(config: ModelConfig) -> Model:
    torch.manual_seed(1)
    return make_model(config, SIZE, SIZE).eval()


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
    layer, theirs = model.encoder[0], nn.Conv1d(12, 24, 3, padding=1)
    with torch.no_grad():
        theirs.weight.copy_(layer.convolution.product.weight.unflatten(1, (3, 12)).transpose(1, 2))
        theirs.bias.copy_(layer.convolution.product.bias)
        x = torch.randn(2, 7, 12)
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


# --- what must hold of any model -----------------------------------------------------------------------------------


def test_token_by_token_is_all_at_once(model: Model) -> None:
    source, targets = Tokens.padded(sentences(9, 4, 6), PAD), [[PAD, *row] for row in sentences(12, 12, 12, seed=2)]
    whole = model.project(hidden(model, source, Tokens.padded(targets, PAD)))
    with torch.no_grad():
        state = model.begin(model.encode(source))
        for place, column in enumerate(torch.tensor(targets).T):
            torch.testing.assert_close(model.step(column, state), whole[:, place], atol=1e-4, rtol=1e-4)


def test_the_state_follows_selected_rows(model: Model) -> None:
    source, targets = Tokens.padded(sentences(9, 4, 6), PAD), torch.tensor([[PAD, 3, 4], [PAD, 5, 6], [PAD, 7, 8]])
    with torch.no_grad():
        state = model.begin(model.encode(source))
        each = [model.step(column, state) for column in targets.T[:2]]
        expected = model.step(targets.T[2], state)
        again = model.begin(model.encode(source))
        for column in targets.T[:2]:
            model.step(column, again)
        found = model.step(targets.T[2][[2, 0, 2]], again.select(torch.tensor([2, 0, 2])))
    assert len(each) == 2
    torch.testing.assert_close(found, expected[[2, 0, 2]], atol=1e-5, rtol=1e-5)


def test_later_tokens_change_nothing_earlier(model: Model) -> None:
    source, (target,) = Tokens.padded(sentences(8), PAD), sentences(10, seed=3)
    one = hidden(model, source, Tokens.padded([target], PAD))[0]
    other = hidden(model, source, Tokens.padded([[*target[:6], *sentences(4, seed=4)[0]]], PAD))[0]
    assert torch.equal(one[:6], other[:6])
    assert not torch.equal(one[6:], other[6:])


def test_padding_is_invisible(model: Model) -> None:
    sources, targets = sentences(9, 4, 6), sentences(5, 8, 3, seed=1)
    together = hidden(model, Tokens.padded(sources, PAD), Tokens.padded(targets, PAD))
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alone = hidden(model, Tokens.padded([source], PAD), Tokens.padded([target], PAD))[0]
        torch.testing.assert_close(together[row, : len(target)], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name.startswith("convs2s")])
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


# --- through the public functions ----------------------------------------------------------------------------------

SMALL: dict[str, dict[str, Any]] = {
    "convs2s": {"model.num_encoder_layers": 2, "model.num_decoder_layers": 2, "model.max_positions": 200},
    "bytenet": {"model.num_encoder_layers": 2, "model.num_decoder_layers": 2},
}
USUAL = {
    "model.d_model": 16, "train.device": "cpu", "train.threads": 1, "train.tokens_per_batch": 256,
    "train.checkpoint_every": 2, "train.validate_every": 4, "train.validate_lines": 2, "data.max_length": 60,
}  # fmt: skip


@pytest.fixture(scope="module", params=SMALL)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps that was stopped after two and resumed."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    settings = {"model.family": request.param, **USUAL, **SMALL[request.param]}
    pairs = write_pairs(folder, 80)
    transduce.train(folder / "run", train=pairs, steps=2, settings=settings, quiet=True)
    transduce.train(folder / "run", steps=4, quiet=True)
    transduce.train(folder / "whole", train=pairs, steps=4, settings=settings, quiet=True)
    return folder


def test_a_resumed_run_is_the_run_that_was_never_stopped(run: Path) -> None:
    one, other = (read_tensors(run / name / "last.safetensors") for name in ("run", "whole"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_translates_scores_and_joins_ensembles(run: Path) -> None:
    translator = transduce.load(run / "run", device="cpu")
    lines = ["a b c", "d e"]
    assert len(translator.translate(lines, beam=1)) == len(translator.translate(lines, beam=3)) == 2
    assert len(translator.translate(lines, translator.request(sampling=True))) == 2
    assert all(score < 0 for score in translator.score(lines, ["c b a", "e d"]))
    both = transduce.load(run / "run", device="cpu", ensemble=[run / "whole"])
    assert both.translate(lines, beam=2) == translator.translate(lines, beam=2)


def test_attention_is_shown_where_there_is_any(run: Path, tmp_path: Path) -> None:
    translator = transduce.load(run / "run", device="cpu")
    if translator.config.model.family == "bytenet":
        with pytest.raises(SettingError, match=r"model\.family = bytenet: this model has no attention"):
            translator.attention("a b c")
        return
    attention = translator.attention("a b c")
    draw_attention(attention, tmp_path / "view.png")
    assert [layer.shape[1] for layer in attention.maps.cross] == [1, 1]
    torch.testing.assert_close(attention.maps.cross[0].sum(-1), torch.ones_like(attention.maps.cross[0][..., 0]))
    view = attention_view(translator, "a b c")
    assert not view["can_switch_off"]


@pytest.mark.parametrize("to", ["ct2", "hf", "onnx"])
def test_exports_refuse_in_one_line(run: Path, to: Any, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"model\.family"):
        transduce.export(run / "run", tmp_path / "exported", to, quiet=True)


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


# --- must learn ----------------------------------------------------------------------------------------------------

LEARNERS: dict[str, ModelConfig] = {
    "convs2s": dataclasses.replace(CONVS2S, d_model=32, num_encoder_layers=2),
    "bytenet": dataclasses.replace(BYTENET, d_model=32, num_encoder_layers=3, num_decoder_layers=3),
}


@pytest.mark.parametrize("family", LEARNERS)
def test_a_short_word_is_learned_backwards(family: str) -> None:
    assert accuracy_after(LEARNERS[family], steps=120, rate=1e-2, reverse=True) > 0.9
