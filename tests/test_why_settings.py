"""Settings that take a choice of the paper back: unscaled and additive attention, BatchNorm, self-attention in a window."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import transduce
from tests.families import write_pairs
from tests.test_model import SIZE, TINY, decoder_inputs, logits, make, sentences
from tests.tiny import batch_of, make_model
from transduce.checkpoint import read_tensors
from transduce.config import TrainConfig
from transduce.device import Device
from transduce.model import Tokens, training_flops
from transduce.model.additive import additive_scores
from transduce.model.attention import MultiHeadAttention
from transduce.model.batch_norm import TokenBatchNorm
from transduce.model.tokens import keep_earlier, keep_same_sentence
from transduce.model.windowed import pays_off, windowed_attention
from transduce.training.optimizer import make_optimizer
from transduce.training.update import PlainUpdate

pytestmark = pytest.mark.numerics

CPU = Device("cpu", bf16=False)
PAD = SIZE - 1


# --- attention -----------------------------------------------------------------------------------------------------


def test_unscaled_attention_is_scaled_attention_with_longer_queries() -> None:
    plain, unscaled = (MultiHeadAttention(dataclasses.replace(TINY, attention=kind)) for kind in ("scaled", "dot"))
    unscaled.load_state_dict(plain.state_dict())
    with torch.no_grad():  # queries times sqrt(d_k) undo the factor
        plain.stacked.weight[: plain.widths[0]] *= plain.d_k**0.5
        plain.stacked.bias[: plain.widths[0]] *= plain.d_k**0.5
    tokens = Tokens.padded(sentences(7, 4), PAD)
    x, keep = torch.randn(2, 7, 32), keep_same_sentence(tokens.segment)
    found, expected = (module.to_self(x, tokens.position, keep) for module in (unscaled, plain))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_additive_scores_and_their_gradients_are_those_of_the_plain_formula() -> None:
    inputs = [torch.randn(*shape, requires_grad=True) for shape in ((2, 3, 5, 4), (2, 3, 6, 4), (3, 4, 1))]
    queries, keys, vector = inputs
    plain = (torch.tanh(queries[:, :, :, None] + keys[:, :, None]) * vector[None, :, None, None, :, 0]).sum(-1)
    factor = torch.randn_like(plain)
    expected = torch.autograd.grad((plain * factor).sum(), inputs)
    scores = additive_scores(queries, keys, vector)
    torch.testing.assert_close(scores, plain, atol=1e-5, rtol=1e-5)
    for found, wanted in zip(torch.autograd.grad((scores * factor).sum(), inputs), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [17, 24])
def test_blocks_give_what_the_mask_gives(causal: bool, width: int) -> None:
    segment = torch.tensor([[1] * 9 + [2] * (width - 9), [1] * 12 + [0] * (width - 12)])
    keep = (keep_earlier if causal else keep_same_sentence)(segment, 3)
    assert pays_off(keep)
    queries, keys, values = torch.randn(3, 2, 2, width, 4)
    expected = nn.functional.scaled_dot_product_attention(queries, keys, values, keep.mask, scale=0.5)
    found = windowed_attention(queries, keys, values, keep, 0.5)
    real = (segment != 0)[:, None, :, None]
    torch.testing.assert_close(found * real, expected * real, atol=1e-5, rtol=1e-5)


def test_what_is_outside_the_window_changes_nothing() -> None:
    """Two layers of window 2 reach four positions to each side."""
    model = make(dataclasses.replace(TINY, window=2))
    (ids,) = sentences(30)
    changed = [*ids[:20], ids[20] - 1 if ids[20] > 2 else 3, *ids[21:]]
    with torch.no_grad():
        one, other = (model.encode(Tokens.padded([row], PAD)).hidden[0] for row in (ids, changed))
    moved = (one - other).abs().amax(1) > 1e-6
    assert moved[16:25].all()
    assert not moved[:16].any()
    assert not moved[25:].any()


def test_a_long_target_in_a_window_is_decoded_token_by_token_as_at_once() -> None:
    model = make(dataclasses.replace(TINY, window=2))
    source, (target,) = Tokens.padded(sentences(12), PAD), decoder_inputs(sentences(20))
    at_once = logits(model, source, Tokens.padded([target], PAD))[0]
    with torch.no_grad():
        state = model.begin(model.encode(source))
        each = torch.cat([model.step(torch.tensor([token]), state) for token in target])
    torch.testing.assert_close(each, at_once, atol=1e-5, rtol=1e-5)


def test_a_window_costs_less() -> None:
    whole = training_flops(TINY, SIZE, 1_000, 1_000, 100.0)
    windows = [training_flops(dataclasses.replace(TINY, window=w), SIZE, 1_000, 1_000, 100.0) for w in (2, 200)]
    assert windows[0] < whole == windows[1]


# --- BatchNorm -----------------------------------------------------------------------------------------------------


def test_batch_norm_is_torchs_over_the_real_tokens() -> None:
    ours, theirs = TokenBatchNorm(6, eps=1e-5), nn.BatchNorm1d(6, eps=1e-5)
    real = torch.arange(7) < torch.tensor([7, 2, 4])[:, None]
    for _ in range(3):
        x = 3 * torch.randn(3, 7, 6) + 1
        torch.testing.assert_close(ours(x, real)[real], theirs(x[real]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.running_var, theirs.running_var, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.eval()(x, real)[real], theirs.eval()(x[real]), atol=1e-5, rtol=1e-5)


def test_a_step_that_is_not_applied_leaves_the_statistics_as_they_were() -> None:
    """Otherwise the batch that is tried before training would make a resumed run another run."""
    model, train = make_model(norm_kind="batch"), TrainConfig()
    update, batch = PlainUpdate(model, make_optimizer(model, train), train, CPU), batch_of(range(6))  # type: ignore[arg-type]
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for _ in range(2):
        update.add(batch, batch.tokens)
    update.forget()
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    update.add(batch, batch.tokens)
    update.apply(1e-3)
    assert not torch.equal(model.encoder[0].attention_residual.norm.running_mean, torch.zeros(16))  # type: ignore[arg-type]


SMALL: dict[str, Any] = {
    "model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2, "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1, "model.norm_kind": "batch", "train.device": "cpu", "train.threads": 1,
    "train.tokens_per_batch": 256, "train.checkpoint_every": 2, "train.validate_every": 4, "train.average": 2,
    "train.validate_lines": 2,
}  # fmt: skip


def test_a_resumed_run_with_batch_norm_is_the_run_that_was_never_stopped(tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path, 80)
    for name, stops in (("whole", [4]), ("resumed", [2, 4])):
        for steps in stops:
            settings = SMALL if steps == stops[0] else {}
            transduce.train(tmp_path / name, train=pairs, steps=steps, settings=settings, quiet=True)
    one, other = (read_tensors(tmp_path / name / "last.safetensors") for name in ("whole", "resumed"))
    assert any("running_mean" in name for name in one)
    assert all(torch.equal(one[name], other[name]) for name in one)
    averaged = read_tensors(tmp_path / "whole" / "averaged.safetensors")
    assert not torch.equal(*(each["encoder.0.attention_residual.norm.running_mean"] for each in (averaged, one)))
