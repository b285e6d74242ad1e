"""Sides that drift apart: planted shifts are found to within a window, and clean corpora raise no alarm."""

import random
from pathlib import Path

import numpy as np
import pytest
from pretend_pairs import block_of, lookup_of, pretend_pairs, side_of

from transduce.diagnosis.analysis import Context
from transduce.diagnosis.drift import DriftAnalysis
from transduce.diagnosis.offsets import FEWEST_LINES, NOWHERE, NUMBERS, WINDOW, Stretch, codes_of, find_shifts

Pairs = list[tuple[str, str]]
CLEAN = pretend_pairs(6_000)


def shifts(pairs: Pairs) -> list[Stretch]:
    return find_shifts(*(codes_of(side.bytes, side.ends) for side in block_of(pairs).sides))


def shifted(pairs: Pairs, first: int, last: int, offset: int) -> Pairs:
    """The targets from `first` to before `last` moved by `offset` lines, as after lost or added lines."""
    targets = [target for _, target in pairs]
    if offset > 0:
        moved = targets[:offset] + targets[first : last - offset]
    else:
        moved = targets[first - offset : last] + targets[:-offset]
    targets[first:last] = moved
    return [(source, target) for (source, _), target in zip(pairs, targets, strict=True)]


def test_clean_pairs_raise_no_alarm() -> None:
    assert [shifts(pretend_pairs(3_000, seed)) for seed in range(1, 6)] == [[]] * 5


@pytest.mark.parametrize(
    ("first", "last", "offset"),
    [(3_000, 6_000, 1), (3_000, 6_000, -1), (20, 6_000, 2), (2_000, 2_400, -3), (1_000, 5_900, 7), (4_000, 5_000, 60),
     (500, 6_000, -250)],
)  # fmt: skip
def test_a_planted_shift_is_found_where_it_begins_and_ends(first: int, last: int, offset: int) -> None:
    found = shifts(shifted(CLEAN, first, last, offset))
    assert [stretch.offset for stretch in found if stretch.offset != NOWHERE] == [offset]
    # Where many lines are lost at once, those without a counterpart are a stretch of their own.
    assert abs(found[0].first - first) <= WINDOW
    assert abs(found[-1].last + 1 - last) <= WINDOW


def test_every_change_of_the_offset_is_found() -> None:
    pairs = shifted(shifted(CLEAN, 1_000, 6_000, 1), 3_000, 6_000, 1)
    assert [stretch.offset for stretch in shifts(pairs)] == [1, 2]


def test_sides_in_different_orders_match_nowhere() -> None:
    targets = [target for _, target in CLEAN]
    random.Random(1).shuffle(targets)
    assert shifts([(source, target) for (source, _), target in zip(CLEAN, targets, strict=True)]) == [
        Stretch(0, len(CLEAN) - 1, NOWHERE, 0.0)
    ]


def test_nothing_is_said_about_few_pairs() -> None:
    pairs = CLEAN[: FEWEST_LINES - 1]
    assert shifts(shifted(pairs, 100, len(pairs), 1)) == []
    assert shifts([]) == []


def test_scattered_faults_are_no_shift() -> None:
    chance = random.Random(2)
    pairs = [(source, "") if chance.random() < 0.1 else (source, target) for source, target in CLEAN]
    assert shifts(pairs) == []


def test_numbers_are_compared_without_order_and_separators() -> None:
    side = side_of(["1,000 of 23", "23 of 1.000", "", "none", "24 of 1000"])
    codes = codes_of(side.bytes, side.ends)[:, NUMBERS].tolist()
    assert codes[0] == codes[1] != codes[4]
    assert codes[2] == codes[3] == 0


def analysed(pairs: Pairs, folder: Path) -> DriftAnalysis:
    analysis = DriftAnalysis(Context(), lookup_of(folder, pairs))
    for first in range(0, len(pairs), 1_000):
        block = block_of(pairs[first : first + 1_000], first)
        analysis.add(block.place, analysis.observe(block))
    return analysis


def test_the_finding_names_the_line_and_shows_the_pair(tmp_path: Path) -> None:
    pairs = shifted(CLEAN, 3_000, 6_000, -1)
    (finding,) = analysed(pairs, tmp_path).finish()
    assert (finding.rule, finding.severity, finding.corpus) == ("drift", "serious", "train")
    (example,) = finding.examples
    assert abs(example.line - 3_001) <= WINDOW
    assert (example.source, example.target) == pairs[example.line - 1]
    assert "the target 1 line earlier" in example.detail
    assert finding.advice == (
        f"Near line {example.line:,}, the source has a line that the target does not have: delete it, or insert an empty line "
        "in the target there."
    )
    assert f"from line {example.line:,} to line" in finding.explanation
    assert finding.count == pytest.approx(3_000, abs=2 * WINDOW)


def test_the_advice_says_on_which_side_lines_are_missing(tmp_path: Path) -> None:
    (finding,) = analysed(shifted(CLEAN, 1_000, 6_000, 2), tmp_path).finish()
    ending = "the target has 2 lines that the source does not have: delete them, or insert 2 empty lines in the source there."
    assert finding.advice.endswith(ending)


def test_the_shifted_pairs_are_removed(tmp_path: Path) -> None:
    analysis = analysed(shifted(CLEAN, 2_000, 3_000, 1), tmp_path)
    (finding,) = analysis.finish()
    removed = analysis.concerned()["drift"]
    assert len(removed) == finding.count
    assert np.all(np.diff(removed) == 1)
    assert set(range(2_000 + WINDOW, 3_000 - WINDOW)) <= set(removed.tolist())


def test_a_corpus_that_matches_nowhere_is_notable_and_stays(tmp_path: Path) -> None:
    targets = [target for _, target in reversed(CLEAN)]
    analysis = analysed([(source, target) for (source, _), target in zip(CLEAN, targets, strict=True)], tmp_path)
    (finding,) = analysis.finish()
    assert (finding.rule, finding.severity) == ("unmatched_sides", "notable")
    assert analysis.concerned() == {}


def test_no_pairs_give_no_findings(tmp_path: Path) -> None:
    analysis = analysed([], tmp_path)
    assert analysis.finish() == []
    assert analysis.concerned() == {}
