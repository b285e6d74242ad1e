"""Training pairs that are followed by others (data.concatenate)."""

from pathlib import Path

import numpy as np
import pytest
from small_runs import final_hash, reversal, run_training

from transduce.data.concatenation import ConcatenatedPairs

END = 0  # the id of </s>


class Words:
    """Pairs whose ids say which pair and side they are from; every side ends in </s>."""

    def __init__(self, lengths: list[int], groups: tuple[int, ...] = ()) -> None:
        self.groups = groups or (len(lengths),)
        self.source_lengths = np.array(lengths, np.int32)
        self.target_lengths = self.source_lengths + 1

    @property
    def size(self) -> int:
        return 7

    def source(self, index: int) -> np.ndarray:
        return np.array([100 + index] * (self.source_lengths[index] - 1) + [END])

    def target(self, index: int) -> np.ndarray:
        return np.array([200 + index] * (self.target_lengths[index] - 1) + [END])

    def sources(self, numbers: np.ndarray) -> np.ndarray:
        return np.concatenate([self.source(int(number)) for number in numbers])

    def targets(self, numbers: np.ndarray) -> np.ndarray:
        return np.concatenate([self.target(int(number)) for number in numbers])


def concatenated(
    words: Words, share: float = 0.5, longest: int = 100, seed: int = 1, epoch: int = 0
) -> ConcatenatedPairs:
    return ConcatenatedPairs(words, share, longest, seed, epoch)  # type: ignore[arg-type]


def test_a_pair_is_itself_and_then_perhaps_another_whole_pair() -> None:
    words = Words([2, 3, 4, 5] * 50)
    pairs = concatenated(words)
    joined = 0
    for index in range(200):
        source, target, partner = pairs.source(index), pairs.target(index), int(pairs.partner[index])
        parts = [index] if partner < 0 else [index, partner]
        assert source.tolist() == words.sources(np.array(parts)).tolist()
        assert target.tolist() == words.targets(np.array(parts)).tolist()
        assert (len(source), len(target)) == (pairs.source_lengths[index], pairs.target_lengths[index])
        joined += partner >= 0
    assert 60 < joined < 140
    assert pairs.size == words.size


def test_several_pairs_are_read_as_one_after_the_other() -> None:
    pairs, numbers = concatenated(Words([2, 3, 4] * 10), share=0.9), np.array([4, 0, 29])
    one_by_one = [pairs.source(int(number)) for number in numbers]
    assert pairs.sources(numbers).tolist() == np.concatenate(one_by_one).tolist()
    assert len(pairs.targets(numbers)) == pairs.target_lengths[numbers].sum()


def test_draws_depend_on_seed_and_epoch_alone() -> None:
    words = Words([3] * 100)
    first = concatenated(words).partner
    assert (first == concatenated(words).partner).all()
    assert (first != concatenated(words, epoch=1).partner).any()
    assert (first != concatenated(words, seed=2).partner).any()


def test_partners_are_of_the_same_corpus() -> None:
    """Each corpus may have a tag, or a language of its own."""
    partner = concatenated(Words([2] * 100, groups=(30, 0, 70)), share=0.99).partner
    assert (partner[:30] < 30).all()
    assert ((partner[30:] >= 30) | (partner[30:] < 0)).all()
    assert (partner >= 30).any()


def test_no_pair_becomes_longer_than_the_longest() -> None:
    pairs = concatenated(Words([2, 9] * 50), share=0.99, longest=12)
    assert max(pairs.source_lengths.max(), pairs.target_lengths.max()) <= 12
    assert (pairs.partner >= 0).any()


@pytest.mark.parametrize("layout", ["padded", "pages"])
def test_a_run_with_concatenated_pairs_resumes_to_the_same(
    reversal: dict[str, str], tmp_path: Path, layout: str
) -> None:
    settings = ["data.concatenate=0.8", f"train.layout={layout}", "train.schedule=constant"]
    one, other, plain = tmp_path / "one", tmp_path / "other", tmp_path / "plain"
    run_training(one, reversal, *settings)
    for steps in (7, 24):
        run_training(other, reversal, *settings, f"train.steps={steps}")
    assert final_hash(one) == final_hash(other)
    run_training(plain, reversal, *settings[1:])
    assert final_hash(plain) != final_hash(one)
