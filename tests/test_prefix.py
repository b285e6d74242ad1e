"""The family prefix: its logits are those of a language model that reads source and target as one text, and it learns."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tests.families import PREFIX, accuracy_after, make
from tests.test_model import copy_attention
from transduce.config import DecoderConfig, build
from transduce.config.models import PrefixConfig
from transduce.errors import DataError, SettingError
from transduce.model import Decoder, Prefix, Tokens, fused, kept_activations, parameter_shapes, training_flops
from transduce.model.checks import PAD, SIZE, SOURCES, TARGETS, logits, shifted
from transduce.model.prefix import positions_after

pytestmark = pytest.mark.numerics


def made(config: PrefixConfig) -> Prefix:
    model = make(config)
    assert isinstance(model, Prefix)
    return model


# --- oracles ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "pre", "positions": "rotary"}, {"positions": "learned", "max_positions": 256, "output_bias": True}],
    ids=str,
)
@torch.no_grad()
def test_it_is_a_language_model_of_source_and_target(changes: dict[str, object]) -> None:
    """The family `decoder` with the same weights, on the one text `source <pad> target`, at the positions of the target."""
    config = replace(PREFIX, **changes)
    model = made(config)
    shared = {key: value for key, value in vars(config).items() if key not in ("family", "tie", "source_mask")}
    oracle = Decoder(DecoderConfig(family="decoder", context=64, **shared), SIZE, SIZE).eval()
    weights = {name: tensor for name, tensor in model.state_dict().items() if name in oracle.state_dict()}
    oracle.load_state_dict(weights)
    texts = [[*source, PAD, *target[:-1]] for source, target in zip(SOURCES, TARGETS, strict=True)]
    expected = oracle.project(oracle.decode(Tokens.padded(texts, PAD), None))
    found = logits(model, SOURCES, TARGETS)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        of_target = expected[row, len(source) : len(source) + len(target)]
        torch.testing.assert_close(found[row, : len(target)], of_target, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_with_a_full_source_mask_it_is_torchs_layers_under_the_mask_of_a_prefix_language_model() -> None:
    model, source, target = made(replace(PREFIX, source_mask="full")), SOURCES[2], [7, 8, 9, 3, 0]
    n, width = len(source), len(source) + len(target)
    hidden = torch.ones(width, width, dtype=torch.bool).triu(1)
    hidden[:, :n] = False  # True is what torch hides
    ids = torch.tensor([[*source, PAD, *target[:-1]]])
    x = model.positions(model.source_embedding(ids) * 4, torch.arange(width)[None], width)
    for layer in model.layers:
        theirs = nn.TransformerEncoderLayer(16, 2, 20, 0.0, "relu", batch_first=True).eval()
        copy_attention(layer.attention, theirs.self_attn)
        theirs.linear1.load_state_dict(layer.feed_forward.inner.state_dict())
        theirs.linear2.load_state_dict(layer.feed_forward.outer.state_dict())
        theirs.norm1.load_state_dict(layer.attention_residual.norm.state_dict())
        theirs.norm2.load_state_dict(layer.feed_forward_residual.norm.state_dict())
        x = theirs(x, src_mask=hidden)
    torch.testing.assert_close(logits(model, [source], [target]), model.project(x[:, n:]), atol=1e-5, rtol=1e-5)
    causal = logits(made(PREFIX), [source], [target])
    assert (causal - model.project(x[:, n:])).abs().max() > 1e-3


def test_the_target_continues_the_positions_of_its_source() -> None:
    """In a row of three sentences, with padding on both sides."""
    source, target = Tokens.packed([SOURCES, SOURCES[:1]], PAD), Tokens.packed([TARGETS, TARGETS[:1]], PAD)
    expected = [[4, 5, 6, 2, 3, 4, 5, 6, 7], [4, 5, 6, 0, 0, 0, 0, 0, 0]]
    assert positions_after(source, target).tolist() == expected


# --- sizes and costs -------------------------------------------------------------------------------------------------


def test_a_layer_has_the_parameters_of_an_encoder_layer() -> None:
    d, ids, layers = 512, 37_000, 12
    layer = 4 * d * d + 4 * d + 2 * d * 2048 + 2048 + d + 2 * 2 * d
    shapes = parameter_shapes(PrefixConfig(family="prefix", num_decoder_layers=layers), ids, ids)
    assert sum(shape.numel() for shape in shapes.values()) == ids * d + layers * layer


def test_the_cost_is_what_torch_counts() -> None:
    """With dropout of attention, whose products are written out on a CPU; otherwise the counter does not see them."""
    config = replace(PREFIX, attention_dropout=0.5, d_k=6, d_v=10)
    model, ids = made(config).train(), Tokens.padded([[3, 4, 5, 6, 0]] * 2, PAD)
    with FlopCounterMode(display=False) as counter:
        model.project(model.decode(ids, model.encode(ids)))
    assert 3 * counter.get_total_flops() == training_flops(config, SIZE - 1, 10, 10, 5.0)


def test_activations_are_about_what_autograd_keeps() -> None:
    config = replace(PREFIX, d_model=64, d_ff=256, dropout=0.1)
    model, ids = made(config).train(), Tokens.padded([[3, 4, 5, 6, 7, 8, 9, 0]] * 4, PAD)
    kept: dict[int, int] = {}
    parameters = {parameter.data_ptr() for parameter in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point() and tensor.data_ptr() not in parameters:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.decode(ids, model.encode(ids))
    assert kept_activations(config, 32, 32, True) == pytest.approx(sum(kept.values()), rel=0.25)


def test_settings_fitted_for_a_transformer_give_as_many_layers_as_both_stacks() -> None:
    recipe = {"model": {"d_model": 64, "num_encoder_layers": 4, "num_decoder_layers": 3, "tie": "target"}, "train": {}}
    assert PrefixConfig.fitted(recipe)["model"] == {"d_model": 64, "num_decoder_layers": 7, "tie": "target"}


# --- what it does ----------------------------------------------------------------------------------------------------


def test_a_short_word_is_learned_backwards() -> None:
    """Without the source, two tokens of five are right."""
    assert accuracy_after(replace(PREFIX, d_model=32, d_ff=32), steps=100, rate=1e-2, reverse=True) > 0.7


def test_kernels_know_it_with_a_causal_source_only() -> None:
    config = PrefixConfig(family="prefix", d_model=128, d_ff=256, num_heads=4)
    assert fused.understands(config)
    assert not fused.understands(replace(config, source_mask="full"))


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        ({"window": 4}, {}, r"model\.window = 4: models of the family prefix attend to the whole sequence"),
        ({}, {"joint": False}, r'model\.tie = "all" needs one vocabulary'),
        (
            {"positions": "learned", "max_positions": 300},
            {"max_length": 200},
            r"model\.max_positions = 300: source and target share the positions, so set it to at least 400",
        ),
        ({"positions": "learned", "max_positions": 100}, {"max_length": 20}, "so set it to at least 256"),
    ],
)
def test_what_cannot_work_is_refused(model: dict[str, object], data: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        build({"model": {"family": "prefix", **model}, "data": data})


def test_source_and_target_share_the_learned_positions() -> None:
    config = replace(PREFIX, positions="learned", max_positions=16)
    assert config.longest_source == config.longest_target == 8
    model = made(config)
    model.decode(shifted([[1] * 8]), model.encode(Tokens.padded([[1] * 8], PAD)))
    with pytest.raises(
        DataError, match=r"have 17 tokens together, but the model learned only model\.max_positions = 16"
    ):
        model.decode(shifted([[1] * 9]), model.encode(Tokens.padded([[1] * 8], PAD)))


@torch.no_grad()
def test_padding_needs_no_learned_positions() -> None:
    """A short source beside a long one has room for a long target, also in a search."""
    model = made(replace(PREFIX, positions="learned", max_positions=16))
    sources, targets = [[1] * 12, [2] * 3], [[3] * 4, [4] * 12]
    whole = logits(model, sources, targets)
    state = model.begin(model.encode(Tokens.padded(sources, PAD)))
    for place, token in enumerate([PAD, *targets[1][:3]]):
        stepped = model.step(torch.full((2,), token), state)
        torch.testing.assert_close(stepped[1], whole[1, place], atol=1e-5, rtol=1e-5)
