"""Pairs ranked by a model: the score is the one that `score` gives, and the worst pairs come first."""

import math
from pathlib import Path

import pytest
from folders import GERMAN, lines, write_folder
from pretend_pairs import block_of

from transduce.diagnosis.ranking import rank, score_of
from transduce.translator import LoadOptions, Translator

PAIRS = list(zip(lines(60, seed=2), lines(60, seed=3, words=GERMAN), strict=True))


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder: Path = write_folder(tmp_path_factory.mktemp("ranking") / "run")
    return Translator.load(folder, LoadOptions(engine="torch", device="cpu"))


def test_pairs_are_ranked_by_their_cross_entropy_per_token(translator: Translator) -> None:
    ranking = rank([block_of(PAIRS[:40]), block_of(PAIRS[40:], first=40)], translator, most=10)
    expected = {
        number + 1: -one.log_probability / len(one.token_log_probabilities)
        for number, one in enumerate(translator.score_tokens(*map(list, zip(*PAIRS, strict=True))))
    }
    worst = sorted(expected, key=lambda line: -expected[line])[:10]
    assert [one.line for one in ranking.worst] == worst
    assert [one.score for one in ranking.worst] == pytest.approx([expected[line] for line in worst], abs=1e-4)
    assert [one.forward for one in ranking.worst] == [one.score for one in ranking.worst]
    assert ranking.worst[0].reverse is None
    assert (ranking.worst[0].source, ranking.worst[0].target) == PAIRS[worst[0] - 1]
    assert (ranking.scored, ranking.empty) == (60, 0)
    assert ranking.mean == pytest.approx(sum(expected.values()) / 60, abs=1e-4)


def test_both_directions_are_combined(translator: Translator) -> None:
    ranking = rank([block_of(PAIRS)], translator, translator, most=60)
    assert len(ranking.worst) == 60
    for one in ranking.worst:
        assert one.reverse is not None
        assert one.score == pytest.approx(abs(one.forward - one.reverse) + (one.forward + one.reverse) / 2)
    (back,) = rank([block_of([(PAIRS[0][1], PAIRS[0][0])])], translator).worst
    assert next(one for one in ranking.worst if one.line == 1).reverse == pytest.approx(back.forward, abs=1e-4)


def test_pairs_with_an_empty_side_have_no_score(translator: Translator) -> None:
    ranking = rank([block_of([("", "der Hund"), ("the cat", " "), ("the cat", "der Hund\r")])], translator)
    assert [one.line for one in ranking.worst] == [3]
    assert (ranking.scored, ranking.empty) == (1, 2)
    assert rank([], translator).worst == ()


def test_what_is_not_a_number_is_the_worst() -> None:
    assert score_of(math.nan, None) == math.inf
    assert score_of(2.0, 1.0) == 2.5
