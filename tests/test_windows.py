"""Windows: the epochs of a large corpus, a bounded number of pairs at a time and in an order that can be recomputed."""

import random
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import transduce
from transduce.checkpoint import RunFolder, read_about
from transduce.data import Mixture, Windows
from transduce.data.batches import Batching
from transduce.data.pages import Paging
from transduce.data.windows import LARGE, WINDOW, shuffled, usual_window
from transduce.training.feed import Place, PlannedWindow, step_batches
from transduce.training.progress import Progress


@given(st.integers(1, 5_000), st.integers(0, 1 << 40), st.integers(0, 99))
def test_a_shuffle_sends_every_position_somewhere_else(count: int, seed: int, epoch: int) -> None:
    sent = shuffled(np.arange(count), count, [seed, epoch])
    assert np.array_equal(np.sort(sent), np.arange(count))
    some = np.arange(0, count, 7)
    assert np.array_equal(shuffled(some, count, [seed, epoch]), sent[some])  # without the others


def test_a_shuffle_is_as_good_as_a_random_one() -> None:
    sent = shuffled(np.arange(1 << 16), 10_000_000, [1, 0])
    in_tenths = np.histogram(sent, 10, (0, 10_000_000))[0]
    assert abs(in_tenths - 6_553.6).max() < 6 * 77  # standard deviations
    assert abs(np.corrcoef(sent[:-1], sent[1:])[0, 1]) < 6 / 256
    gaps = np.diff(np.sort(sent))
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.05)  # as of independent draws
    other = shuffled(np.arange(1 << 16), 10_000_000, [1, 1])
    assert abs(np.corrcoef(sent, other)[0, 1]) < 6 / 256


corpora = st.lists(st.tuples(st.integers(0, 60), st.decimals(0, 4, places=1)), min_size=1, max_size=3)


@settings(max_examples=40, deadline=None)
@given(corpora, st.integers(0, 50), st.integers(30, 90))
def test_the_windows_of_an_epoch_have_its_pairs(corpora: list, epoch: int, size: int) -> None:
    mixture = Mixture.of(tuple(n for n, _ in corpora), tuple(str(weight) for _, weight in corpora))
    windows = Windows(mixture, 1, size)
    parts = [windows.passes(epoch, number)[0] for number in range(windows.count(epoch))]
    assert all(0 < len(part) <= size for part in parts)
    found = np.bincount(np.concatenate([*parts, np.zeros(0, int)]), minlength=sum(mixture.pairs))
    expected = np.bincount(np.concatenate(mixture.epoch(1, epoch)), minlength=sum(mixture.pairs))
    ends = np.cumsum(mixture.pairs)
    for begin, end in zip(ends - mixture.pairs, ends, strict=True):  # which pairs of a half are taken differs
        assert sorted(found[begin:end]) == sorted(expected[begin:end])
    with pytest.raises(IndexError):
        windows.passes(epoch, len(parts))


@settings(max_examples=30, deadline=None)
@given(corpora, st.integers(0, 50), st.integers(1, 5), st.integers(30, 90))
def test_over_any_epochs_pairs_of_a_corpus_are_used_equally_often(
    corpora: list, first: int, epochs: int, size: int
) -> None:
    mixture = Mixture.of(tuple(n for n, _ in corpora), tuple(str(weight) for _, weight in corpora))
    windows = Windows(mixture, 1, size)
    numbers = [
        windows.passes(epoch, number)[0]
        for epoch in range(first, first + epochs)
        for number in range(windows.count(epoch))
    ]
    found = np.bincount(np.concatenate([*numbers, np.zeros(0, int)]), minlength=sum(mixture.pairs))
    for part in np.split(found, np.cumsum(mixture.pairs)[:-1]):
        assert max(part, default=0) - min(part, default=0) <= 1


def test_a_pass_has_no_pair_twice() -> None:
    with patch("transduce.data.mixing.PASS", 10):
        windows = Windows(Mixture.of((100, 40), ("1", "3")), 1, 64)
        for number in range(windows.count(5)):
            (numbers,) = windows.passes(5, number)
            assert len(set(numbers.tolist())) == len(numbers)


