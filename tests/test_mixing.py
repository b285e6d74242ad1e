"""Mixtures: how often each pair is seen, exactly, and the same for anyone who asks again."""

from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.data import Mixture
from transduce.errors import DataError


def flat(mixture: Mixture, seed: int, epoch: int) -> np.ndarray:
    return np.concatenate(mixture.epoch(seed, epoch))


def seen(mixture: Mixture, epochs: range, seed: int = 1) -> list[list[int]]:
    """How often each pair of each corpus is seen over some epochs."""
    numbers = np.concatenate([flat(mixture, seed, epoch) for epoch in epochs])
    counts = np.bincount(numbers, minlength=sum(mixture.pairs))
    return [part.tolist() for part in np.split(counts, np.cumsum(mixture.pairs)[:-1])]


def test_without_weights_every_pair_is_seen_once() -> None:
    assert flat(Mixture.of((3, 0, 2), ()), 1, 7).tolist() == [0, 1, 2, 3, 4]
    assert flat(Mixture.of((3, 0, 2), ("1", "1", "1.0")), 1, 7).tolist() == [0, 1, 2, 3, 4]


def test_whole_weights_count() -> None:
    assert seen(Mixture.of((3, 2, 4), ("2", "0", "1")), range(5, 6)) == [[2] * 3, [0] * 2, [1] * 4]


@pytest.mark.parametrize("first", [0, 1, 5])
def test_halves_take_turns(first: int) -> None:
    mixture = Mixture.of((10, 6), ("0.5", "2.5"))
    one, other = (seen(mixture, range(epoch, epoch + 1)) for epoch in (first, first + 1))
    assert (sorted(one[0]), sorted(one[1])) == ([0] * 5 + [1] * 5, [2] * 3 + [3] * 3)
    assert [[a + b for a, b in zip(*both, strict=True)] for both in zip(one, other, strict=True)] == [[1] * 10, [5] * 6]


def test_a_tenth_is_a_tenth_also_when_it_does_not_divide() -> None:
    mixture = Mixture.of((7,), ("0.1",))
    assert [len(flat(mixture, 1, epoch)) for epoch in range(10)] == [0, 1, 1, 0, 1, 1, 0, 1, 1, 1]
    assert seen(mixture, range(300, 310)) == [[1] * 7]


corpora = st.lists(st.tuples(st.integers(0, 40), st.decimals(0, 5, places=2)), min_size=1, max_size=4)


@given(corpora, st.integers(0, 1000), st.integers(1, 9), st.integers(0, 3))
def test_over_any_epochs_pairs_of_a_corpus_differ_by_at_most_one(
    corpora: list, first: int, epochs: int, seed: int
) -> None:
    mixture = Mixture.of(tuple(n for n, _ in corpora), tuple(str(weight) for _, weight in corpora))
    for counts, weight in zip(seen(mixture, range(first, first + epochs), seed), mixture.weights, strict=True):
        assert max(counts, default=0) - min(counts, default=0) <= 1
        assert abs(sum(counts) - epochs * weight * len(counts)) < 1


def test_the_choice_is_a_function_of_seed_and_epoch() -> None:
    mixture = Mixture.of((100, 100), ("0.3", "1.5"))
    assert flat(mixture, 1, 2).tolist() == flat(mixture, 1, 2).tolist()
    assert flat(mixture, 1, 2).tolist() != flat(mixture, 1, 3).tolist()
    assert flat(mixture, 1, 2).tolist() != flat(mixture, 2, 2).tolist()
    first, second = (np.sort(part) for part in np.split(flat(mixture, 1, 2), [30]))
    assert first.tolist() != (second[:30] - 100).tolist()  # each corpus in an order of its own


@given(corpora, st.integers(0, 1000))
def test_no_pass_has_a_pair_twice(corpora: list, epoch: int) -> None:
    """Cut small enough, an epoch has as many passes as the largest weight asks for, all of nearly one size."""
    mixture = Mixture.of(tuple(n for n, _ in corpora), tuple(str(weight) for _, weight in corpora))
    with patch("transduce.data.mixing.PASS", 1):
        if sum(mixture.seen) < len(mixture.pairs) * 5:
            return
        passes = mixture.epoch(1, epoch)
        assert len(passes) == mixture.passes == max(1, int(np.ceil(float(max(mixture.weights)))))
        assert all(len(set(numbers)) == len(numbers) for numbers in passes)
        assert max(map(len, passes)) - min(map(len, passes)) <= len(mixture.pairs)


def test_passes_are_not_made_too_small() -> None:
    assert Mixture.of((29_000, 29_000), ("3", "1")).passes == 3
    assert Mixture.of((29_000, 30), ("1", "1000")).passes == 3
    assert Mixture.of((100, 100), ("1", "1000")).passes == 6
    assert Mixture.of((1_000, 1_000), ("3", "1")).passes == 1


def test_what_is_left_of_an_epoch_is_said() -> None:
    mixture = Mixture((29_000, 29_000), (Fraction(3), Fraction(1)))
    assert mixture.summary(["a.en a.de", "b.tsv"]) == [
        "corpus 1 (a.en a.de): 29,000 pairs x 3 = 75.0 % of an epoch",
        "corpus 2 (b.tsv): 29,000 pairs x 1 = 25.0 % of an epoch",
    ]


@pytest.mark.parametrize(("pairs", "weights"), [((0, 5), ("1", "0")), ((3, 3), ("0.3", "0.33"))])
def test_an_epoch_of_nothing_is_refused(pairs: tuple[int, ...], weights: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match=r"data.weights=.* leaves no pairs in an epoch; use larger weights"):
        Mixture.of(pairs, weights).check()
    Mixture.of(pairs, ("1", "1")).check()
