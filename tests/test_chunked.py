"""The loss in chunks is the plain loss, and so are its gradients."""

import numpy as np
import pytest
import torch
from tiny import backward, batch_of, gradients, make_model

from transduce.model.chunked_loss import ROWS, chunked_loss
from transduce.model.losses import Loss, both_losses, smoothed_loss
from transduce.training.loss import batch_loss

pytestmark = pytest.mark.numerics


@pytest.mark.parametrize("count", [1, ROWS, 2 * ROWS + 3])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased", [True, False])
def test_the_chunked_loss_is_cross_entropy_and_so_are_its_gradients(count: int, smoothing: float, biased: bool) -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(count, 8, requires_grad=True), torch.randn(30, 8, requires_grad=True)
    bias = torch.randn(30, requires_grad=True) if biased else None
    labels = torch.randint(30, (count,))
    inputs = [hidden, weight] + ([] if bias is None else [bias])
    loss = Loss(*chunked_loss(hidden, weight, bias, labels, smoothing))
    logits = torch.nn.functional.linear(hidden, weight, bias)
    ours, plain = loss.minimised, smoothed_loss(logits, labels, smoothing)
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(loss.cross_entropy, torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))
    assert not loss.cross_entropy.requires_grad
    for one, other in zip(torch.autograd.grad(ours / 7, inputs), torch.autograd.grad(plain / 7, inputs), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_hopeless_and_certain_labels_stay_finite() -> None:
    """A probability that underflows has a finite logarithm."""
    hidden, weight = torch.tensor([[400.0], [400.0]]), torch.tensor([[1.0], [-1.0]])
    assert float(chunked_loss(hidden, weight, None, torch.tensor([0, 1]), 0.0)[0]) == pytest.approx(800)


@pytest.mark.parametrize("tie", ["all", "none"])
@pytest.mark.parametrize("output_bias", [True, False])
def test_a_batch_loses_the_same_with_and_without_chunks(tie: str, output_bias: bool) -> None:
    """Padding is left out before the projection; without gradients the value is the same."""
    model, batch = make_model(tie=tie, output_bias=output_bias), batch_of(np.arange(9))
    hidden = model.decode(batch.target, model.encode(batch.source))
    plain = smoothed_loss(model.project(hidden), batch.labels, 0.1)
    plain.backward()
    expected = gradients(model)
    model.zero_grad()
    assert backward(model, np.arange(9)) == pytest.approx(float(plain.detach()), rel=1e-5)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        assert float(batch_loss(model, batch, 0.1).minimised) == pytest.approx(float(plain.detach()), rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_the_plain_loss_beside_the_smoothed_one(smoothing: float) -> None:
    """As validation measures it: the curves of a run have one scale. Padding has no share in it."""
    model, batch = make_model(), batch_of(np.arange(9))
    logits = model.project(model.decode(batch.target, model.encode(batch.source)))
    expected = float(smoothed_loss(logits, batch.labels, 0.0).detach())
    for loss in (both_losses(logits, batch.labels, smoothing), batch_loss(model, batch, smoothing)):
        assert float(loss.cross_entropy) == pytest.approx(expected, rel=1e-5)
        assert not loss.cross_entropy.requires_grad
