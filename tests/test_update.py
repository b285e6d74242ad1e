"""One optimizer update: what is added, applied, forgotten and measured; and on a GPU, that a recorded step is the step."""

import copy
import math

import numpy as np
import pytest
import torch

from transduce.config import TrainConfig, TransformerConfig
from transduce.data.batches import Batch
from transduce.device import Device
from transduce.model import IGNORED, Tokens, Transformer
from transduce.training.loss import batch_loss
from transduce.training.optimizer import make_optimizer
from transduce.training.update import GraphedUpdate, PlainUpdate, TwinUpdate

pytestmark = pytest.mark.numerics

PAD = 40
CONFIG = TransformerConfig(d_model=32, d_ff=64, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, dropout=0.1)
TRAIN = TrainConfig(clip_norm=0.5)


def batch_of(rows: int, seed: int) -> Batch:
    """Rows of two sentences each."""
    draw = np.random.default_rng(seed)
    pairs = [
        [(draw.integers(2, PAD, 9).tolist(), draw.integers(2, PAD, 7).tolist()) for _ in range(2)] for _ in range(rows)
    ]
    return Batch(
        Tokens.packed([[s for s, _ in row] for row in pairs], PAD),
        Tokens.packed([[[PAD, *t[:-1]] for _, t in row] for row in pairs], PAD),
        Tokens.packed([[t for _, t in row] for row in pairs], IGNORED).ids,
    )


def model_on(device: str, dropout: float = 0.0) -> Transformer:
    torch.manual_seed(3)
    config = TransformerConfig(**{**CONFIG.__dict__, "dropout": dropout})
    return Transformer(config, PAD + 1, PAD + 1).to(device)


def plain(model: Transformer, train: TrainConfig = TRAIN) -> PlainUpdate:
    device = Device(next(model.parameters()).device.type, bf16=False)
    return PlainUpdate(model, make_optimizer(model, train), train, device)


