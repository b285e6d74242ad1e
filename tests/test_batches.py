"""Plans and batches: every pair once, under the budget, the same for anyone who computes them again."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.config import TrainConfig
from transduce.data.batches import Batching, in_order, make_batch, padding_share
from transduce.model import IGNORED
from transduce.training.progress import Progress, last_step


class Memory:
    """Pairs in memory."""

    def __init__(self, lengths: list[tuple[int, int]]) -> None:
        draw = np.random.default_rng(0)
        self.sources = [draw.integers(2, 50, n) for n, _ in lengths]
        self.targets = [draw.integers(2, 50, n) for _, n in lengths]
        self.source_lengths = np.array([len(s) for s in self.sources], np.int32)
        self.target_lengths = np.array([len(t) for t in self.targets], np.int32)

    def source(self, index: int) -> np.ndarray:
        return self.sources[index]

    def target(self, index: int) -> np.ndarray:
        return self.targets[index]


lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=200)


@given(lengths, st.integers(20, 400), st.integers(30, 400), st.integers(0, 5), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_a_plan_has_every_pair_once(pairs: list, tokens: int, positions: int, seed: int, epoch: int) -> None:
    memory = Memory(pairs)
    plan = Batching(tokens, positions, seed).plan(memory, epoch)
    batches = [batch for step in plan for batch in step]
    assert sorted(np.concatenate(batches)) == list(range(len(pairs)))
    for batch in batches:
        width = max(memory.source_lengths[batch].max(), memory.target_lengths[batch].max())
        assert len(batch) == 1 or (len(batch) * width <= positions and memory.target_lengths[batch].sum() <= tokens)


def test_a_plan_is_a_function_of_seed_and_epoch() -> None:
    memory = Memory([(n % 17 + 1, n % 13 + 1) for n in range(500)])

    def flat(seed: int, epoch: int) -> list[list[int]]:
        return [batch.tolist() for step in Batching(200, 200, seed).plan(memory, epoch) for batch in step]

    assert flat(1, 2) == flat(1, 2)
    assert flat(1, 2) != flat(1, 3)
    assert flat(1, 2) != flat(2, 2)


def test_a_plan_has_the_pairs_it_is_given() -> None:
    memory = Memory([(n % 17 + 1, n % 13 + 1) for n in range(100)])
    passes = [np.arange(0, 100, 3), np.arange(50), np.arange(50)]
    plan = Batching(200, 200, 1).plan(memory, 0, passes)
    batches = [batch for step in plan for batch in step]
    assert sorted(np.concatenate(batches)) == sorted(np.concatenate(passes))
    assert all(len(set(batch)) == len(batch) for batch in batches)  # no pass has a pair twice, so no batch has


def test_steps_have_the_tokens_asked_for() -> None:
    draw = np.random.default_rng(1)
    memory = Memory([(int(n), int(n) + 1) for n in draw.integers(2, 40, 3000)])
    plan = Batching(2000, 256, 1).plan(memory, 0)
    sizes = [sum(int(memory.target_lengths[batch].sum()) for batch in step) for step in plan]
    assert np.mean(sizes[:-1]) == pytest.approx(2000, rel=0.02)
    assert max(sizes) < 2300


def test_similar_lengths_stand_together() -> None:
    draw = np.random.default_rng(2)
    memory = Memory([(max(1, int(n)), max(1, int(n * 1.1))) for n in draw.lognormal(3, 0.6, 5000)])
    batching = Batching(2048, 2048, 1)
    grouped = padding_share(batching, batching.plan(memory, 0), memory)
    random = padding_share(batching, [[batch] for batch in np.array_split(draw.permutation(5000), 100)], memory)
    assert grouped < 0.05
    assert random > 0.4


def test_a_batch_is_what_the_decoder_needs() -> None:
    memory = Memory([(3, 2), (2, 4)])
    batch = make_batch(memory, np.array([0, 1]), source_pad=98, target_pad=99)
    assert batch.target.ids[0].tolist() == [99, memory.targets[0][0], 99, 99]
    assert batch.target.ids[1].tolist() == [99, *memory.targets[1][:3]]
    assert batch.labels[0].tolist() == [*memory.targets[0], IGNORED, IGNORED]
    assert batch.source.ids[1].tolist() == [*memory.sources[1], 98]
    assert batch.tokens == 6
    assert batch.padding == pytest.approx(3 / 14)
    assert torch.equal(batch.target.segment, torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]]))


def test_validation_order_is_fixed_and_complete() -> None:
    memory = Memory([(n % 7 + 1, n % 5 + 1) for n in range(100)])
    once, again = (np.concatenate(list(in_order(memory, 64))) for _ in range(2))
    assert once.tolist() == again.tolist()
    assert sorted(once) == list(range(100))


@pytest.mark.parametrize(("epochs", "steps"), [(0.01, 1), (0.5, 3), (2, 12), (2.5, 15)])
def test_a_budget_in_epochs_is_turned_into_steps(epochs: float, steps: int) -> None:
    assert last_step(TrainConfig(steps=0, epochs=epochs), 6, Progress()) == steps
