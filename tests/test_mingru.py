"""The family mingru: the scan is a loop, its gradient is autograd's, costs are counted products, and it learns."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tests.families import MINGRU, accuracy_after, make
from transduce.config import build
from transduce.config.models import MinGruConfig
from transduce.errors import SettingError
from transduce.model import IGNORED, Tokens, kept_activations, mingru, parameter_shapes, training_flops
from transduce.model.checks import PAD, SIZE
from transduce.model.mingru import GatedRecurrence, Scan, parallel_scan, sequential_scan, states_of_rows

pytestmark = pytest.mark.numerics


def loop(decay: Tensor, inputs: Tensor) -> Tensor:
    """h_t = decay_t * h_{t-1} + input_t, written out."""
    states, state = [], torch.zeros_like(inputs[:, 0])
    for t in range(inputs.shape[1]):
        state = decay[:, t] * state + inputs[:, t]
        states.append(state)
    return torch.stack(states, 1)


@pytest.mark.parametrize("way", [parallel_scan, sequential_scan])
@pytest.mark.parametrize("width", [1, 2, 3, 8, 13])
def test_a_scan_and_its_gradient_are_those_of_a_loop(width: int, way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU it is computed step by step, and on a GPU in rounds."""
    monkeypatch.setattr(mingru, "scan", way)
    torch.manual_seed(1)
    decay, inputs, above = (torch.rand(2, width, 3, dtype=torch.float64) for _ in range(3))
    given = decay.requires_grad_(), inputs.requires_grad_()
    ours, theirs = Scan.apply(*given), loop(*given)
    torch.testing.assert_close(ours, theirs)
    for one, other in zip(
        torch.autograd.grad(ours, given, above), torch.autograd.grad(theirs, given, above), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_every_sentence_of_a_row_begins_with_nothing() -> None:
    torch.manual_seed(1)
    decay, inputs = torch.rand(1, 7, 3), torch.randn(1, 7, 3)
    segment = torch.tensor([[1, 1, 1, 2, 2, 0, 0]])
    for backwards in (False, True):
        found = states_of_rows(decay, inputs, segment, backwards)
        for part in (slice(0, 3), slice(3, 5)):
            inside = decay[:, part], inputs[:, part]
            expected = loop(*(x.flip(1) for x in inside)).flip(1) if backwards else loop(*inside)
            torch.testing.assert_close(found[:, part], expected)


def test_a_recurrence_is_its_equations() -> None:
    """h_t = f_t * h_{t-1} + (1 - f_t) * c_t, half of the channels from right to left."""
    torch.manual_seed(1)
    layer, x = GatedRecurrence(6, bidirectional=True, longest_memory=8), torch.randn(1, 5, 6)
    with torch.no_grad():
        gate, candidate = layer.gates(x).chunk(2, -1)
        f = gate.sigmoid()
        there, back = loop(f, (1 - f) * candidate), loop(f.flip(1), ((1 - f) * candidate).flip(1)).flip(1)
        expected = layer.output(torch.cat([there[..., :3], back[..., 3:]], -1))
        torch.testing.assert_close(layer(x, torch.ones(1, 5, dtype=torch.long)), expected, atol=1e-6, rtol=1e-5)


def test_channels_begin_with_the_memories_that_are_set() -> None:
    layer = GatedRecurrence(8, bidirectional=True, longest_memory=16)
    memory = 1 / (1 - layer.gates.bias[:8].sigmoid())  # of a share f that is kept, the mean is 1 / (1 - f) tokens
    torch.testing.assert_close(memory, torch.cat([torch.linspace(2, 16, 4)] * 2), atol=1e-4, rtol=1e-4)


def test_the_sizes_are_those_of_a_transformer_whose_attention_is_a_recurrence() -> None:
    """A recurrence has the three matrices of gate, candidate and output; self-attention has four."""
    d, ids = 512, 37_000
    norms, feed_forward = 2 * d, 2 * d * 2048 + 2048 + d
    layer = 3 * d * d + 3 * d + norms + feed_forward + norms
    attention = 4 * d * d + 4 * d + norms
    expected = ids * d + 12 * layer + 6 * attention + 2 * norms
    shapes = parameter_shapes(MinGruConfig(family="mingru"), ids, ids)
    assert sum(shape.numel() for shape in shapes.values()) == expected


def test_the_cost_is_what_torch_counts() -> None:
    """The counter does not see attention on a CPU: its length is taken for 0."""
    model = make(MINGRU).train()
    ids = Tokens.padded([[3, 4, 5, 6, 0]] * 2, PAD)
    with FlopCounterMode(display=False) as counter:
        model.project(model.decode(ids, model.encode(ids)))
    assert 3 * counter.get_total_flops() == training_flops(MINGRU, SIZE - 1, 10, 10, 0.0)


def test_activations_are_about_what_autograd_keeps() -> None:
    config = replace(MINGRU, d_model=64, d_ff=256, dropout=0.1)
    model, ids = make(config).train(), Tokens.padded([[3, 4, 5, 6, 7, 8, 9, 0]] * 4, PAD)
    kept: dict[int, int] = {}
    parameters = {parameter.data_ptr() for parameter in model.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point() and tensor.data_ptr() not in parameters:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.decode(ids, model.encode(ids))
    assert kept_activations(config, 32, 32, True) == pytest.approx(sum(kept.values()), rel=0.25)


def test_a_short_word_is_learned_backwards() -> None:
    config = replace(MINGRU, d_model=32, d_ff=32, num_encoder_layers=1, num_decoder_layers=1)
    assert accuracy_after(config, steps=100, rate=1e-2, reverse=True) > 0.9


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(SettingError, match=r"model\.d_model = 30 does not divide by model\.num_heads = 8"):
        build({"model": {"family": "mingru", "d_model": 30}})


def test_one_vocabulary_is_needed_to_tie_both_sides() -> None:
    with pytest.raises(SettingError, match=r'model\.tie = "all" needs one vocabulary'):
        build({"model": {"family": "mingru"}, "data": {"joint": False}})


def test_padding_has_no_part_in_the_loss() -> None:
    model, ids = make(MINGRU), [[3, 4, 0], [5, 0]]
    labels = Tokens.padded(ids, IGNORED).ids
    together = model.loss(Tokens.padded(ids, PAD), Tokens.padded([[PAD, 3, 4], [PAD, 5]], PAD), labels, 0.0).minimised
    alone = [
        model.loss(
            Tokens.padded([row], PAD), Tokens.padded([[PAD, *row[:-1]]], PAD), torch.tensor([row]), 0.0
        ).minimised
        for row in ids
    ]
    torch.testing.assert_close(together, sum(alone), atol=1e-4, rtol=1e-4)
