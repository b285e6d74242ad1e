"""Wrong scripts: lines whose letters mostly belong to a writing system that the language does not use.

The script of a side is that of its language, or that of most letters of its block if the language is not given or has no
known script. Knows texts and scripts.
"""

import sys
from collections.abc import Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from transduce.diagnosis.analysis import Block, Context, Place, Side
from transduce.diagnosis.findings import MOST_EXAMPLES, Example, Finding, Severity
from transduce.scripts import is_unspaced, letters_of, script_of_language, script_of_texts

RULE = "wrong_script"
FEWEST_LETTERS = 4
SERIOUS = 0.5  # share of the pairs: the files are swapped, or the languages are wrong
NOTABLE = 0.001
PROFILE_LINES = 200  # that show the script of a block
_CODE_POINTS = sys.maxunicode + 1
_LETTERS_OF_A_WORD = (
    3  # in other scripts, for one letter of an unspaced script: names in Latin letters are common there
)

Rows = NDArray[np.int64]
_NOT_LATIN = np.arange(256) >= 0xCC  # first bytes of characters beyond U+02FF
_NOT_LATIN[0xE2] = False  # punctuation and symbols


def lines_in_other_scripts(side: Side, script: str) -> Rows:
    """The lines of a side whose letters are mostly of other scripts than this one."""
    if not script or (script == "Latin" and side.data.isascii()):
        return np.empty(0, np.int64)
    if script == "Latin":  # only lines with other bytes can have other letters
        rows = side.rows_at(np.flatnonzero(_NOT_LATIN[side.bytes]))
        suspects = Side(b"".join(side.lines[row] + b"\n" for row in rows.tolist()))
        return rows[_mostly_in_other_scripts(suspects, script)]
    return _mostly_in_other_scripts(side, script)


def _mostly_in_other_scripts(side: Side, script: str) -> Rows:
    codes = np.frombuffer(side.text.encode("utf-32-le"), np.uint32)
    ends = np.flatnonzero(codes == ord("\n"))
    own = _per_line(_is_letter_of(script)[codes], ends)
    other = _per_line(_is_letter()[codes], ends) - own
    weight = _LETTERS_OF_A_WORD if is_unspaced(script) or script == "Hangul" else 1
    return np.flatnonzero((other > weight * own) & (own + other >= FEWEST_LETTERS))


def _per_line(found: NDArray[np.bool_], ends: Rows) -> Rows:
    return np.diff(np.searchsorted(np.flatnonzero(found), ends), prepend=0)


@cache
def _is_letter_of(script: str) -> NDArray[np.bool_]:
    table = np.zeros(_CODE_POINTS, bool)
    for first, last in letters_of(script):
        table[first : last + 1] = True
    return table & _is_letter()


@cache
def _is_letter() -> NDArray[np.bool_]:
    return np.fromiter((chr(code).isalpha() for code in range(_CODE_POINTS)), bool, _CODE_POINTS)


class ScriptAnalysis:
    """Finds lines whose letters are mostly of another script."""

    name = RULE

    def __init__(self, context: Context) -> None:
        self.role = context.role
        self._scripts = [script_of_language(code) for code in context.languages] or ["", ""]
        self._numbers: list[Rows] = []
        self._examples: list[Example] = []
        self._pairs = 0

    def observe(self, block: Block) -> tuple[Rows, list[Example]]:
        found = [
            lines_in_other_scripts(side, script or script_of_texts(side.texts[:PROFILE_LINES]))
            for side, script in zip(block.sides, self._scripts, strict=True)
        ]
        rows = np.union1d(*found)
        return rows, [
            block.example(int(row), _detail(row, *found), int(row not in found[0])) for row in rows[:MOST_EXAMPLES]
        ]

    def add(self, place: Place, observed: tuple[Rows, list[Example]]) -> None:
        self._pairs += len(place)
        self._numbers.append(observed[0] + place.first_pair)
        self._examples += observed[1][: MOST_EXAMPLES - len(self._examples)]

    def finish(self) -> list[Finding]:
        count = sum(map(len, self._numbers))
        share = count / max(1, self._pairs)
        severity: Severity = "serious" if share > SERIOUS else "notable" if share > NOTABLE else "note"
        explanation = "The letters of one side are mostly not of the script of its language."
        advice = "Check --languages and the order of the files." if share > SERIOUS else "Look at the examples."
        one = Finding(RULE, severity, count, share, explanation, advice, tuple(self._examples), self.role)
        return [one] if count else []

    def concerned(self) -> Mapping[str, Rows]:
        """All of them, unless they are most pairs: then the languages or the files are wrong, and not the pairs."""
        count = sum(map(len, self._numbers))
        return {RULE: np.concatenate(self._numbers)} if 0 < count <= SERIOUS * self._pairs else {}


def _detail(row: np.int64, source: Rows, target: Rows) -> str:
    sides = [name for name, rows in (("source", source), ("target", target)) if row in rows]
    return f"the {' and the '.join(sides)}"
