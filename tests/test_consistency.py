"""R-Drop against its formula, token by token, and with several sentences a row."""

import dataclasses

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from transduce.config import TrainConfig, TransformerConfig
from transduce.data.batches import Batch
from transduce.model import IGNORED, Tokens, Transformer
from transduce.training.loss import batch_loss

pytestmark = pytest.mark.numerics

TINY = TransformerConfig(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, dropout=0.3)
SOURCES = [[1, 2, 3, 0], [4, 5, 0], [6, 7, 1, 2, 3, 0]]
TARGETS = [[3, 2, 0], [5, 4, 6, 1, 0], [2, 0]]
SIZE = 9
PAD = SIZE - 1
R_DROP = TrainConfig(r_drop=5.0)


def make(dropout: float = 0.3) -> Transformer:
    torch.manual_seed(0)
    return Transformer(dataclasses.replace(TINY, dropout=dropout), SIZE, SIZE).train()


def batch_of(rows: list[list[int]]) -> Batch:
    """The pairs of these numbers in each row."""

    def tokens(sentences: list[list[int]], pad: int) -> Tokens:
        return Tokens.packed([[sentences[number] for number in row] for row in rows], pad)

    labels = tokens(TARGETS, IGNORED)
    return Batch(tokens(SOURCES, PAD), tokens([[PAD, *t[:-1]] for t in TARGETS], PAD), labels.ids)


PADDED, PACKED = batch_of([[0], [1], [2]]), batch_of([[0, 1], [2]])


def doubled(batch: Batch) -> Batch:
    return Batch(batch.source.doubled(), batch.target.doubled(), torch.cat([batch.labels, batch.labels]))


def logits_of(model: Transformer, batch: Batch) -> Tensor:
    return model.project(model.decode(batch.target, model.encode(batch.source))).double()


def literal(one: Tensor, other: Tensor, batch: Batch, smoothing: float) -> dict[str, Tensor]:
    """Sums over the places that have a label, class by class, `<pad>` not among them."""
    sums = {name: one.new_zeros(()) for name in ("first", "second", "forward", "backward")}
    for place in zip(*torch.where(batch.labels != IGNORED), strict=True):
        label = int(batch.labels[place])
        p, q = one[place].softmax(-1), other[place].softmax(-1)
        assert len(p) == PAD
        wanted = [smoothing / PAD + (1 - smoothing) * (c == label) for c in range(PAD)]
        for c in range(PAD):
            sums["first"] = sums["first"] - wanted[c] * p[c].log()
            sums["second"] = sums["second"] - wanted[c] * q[c].log()
            sums["forward"] = sums["forward"] + p[c] * (p[c].log() - q[c].log())
            sums["backward"] = sums["backward"] + q[c] * (q[c].log() - p[c].log())
    return sums


def gradient(model: Transformer, loss: Tensor) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)])


@pytest.mark.parametrize("batch", [PADDED, PACKED], ids=["padded", "packed"])
def test_r_drop_is_its_formula(batch: Batch) -> None:
    """Half of: both cross-entropies, and the weight times the mean of both divergences."""
    model = make()
    torch.manual_seed(3)
    loss, plain = batch_loss(model, batch, 0.1, R_DROP)
    torch.manual_seed(3)
    one, other = logits_of(model, doubled(batch)).chunk(2)
    sums = literal(one, other, batch, 0.1)
    divergence = (sums["forward"] + sums["backward"]) / 2
    assert divergence.item() > 0.01
    expected = (sums["first"] + sums["second"] + 5.0 * divergence) / 2
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    unsmoothed = literal(one, other, batch, 0.0)
    assert plain.item() == pytest.approx((unsmoothed["first"] + unsmoothed["second"]).item() / 2, rel=1e-5)
    torch.testing.assert_close(gradient(model, loss), gradient(model, expected), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("batch", [PADDED, PACKED], ids=["padded", "packed"])
def test_equal_passes_diverge_by_nothing(batch: Batch) -> None:
    model = make(dropout=0.0)
    for one, other in zip(batch_loss(model, batch, 0.1, R_DROP), batch_loss(model, batch, 0.1), strict=True):
        assert one.item() == pytest.approx(other.item(), rel=1e-5)


def test_padding_is_not_counted() -> None:
    """Columns of padding on both sides do not change the loss."""

    def wider(tokens: Tokens) -> Tokens:
        more = torch.zeros(len(tokens.ids), 3, dtype=torch.long)
        ids, position, segment = tokens.ids, tokens.position, tokens.segment
        return Tokens(torch.cat([ids, more + PAD], 1), torch.cat([position, more], 1), torch.cat([segment, more], 1))

    labels = torch.cat([PADDED.labels, torch.full((3, 3), IGNORED)], 1)
    wide = Batch(wider(PADDED.source), wider(PADDED.target), labels)
    model = make(dropout=0.0)
    losses = (batch_loss(model, batch, 0.1, R_DROP) for batch in (wide, PADDED))
    for one, other in zip(*losses, strict=True):
        assert one.item() == pytest.approx(other.item(), rel=1e-5)


def test_the_loss_never_waits_for_the_device() -> None:
    """Fake tensors have no values, so reading one is an error; a CUDA graph cannot capture such a read either."""
    with FakeTensorMode():
        ids = torch.ones(2, 5, dtype=torch.long)
        tokens = Tokens(ids, ids, ids)
        batch_loss(make(), Batch(tokens, tokens, ids), 0.1, R_DROP).minimised.backward()
