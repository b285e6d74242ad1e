"""Mixtures of experts: one expert is a feed-forward network, slots lose nothing, and the loss keeps experts equal."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import transduce
from tests.families import accuracy_after, write_pairs
from transduce.checkpoint import read_tensors
from transduce.config import build
from transduce.config.models import MoeConfig
from transduce.continuous import decoder as slot_decoder
from transduce.errors import SettingError
from transduce.exchange import hf, onnx_graphs
from transduce.metrics.scores import Score, Scores
from transduce.model import IGNORED, Tokens, Transformer, fused, make_model, training_flops
from transduce.model.experts import Experts, Routing, Slots, _imbalance
from transduce.model.layers import FeedForward
from transduce.model.mixture import MixtureOfExperts
from transduce.training.expert_shares import shares_section
from transduce.training.report import Terminal
from transduce.training.validation import ValidationResult
from transduce.translator import ct2_spec

pytestmark = pytest.mark.numerics

SIZE = 30
PAD = SIZE - 1
TINY = MoeConfig(
    family="moe",
    d_model=16,
    d_ff=24,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=2,
    dropout=0.0,
    num_experts=4,
)


def make(config: MoeConfig = TINY) -> MixtureOfExperts:
    torch.manual_seed(1)
    model = make_model(config, SIZE, SIZE).eval()
    assert isinstance(model, MixtureOfExperts)
    decide(*model.experts.values())
    return model


def decide(*layers: Experts) -> None:
    """Gates that prefer some experts; a new model has none."""
    for layer in layers:
        torch.nn.init.normal_(layer.gate.weight)


def sentences(*lengths: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, PAD, (n,), generator=generator).tolist() for n in lengths]


def one_segment(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(x.shape[:2], dtype=torch.long)


# --- oracles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize("training", [False, True])
def test_one_expert_is_a_feed_forward_network(activation: Any, training: bool) -> None:
    config = dataclasses.replace(TINY, num_experts=1, experts_per_token=1, activation=activation)
    experts, plain, x = Experts(config).train(training), FeedForward(config), torch.randn(2, 5, 16)
    with torch.no_grad():
        experts.inner[0].copy_(plain.inner.weight.T)
        experts.outer[0].copy_(plain.outer.weight.T)
        experts.inner_bias.copy_(plain.inner.bias.normal_().view(1, 1, -1))
        experts.outer_bias.copy_(plain.outer.bias.normal_().view(1, 1, -1))
    torch.testing.assert_close(experts(x, one_segment(x)), plain(x), atol=1e-5, rtol=1e-5)


def test_slots_give_what_a_loop_over_tokens_gives() -> None:
    experts, x = Experts(TINY).eval(), torch.randn(2, 6, 16)
    decide(experts)
    segment = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    with torch.no_grad():
        found, routing = experts(x, segment), experts.route(x.flatten(0, 1), (segment != 0).flatten())
        for n, token in enumerate(x.flatten(0, 1)):
            outputs = [
                torch.relu(token @ experts.inner[e] + experts.inner_bias[e, 0]) @ experts.outer[e]
                + experts.outer_bias[e, 0]
                for e in routing.experts[n].tolist()
            ]
            expected = sum(w * one for w, one in zip(routing.weights[n], outputs, strict=True))
            if segment.flatten()[n]:
                torch.testing.assert_close(found.flatten(0, 1)[n], expected, atol=1e-5, rtol=1e-5)


def test_gradients_through_slots_are_those_of_indexing() -> None:
    choices = torch.tensor([[0, 1], [1, 2], [0, 2], [1, 0]])
    real = torch.tensor([True, True, False, True])
    slots = Slots.assign(choices, real, 3, limit=2)
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: slots.collected(slots.filled(x).flatten(0, 1) ** 2), (x,))


def test_tokens_beyond_the_capacity_skip_an_expert_and_padding_takes_no_slot() -> None:
    choices = torch.zeros(5, 1, dtype=torch.long)  # all want expert 0
    slots = Slots.assign(choices, torch.tensor([True, False, True, True, True]), 2, limit=3)
    assert slots.slot[:, 0].tolist() == [0, 6, 1, 2, 6]  # 6 stands for none
    assert slots.token.tolist() == [0, 2, 3, 5, 5, 5]
    x = torch.arange(1.0, 6.0)[:, None]
    assert slots.filled(x)[:, :, 0].tolist() == [[1, 3, 4], [0, 0, 0]]
    assert slots.collected(slots.filled(x).flatten(0, 1))[:, 0].tolist() == [1, 0, 3, 4, 0]


def test_evaluation_drops_nothing_and_training_does() -> None:
    layer, x = Experts(dataclasses.replace(TINY, expert_capacity=1.0)), torch.randn(1, 12, 16).expand(3, 12, 16)
    decide(layer)
    experts = torch.zeros(36, 2, dtype=torch.long)
    real = torch.ones(36, dtype=torch.bool)
    assert layer.eval()._limit(experts, real) == 72
    assert layer.train()._limit(experts, real) == 18  # 36 tokens of 2 experts each, among 4
    assert layer(x, one_segment(x)).shape == x.shape


def test_the_loss_of_imbalance_is_zero_for_equal_experts_and_falls_as_they_become_equal() -> None:
    gates = torch.tensor([[2.0, 1.0, 0.0, -1.0], [0.0, -1.0, 2.0, 1.0]])
    equal = Routing(torch.tensor([[0, 1], [2, 3]]), torch.full((2, 2), 0.5))
    real = torch.tensor([True, True])
    same = float(_imbalance(equal, gates, gates, torch.full_like(gates, 0.1), real))
    unequal = Routing(torch.tensor([[0, 1], [0, 1]]), torch.full((2, 2), 0.5))
    other = float(_imbalance(unequal, gates[[0, 0]], gates[[0, 0]], torch.full_like(gates, 0.1), real))
    assert same < 1e-6
    assert other > 1


# --- the model -----------------------------------------------------------------------------------------------------


def test_token_by_token_is_all_at_once() -> None:
    model, source = make(), Tokens.padded(sentences(9, 4, 6), PAD)
    targets = [[PAD, *row] for row in sentences(7, 7, 7, seed=2)]
    with torch.no_grad():
        memory = model.encode(source)
        whole = model.project(model.decode(Tokens.padded(targets, PAD), memory))
        state = model.begin(memory)
        for place, column in enumerate(torch.tensor(targets).T):
            torch.testing.assert_close(model.step(column, state), whole[:, place], atol=1e-4, rtol=1e-4)


def test_alone_padded_and_packed_are_the_same() -> None:
    model, sources, targets = make(), sentences(6, 3, 5), sentences(4, 6, 2, seed=1)
    with torch.no_grad():
        alone = [
            model.decode(Tokens.padded([t], PAD), model.encode(Tokens.padded([s], PAD)))[0]
            for s, t in zip(sources, targets, strict=True)
        ]
        padded = model.decode(Tokens.padded(targets, PAD), model.encode(Tokens.padded(sources, PAD)))
        packed = model.decode(Tokens.packed([targets], PAD), model.encode(Tokens.packed([sources], PAD)))[0]
    for row, one in enumerate(alone):
        torch.testing.assert_close(padded[row, : len(one)], one, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(packed, torch.cat(alone), atol=1e-4, rtol=1e-4)


def test_the_loss_has_the_imbalance_and_every_parameter_a_gradient() -> None:
    model = make().train()
    source, target = Tokens.padded(sentences(6, 5), PAD), Tokens.padded(sentences(4, 6, seed=1), PAD)
    labels = torch.where(target.real, target.ids, IGNORED)
    loss = model.loss(source, target, labels, 0.0)
    assert float(loss.minimised.detach()) > float(loss.cross_entropy)
    loss.minimised.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert all(layer.imbalance is None for layer in model.experts.values())
    assert not torch.equal(loss.minimised, model.eval().loss(source, target, labels, 0.0).minimised)


def test_counting() -> None:
    model = make()
    with torch.no_grad(), model.counting() as counts:
        model.encode(Tokens.padded(sentences(6, 5), PAD))
    assert sum(counts["encoder.0"]) == 2 * 11
    assert counts["decoder.0"] == [0, 0, 0, 0]


def test_the_cost_is_what_torch_counts() -> None:
    """With a single expert no slot is empty. The counter does not see attention on a CPU: its length is taken for 0."""
    model = make(dataclasses.replace(TINY, num_experts=1, experts_per_token=1)).train()
    source, target = Tokens.padded(sentences(8, 8), PAD), Tokens.padded(sentences(8, 8, seed=1), PAD)
    with FlopCounterMode(display=False) as counter:
        model.project(model.decode(target, model.encode(source)))
    assert 3 * counter.get_total_flops() == training_flops(model.config, PAD, 16, 16, 0.0)


def test_the_parameters_are_those_of_a_transformer_and_its_experts() -> None:
    count = lambda model: sum(p.numel() for p in model.parameters())  # noqa: E731
    plain = count(Transformer(dataclasses.replace(TINY, family="transformer"), SIZE, SIZE))
    one = 16 * 24 * 2 + 24 + 16
    assert count(make()) == plain + 3 * (3 * one + 2 * 4 * 16)


def test_experts_learn() -> None:
    config = dataclasses.replace(TINY, d_model=32, d_ff=32, num_decoder_layers=1)
    assert accuracy_after(config, steps=240, rate=5e-3, reverse=True) > 0.9


# --- through the public functions ----------------------------------------------------------------------------------

SMALL = {
    "model.family": "moe", "model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2, "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1, "model.num_experts": 3, "train.device": "cpu", "train.threads": 2,
    "train.tokens_per_batch": 256, "train.checkpoint_every": 2, "train.validate_every": 4, "train.validate_lines": 2,
}  # fmt: skip


def test_a_run_is_resumed_to_the_bit_and_logs_what_each_expert_got(tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path, 80)
    transduce.train(tmp_path / "run", train=pairs, steps=2, settings=SMALL, quiet=True)
    transduce.train(tmp_path / "run", steps=4, quiet=True)
    transduce.train(tmp_path / "whole", train=pairs, steps=4, settings=SMALL, quiet=True)
    one, other = (read_tensors(tmp_path / n / "last.safetensors") for n in ("run", "whole"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    events = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (counts, *_) = (event["tokens_of_experts"] for event in events if "tokens_of_experts" in event)
    assert counts.keys() == {"encoder.0", "decoder.0"}
    assert all(len(tokens) == 3 and sum(tokens) > 0 for tokens in counts.values())
    assert len(transduce.load(tmp_path / "run", device="cpu").translate(["a b c", "d e"], beam=2)) == 2
    last = [event["tokens_of_experts"]["decoder.0"] for event in events if "tokens_of_experts" in event][-1]
    row = f"| decoder layer 1 | 3 | {min(last):,} | {sum(last) / 3:,.0f} | {max(last):,} |"
    assert row in (tmp_path / "run" / "README.md").read_text().splitlines()


def test_the_training_output_names_the_layer_with_the_least_equal_shares(capfd: pytest.CaptureFixture[str]) -> None:
    scores = Scores((Score("BLEU", 1.0, "nrefs:1", True),))
    counts = {"encoder.0": [1000, 1100, 1200], "encoder.1": [40, 0, 2000], "decoder.0": [5, 5, 5]}
    Terminal().validated("valid", 4, ValidationResult(1.0, scores, [], counts=counts), False)
    assert capfd.readouterr().err.splitlines()[1:] == [
        "    experts: each of the 3 in encoder layer 2 got 0 to 2,000 tokens of the validation data (mean 680); "
        "this layer has the least equal shares"
    ]
    Terminal().validated("valid", 4, ValidationResult(1.0, scores, []), False)
    assert "experts" not in capfd.readouterr().err


def test_only_models_with_experts_have_a_section_about_their_tokens() -> None:
    assert shares_section([{"event": "valid", "step": 1}]) == []
    (first, *_) = shares_section([{"event": "valid", "step": 1, "tokens_of_experts": {"encoder.0": [0, 0]}}])
    assert first == "## Tokens of each expert"


def test_fast_paths_and_exports_refuse_experts() -> None:
    """Although the settings are those of a Transformer and more, all at their defaults."""
    config = MoeConfig(family="moe")
    for declared in (fused.SUPPORTS, slot_decoder.SUPPORTS, ct2_spec.SUPPORTS, hf.SUPPORTS, onnx_graphs.SUPPORTS):
        assert declared.refusal(config) == 'model.family = "moe"'


def test_more_experts_per_token_than_there_are_is_refused() -> None:
    with pytest.raises(SettingError, match=r"model\.experts_per_token = 9: there are only model\.num_experts = 8"):
        build({"model": {"family": "moe", "experts_per_token": 9}})