def test_small_corpora_and_older_runs_are_planned_as_a_whole() -> None:
    assert usual_window(Mixture.of((LARGE,), ())) == 0
    assert usual_window(Mixture.of((LARGE + 1,), ())) == WINDOW
    assert usual_window(Mixture.of((LARGE,), ("2",))) == WINDOW
    assert Progress().pairs_per_window == -1
    assert Progress.of({"step": 3}).pairs_per_window == 0
    whole = Windows(Mixture.of((10,), ()), 1)
    assert (whole.count(3), whole.passes(3, 0)[0].tolist()) == (1, list(range(10)))


class Lengths:
    """Pairs of random lengths."""

    def __init__(self, count: int) -> None:
        draw = np.random.default_rng(0)
        self.source_lengths, self.target_lengths = (draw.integers(2, 40, count).astype(np.int32) for _ in range(2))

    def source(self, number: int) -> np.ndarray:
        return np.arange(self.source_lengths[number])

    def target(self, number: int) -> np.ndarray:
        return number + np.arange(self.target_lengths[number])


@pytest.mark.parametrize("planner", [Batching(200, 200, 1), Paging(500, 500, 1)])
def test_the_plan_of_a_window_needs_no_other_window(planner: Batching | Paging) -> None:
    pairs, windows = Lengths(300), Windows(Mixture.of((300,), ()), 1, 64)

    def planned(epoch: int, window: int) -> list[list[int]]:
        steps = windows.plan(planner, pairs, epoch, window)  # type: ignore[arg-type]
        return [planner.pairs_of(batch).tolist() for step in steps for batch in step]  # type: ignore[arg-type]

    everything = [planned(0, window) for window in range(windows.count(0))]
    assert sorted(n for window in everything for batch in window for n in batch) == list(range(300))
    assert planned(0, 3) == everything[3]
    assert planned(1, 3) != everything[3]


def test_the_place_after_a_step() -> None:
    inner = PlannedWindow(None, [[], []], 2, 5, ends_epoch=False)  # type: ignore[arg-type]
    last = PlannedWindow(None, [[], []], 2, 6, ends_epoch=True)  # type: ignore[arg-type]
    assert [inner.after(0), inner.after(1), last.after(1)] == [Place(2, 5, 1), Place(2, 6, 0), Place(3, 0, 0)]


class Data:
    """What the feed needs of training data."""

    class vocabularies:
        class source:
            pad = 99

        target = source

    def __init__(self) -> None:
        self.train = Lengths(300)

    def pairs(self, epoch: int) -> Lengths:
        return self.train


def test_the_feed_goes_on_from_any_step() -> None:
    windows, planner, data = Windows(Mixture.of((300,), ()), 1, 64), Batching(400, 200, 1), Data()
    everything = list(islice(step_batches(data, windows, planner, Place()), 60))  # type: ignore[arg-type]
    assert {step.next.epoch for step in everything} >= {0, 1}
    assert {step.next.window for step in everything} == set(range(5))
    for number in (0, 7, 19, 40):
        again = next(step_batches(data, windows, planner, everything[number].next))  # type: ignore[arg-type]
        expected = everything[number + 1]
        assert again.next == expected.next
        assert all(torch.equal(a.labels, b.labels) for a, b in zip(again.batches, expected.batches, strict=True))


SMALL = """
model.d_model=16 model.d_ff=32 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1
train.tokens_per_batch=60 train.threads=1 train.device=cpu train.average=0 train.validate_every=100
train.schedule=inverse_sqrt train.validate_lines=5
""".split()


@pytest.mark.slow
def test_a_run_in_windows_resumes_to_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("transduce.data.windows.LARGE", 50)
    monkeypatch.setattr("transduce.data.windows.WINDOW", 40)
    draw = random.Random(0)
    words = [[draw.choice("abcdef") for _ in range(draw.randint(2, 6))] for _ in range(150)]
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{' '.join(w)}\t{' '.join(reversed(w))}\n" for w in words))

    def train(run: str, steps: int) -> str:
        files = {"train": str(data), "valid": str(data)}
        transduce.train(tmp_path / run, **files, settings=SMALL, steps=steps, quiet=True)  # type: ignore[arg-type]
        return read_about(RunFolder(tmp_path / run).weights("last"))["sha256"]

    straight = train("straight", 21)  # an epoch has about 14 steps in four windows
    train("resumed", 6)
    monkeypatch.setattr("transduce.data.windows.WINDOW", 64)  # the run keeps its own
    train("resumed", 17)
    assert train("resumed", 21) == straight
