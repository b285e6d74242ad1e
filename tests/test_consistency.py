"""R-Drop and SimCut against their formulas, token by token, and with several sentences a row."""

import dataclasses

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from transduce.config import ModelConfig, TrainConfig
from transduce.data.batches import Batch
from transduce.model import Tokens, Transformer
from transduce.training.consistency import beside, r_drop_loss, simcut_loss, with_cuts
from transduce.training.loss import batch_loss

pytestmark = [pytest.mark.numerics, pytest.mark.usefixtures("few_threads")]

TINY = ModelConfig(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, dropout=0.3)
SOURCES = [[1, 2, 3, 0], [4, 5, 0], [6, 7, 1, 2, 3, 0]]
TARGETS = [[3, 2, 0], [5, 4, 6, 1, 0], [2, 0]]
SIZE = 9
PAD = SIZE - 1
R_DROP, SIMCUT = TrainConfig(r_drop=5.0), TrainConfig(simcut=3.0, simcut_rate=0.4)


def make(dropout: float = 0.3) -> Transformer:
    torch.manual_seed(0)
    return Transformer(dataclasses.replace(TINY, dropout=dropout), SIZE, SIZE).train()


def batch_of(rows: list[list[int]]) -> Batch:
    """The pairs of these numbers in each row."""

    def tokens(sentences: list[list[int]], pad: int) -> Tokens:
        return Tokens.packed([[sentences[number] for number in row] for row in rows], pad)

    labels = tokens(TARGETS, Batch.IGNORED)
    return Batch(tokens(SOURCES, PAD), tokens([[PAD, *t[:-1]] for t in TARGETS], PAD), labels.ids)


PADDED, PACKED = batch_of([[0], [1], [2]]), batch_of([[0, 1], [2]])


def logits_of(model: Transformer, batch: Batch) -> Tensor:
    return model.project(model.decode(batch.target, model.encode(batch.source))).double()


def literal(one: Tensor, other: Tensor, batch: Batch, smoothing: float) -> dict[str, Tensor]:
    """Sums over the places that have a label, class by class, `<pad>` not among them."""
    sums = {name: one.new_zeros(()) for name in ("first", "second", "forward", "backward")}
    for place in zip(*torch.where(batch.labels != Batch.IGNORED), strict=True):
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
    loss, plain = r_drop_loss(model, batch, 0.1, R_DROP)
    torch.manual_seed(3)
    one, other = logits_of(model, beside(batch, batch)).chunk(2)
    sums = literal(one, other, batch, 0.1)
    divergence = (sums["forward"] + sums["backward"]) / 2
    assert divergence.item() > 0.01
    expected = (sums["first"] + sums["second"] + 5.0 * divergence) / 2
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    unsmoothed = literal(one, other, batch, 0.0)
    assert plain.item() == pytest.approx((unsmoothed["first"] + unsmoothed["second"]).item() / 2, rel=1e-5)
    torch.testing.assert_close(gradient(model, loss), gradient(model, expected), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("batch", [PADDED, PACKED], ids=["padded", "packed"])
def test_simcut_is_its_formula_with_the_gradient_through_both_passes(batch: Batch) -> None:
    model = make()
    torch.manual_seed(3)
    loss, plain = simcut_loss(model, batch, 0.1, SIMCUT)
    torch.manual_seed(3)
    whole, cut = logits_of(model, beside(batch, with_cuts(model, batch, 0.4))).chunk(2)
    sums = literal(whole, cut, batch, 0.1)
    assert sums["forward"].item() > 0.01
    expected = sums["first"] + 3.0 * sums["forward"]
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert plain.item() == pytest.approx(literal(whole, cut, batch, 0.0)["first"].item(), rel=1e-5)
    found = gradient(model, loss)
    torch.testing.assert_close(found, gradient(model, expected), atol=1e-4, rtol=1e-4)
    stopped = sums["first"] + 3.0 * literal(whole.detach(), cut, batch, 0.1)["forward"]
    assert (found - gradient(model, stopped)).abs().max() > 0.01


@pytest.mark.parametrize("batch", [PADDED, PACKED], ids=["padded", "packed"])
@pytest.mark.parametrize("train", [R_DROP, dataclasses.replace(SIMCUT, simcut_rate=0.0)], ids=["r_drop", "simcut"])
def test_equal_passes_diverge_by_nothing(batch: Batch, train: TrainConfig) -> None:
    model = make(dropout=0.0)
    for one, other in zip(batch_loss(model, batch, 0.1, train), batch_loss(model, batch, 0.1), strict=True):
        assert one.item() == pytest.approx(other.item(), rel=1e-5)


def test_packed_is_padded() -> None:
    """Every token cut, so that nothing is random: what is a row's other sentence changes nothing."""
    model, train = make(dropout=0.0), dataclasses.replace(SIMCUT, simcut_rate=1.0)
    padded, packed = (simcut_loss(model, batch, 0.1, train).minimised.item() for batch in (PADDED, PACKED))
    assert packed == pytest.approx(padded, rel=1e-5)
    assert padded > batch_loss(model, PADDED, 0.1).minimised.item() + 0.01


def test_padding_is_not_counted() -> None:
    """Columns of padding on both sides change neither loss."""

    def wider(tokens: Tokens) -> Tokens:
        more = torch.zeros(len(tokens.ids), 3, dtype=torch.long)
        ids, position, segment = tokens.ids, tokens.position, tokens.segment
        return Tokens(torch.cat([ids, more + PAD], 1), torch.cat([position, more], 1), torch.cat([segment, more], 1))

    labels = torch.cat([PADDED.labels, torch.full((3, 3), Batch.IGNORED)], 1)
    wide = Batch(wider(PADDED.source), wider(PADDED.target), labels)
    model = make(dropout=0.0)
    for loss, train in ((r_drop_loss, R_DROP), (simcut_loss, dataclasses.replace(SIMCUT, simcut_rate=1.0))):
        for one, other in zip(loss(model, wide, 0.1, train), loss(model, PADDED, 0.1, train), strict=True):
            assert one.item() == pytest.approx(other.item(), rel=1e-5)


def test_a_cut_token_keeps_its_place_and_its_sentence() -> None:
    model = make()
    torch.manual_seed(1)
    cut = with_cuts(model, PACKED, 0.4)
    for before, after in ((PACKED.source, cut.source), (PACKED.target, cut.target)):
        assert torch.equal(before.position, after.position)
        assert torch.equal(before.segment, after.segment)
        changed = before.ids != after.ids
        assert 0 < int(changed.sum()) < int(before.real.sum())
        assert (after.ids[changed] == PAD).all()
    assert torch.equal(cut.labels, PACKED.labels)


def test_the_share_that_is_cut() -> None:
    ids = torch.ones(100, 100, dtype=torch.long)
    tokens = Tokens(ids, ids, ids)
    cut = with_cuts(make(), Batch(tokens, tokens, ids), 0.05)
    assert float((cut.source.ids == PAD).float().mean()) == pytest.approx(0.05, abs=0.01)
    assert not torch.equal(cut.source.ids, cut.target.ids)


@pytest.mark.parametrize("train", [R_DROP, SIMCUT], ids=["r_drop", "simcut"])
def test_a_loss_asks_the_host_for_nothing(train: TrainConfig) -> None:
    """On tensors without values, where reading one is an error: what waits for the device cannot be captured."""
    with FakeTensorMode():
        ids = torch.ones(2, 5, dtype=torch.long)
        tokens = Tokens(ids, ids, ids)
        batch_loss(make(), Batch(tokens, tokens, ids), 0.1, train).minimised.backward()