def test_what_is_forgotten_leaves_no_trace() -> None:
    once, twice = plain(model_on("cpu")), plain(model_on("cpu"))
    twice.add(batch_of(3, 9), 42)
    twice.forget()
    for update in (once, twice):
        update.add(batch_of(3, 1), 42)
        update.apply(1e-2)
    assert once.measured() == twice.measured()
    for one, other in zip(once.model.parameters(), twice.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_measuring_starts_again() -> None:
    update = plain(model_on("cpu"))
    update.add(batch_of(3, 1), 42)
    update.apply(1e-3)
    first = update.measured()
    assert first.loss > 0
    assert first.finite
    assert update.measured().loss == 0


def test_what_is_not_a_number_is_not_applied() -> None:
    update = plain(model_on("cpu"))
    with torch.no_grad():
        update.model.output_embedding.weight[2].fill_(math.inf)
    before = {name: tensor.clone() for name, tensor in update.model.named_parameters()}
    update.add(batch_of(3, 1), 42)
    update.apply(1e-2)
    assert not update.measured().finite
    for name, tensor in update.model.named_parameters():
        assert torch.equal(tensor, before[name]), name


def test_a_cpu_shares_out_the_rows_of_a_batch_and_adds_the_same() -> None:
    whole, shared = plain(model_on("cpu")), plain(model_on("cpu"))
    batch = batch_of(5, 1)
    assert [len(share.labels) for share in batch.shares(2)] == [3, 2]
    assert len(batch.shares(9)) == 5
    whole.added += whole._backward(whole.model, batch, 70)
    shared.add(batch, 70)
    assert shared.added == pytest.approx(whole.added, rel=1e-5)
    for one, other in zip(whole.model.parameters(), shared.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-6, rtol=1e-4)


# --- by a copy in bfloat16 -------------------------------------------------------------------------------------


def test_a_twin_adds_the_gradients_of_its_batches_and_moves_the_weights_in_float32() -> None:
    """Against autograd on a copy in bfloat16; on a CPU, whose arithmetic is the same operation by operation."""
    model = model_on("cpu")
    twin = TwinUpdate(model, make_optimizer(model, TRAIN), TRAIN, Device("cpu", bf16=True))
    copied, before = copy.deepcopy(model).to(torch.bfloat16), copy.deepcopy(model)
    batches = [batch_of(3, seed) for seed in (1, 2)]
    for batch in batches:
        twin.add(batch, 84)
    gradients = []
    for batch in batches:
        (batch_loss(copied, batch, TRAIN.label_smoothing, TRAIN).minimised / 84).backward()
        gradients.append([parameter.grad.float() for parameter in copied.parameters()])
        copied.zero_grad()
    for parameter, one, other in zip(model.parameters(), *gradients, strict=True):
        torch.testing.assert_close(parameter.grad, one + other, atol=1e-3, rtol=2e-2)
    twin.apply(1e-4)
    measured = twin.measured()
    assert measured.finite
    assert measured.loss > 0
    assert any(not torch.equal(one, other) for one, other in zip(model.parameters(), before.parameters(), strict=True))
    for master, worker in zip(model.parameters(), twin.twin.parameters(), strict=True):
        assert master.dtype == torch.float32
        assert torch.equal(worker, master.to(torch.bfloat16))
    assert twin.measured().loss == 0


# --- on a GPU --------------------------------------------------------------------------------------------------


def graphed(model: Transformer, train: TrainConfig = TRAIN) -> GraphedUpdate:
    return GraphedUpdate(model, make_optimizer(model, train), train, Device("cuda", bf16=True))


@pytest.mark.gpu
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_recorded_step_is_the_step(dropout: float) -> None:
    """Steps replayed from graphs, of one batch and of two, against the same operations one by one: equal bits."""
    recorded, stepped = graphed(model_on("cuda", dropout)), graphed(model_on("cuda", dropout))
    for number, parts in enumerate([1, 2, 1, 2, 2]):
        batches = [batch_of(3, 10 * number + part).to("cuda") for part in range(parts)]
        torch.manual_seed(number)
        for batch in batches:
            recorded.add(batch, 84)
        recorded.apply(1e-2)
        torch.manual_seed(number)
        stepped.share.fill_(1 / 84)
        stepped.rate.fill_(1e-2)
        for part, batch in enumerate(batches):
            stepped._add(batch, first=part == 0)
        stepped._apply()
    for (name, one), other in zip(recorded.model.named_parameters(), stepped.model.parameters(), strict=True):
        assert torch.equal(one, other), name
    assert recorded.measured() == stepped.measured()


@pytest.mark.gpu
def test_a_recorded_step_is_near_the_plain_one() -> None:
    fast, slow = graphed(model_on("cuda")), plain(model_on("cuda"))
    for number in range(3):
        for update in (fast, slow):
            update.add(batch_of(3, number), 42)
            update.apply(1e-3)
    one, other = fast.measured(), slow.measured()
    assert one.loss == pytest.approx(other.loss, rel=1e-2)
    assert one.gradient_norm == pytest.approx(other.gradient_norm, rel=5e-2)


@pytest.mark.gpu
def test_a_graph_notices_what_is_not_a_number() -> None:
    update = graphed(model_on("cuda"))
    with torch.no_grad():
        update.twin.output_embedding.weight[2].fill_(math.inf)
    update.add(batch_of(3, 1), 42)
    update.apply(1e-2)
    assert not update.measured().finite


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_every_optimizer_steps_in_a_graph(optimizer: str) -> None:
    train = TrainConfig(optimizer=optimizer, schedule="constant", learning_rate=1e-2, clip_norm=1.0)  # type: ignore[arg-type]
    update, batch = graphed(model_on("cuda"), train), batch_of(3, 1)
    before = copy.deepcopy(update.model.state_dict())
    losses = []
    for _ in range(20):
        update.add(batch, 42)
        update.apply(1e-2)
        losses.append(update.measured().loss)
    assert losses[-1] < 0.8 * losses[0]
    assert any(not torch.equal(tensor, before[name]) for name, tensor in update.model.state_dict().items())
