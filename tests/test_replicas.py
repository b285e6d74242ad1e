"""A batch cut in shards has the gradient of the batch, and the same gradient every time."""

import copy

import numpy as np
import pytest
import torch
from tiny import backward, gradients, make_model

from transduce.model import Transformer
from transduce.model.dropout import dropout_generator, random_scale
from transduce.training.replicas import Replicas, count_replicas

pytestmark = pytest.mark.numerics


@pytest.mark.parametrize("count", [1, 2, 3])
def test_shards_add_up_to_the_batch(count: int) -> None:
    model = make_model()
    loss = backward(model, np.arange(9))
    expected = gradients(model)
    model.zero_grad()
    replicas = Replicas(model, count)
    for numbers in (np.arange(5), np.arange(5, 9)):
        loss -= replicas.accumulate(np.array_split(numbers, count), backward)
    assert loss == pytest.approx(0, abs=1e-3)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-4, rtol=1e-4)


def test_replicas_follow_the_weights_and_keep_no_gradient() -> None:
    model = make_model()
    replicas = Replicas(model, 2)
    before = replicas.accumulate([np.arange(4), np.arange(4, 9)], backward)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    assert replicas.accumulate([np.arange(4), np.arange(4, 9)], backward) != before
    assert all(p.grad is None for p in replicas.models[1].parameters())


def test_dropout_in_replicas_is_the_same_twice_and_differs_between_shards() -> None:
    """To the bit: this is what a resumed run relies on. Ties, attention dropout and all."""
    model = make_model(dropout=0.3, attention_dropout=0.2, activation_dropout=0.1)
    shards, seen = [np.arange(6), np.arange(6)], []

    def noted(model: Transformer, shard: np.ndarray) -> float:
        seen.append(loss := backward(model, shard))
        return loss

    results = []
    for _ in range(5):
        torch.manual_seed(3)
        model.zero_grad()
        results.append((Replicas(copy.deepcopy(model), 2).accumulate(shards, noted), sorted(seen[-2:])))
    assert results == [results[0]] * 5
    assert seen[0] != seen[1]


def test_a_failing_worker_fails_the_batch_and_threads_are_as_before() -> None:
    def fails(model: Transformer, shard: int) -> float:
        if shard:
            raise RuntimeError("out of memory")
        return 0.0

    threads = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="out of memory"):
        Replicas(make_model(), 2).accumulate([0, 1], fails)
    assert torch.get_num_threads() == threads


def test_no_thread_is_left_over() -> None:
    assert [count_replicas(threads) for threads in (1, 2, 3, 4, 5, 6, 8, 64)] == [1, 2, 3, 4, 1, 3, 4, 4]


def test_a_context_draws_from_its_own_generator() -> None:
    with dropout_generator(torch.Generator().manual_seed(5)):
        inside = random_scale(torch.ones(1000), 0.5)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert torch.equal(random_scale(torch.ones(1000), 0.5), inside)
    assert not torch.equal(torch.get_rng_state(), state)
