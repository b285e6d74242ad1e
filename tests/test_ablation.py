"""Heads switched off: the output projection sees zeros for them, and nobody else notices."""

from collections.abc import Callable

import pytest
import torch
from folders import SHAPE, ends_its_sentences
from torch import Tensor, nn

from transduce.errors import SettingError
from transduce.model import Head, Tokens, Transformer, without_heads

SIZE = 50
SOURCE, TARGET = [[3, 4, 5, 6, 0]], [[SIZE - 1, 7, 8, 9]]
ALL = [Head(part, layer, number) for part in ("encoder", "decoder", "cross") for layer in (0, 1) for number in range(4)]


@pytest.fixture
def model() -> Transformer:
    return ends_its_sentences(SHAPE, SIZE, SIZE)


@torch.no_grad()
def logits(model: Transformer) -> Tensor:
    memory = model.encode(Tokens.padded(SOURCE, SIZE - 1))
    return model.project(model.decode(Tokens.padded(TARGET, SIZE - 1), memory))


def zeroing(columns: slice) -> Callable[[nn.Module, tuple[Tensor]], tuple[Tensor]]:
    """The oracle: a hook that lays zeros where a head's output enters the projection."""

    def hook(module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        heads = given[0].clone()
        heads[..., columns] = 0
        return (heads,)

    return hook


@pytest.mark.parametrize("head", ALL, ids=lambda head: f"{head.part}-{head.layer}-{head.number}")
def test_off_means_that_the_output_projection_sees_zeros(model: Transformer, head: Head) -> None:
    found = logits(without_heads(model, [head]))
    ordinary = logits(model)
    attention = model.attentions()[head.part][head.layer]
    columns = slice(head.number * attention.d_v, (head.number + 1) * attention.d_v)
    attention.output.register_forward_pre_hook(zeroing(columns))
    torch.testing.assert_close(found, logits(model), atol=1e-6, rtol=1e-6)
    assert not torch.allclose(found, ordinary, atol=1e-3)


def test_the_model_itself_is_left_as_it_is(model: Transformer) -> None:
    before, names = logits(model), [name for name, _ in model.named_parameters()]
    twin = without_heads(model, ALL)
    assert not torch.allclose(logits(twin), before, atol=1e-3)
    assert torch.equal(logits(model), before)
    assert [name for name, _ in model.named_parameters()] == names


def test_what_is_not_switched_off_is_shared(model: Transformer) -> None:
    """A second model costs no second set of weights, and nothing of it is lost: tied tables stay tied."""
    twin = without_heads(model, [Head("decoder", 1, 2)])
    ours, theirs = dict(model.named_parameters()), dict(twin.named_parameters())
    assert [name for name in ours if ours[name] is not theirs[name]] == ["decoder.1.attention.output.weight"]
    assert twin.output_embedding is twin.target_embedding
    assert torch.equal(logits(without_heads(model)), logits(model))


@pytest.mark.parametrize(
    ("head", "complaint"),
    [
        (Head("middle", 0, 0), "choose one of encoder, decoder, cross"),
        (Head("encoder", 2, 0), "the model has layers 0 to 1"),
        (Head("cross", -1, 0), "the model has layers 0 to 1"),
        (Head("decoder", 0, 4), "the layer has heads 0 to 3"),
    ],
)
def test_a_head_that_is_not_there_is_refused(model: Transformer, head: Head, complaint: str) -> None:
    with pytest.raises(SettingError, match=complaint):
        without_heads(model, [head])
