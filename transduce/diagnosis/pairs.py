"""Rules about the two sides of a pair: empty and copied sides, lengths and their ratio, and numbers that differ."""

import re
from functools import partial
from operator import eq, ne

import numpy as np
from numpy.typing import NDArray

from transduce.diagnosis.analysis import Block, Context, Side
from transduce.diagnosis.rules import EitherSide, Rows, Rule

# Added to both lengths before they are divided, so that one threshold fits short and long texts.
SMOOTHING = 15

_NOT_DIGITS = bytes(code for code in range(256) if not 48 <= code <= 57 and code != 10)
_NUMBER = re.compile(r"\d+(?:[.,:'’ \u00a0\u202f]\d+)*")
_DIGITS = re.compile(r"\d+")


def length_ratios(block: Block) -> NDArray[np.float64]:
    """Target length / source length of each pair, smoothed."""
    return (block.target.lengths + SMOOTHING) / (block.source.lengths + SMOOTHING)


def _blank(side: Side) -> Rows:
    return side.blank


def _copied(block: Block, context: Context) -> Rows:
    """Equal sides that have a letter: numbers and dates are the same in most languages."""
    source, target = block.source.lines, block.target.lines
    rows = np.flatnonzero(np.fromiter(map(eq, source, target), bool, len(block)))
    return np.array([row for row in rows if _has_letter(source[row])], np.int64)


def _has_letter(line: bytes) -> bool:
    return any(map(str.isalpha, line.decode(errors="replace")))


def _too_long(block: Block, context: Context) -> Rows:
    source, target = context.threshold("longest_source"), context.threshold("longest_target")
    return np.flatnonzero((block.source.lengths > source) | (block.target.lengths > target))


def _too_long_side(block: Block, row: int, context: Context) -> int:
    return 0 if block.source.lengths[row] > context.threshold("longest_source") else 1


def _unequal_lengths(block: Block, context: Context) -> Rows:
    """Pairs whose ratio is out of bounds."""
    ratios = length_ratios(block)
    return np.flatnonzero(
        (ratios < context.threshold("smallest_ratio")) | (ratios > context.threshold("largest_ratio"))
    )


def _numbers(block: Block, context: Context) -> Rows:
    """Pairs with different numbers: only where the digits differ are the numbers themselves looked at."""
    digits = [side.data.translate(None, _NOT_DIGITS).split(b"\n") for side in block.sides]
    rows = np.flatnonzero(np.fromiter(map(ne, *digits), bool, len(block) + 1))
    wrong = [row for row in rows.tolist() if unmatched_numbers(*(_text(side, row) for side in block.sides))]
    return np.array(wrong, np.int64)


def _text(side: Side, row: int) -> str:
    return side.lines[row].decode(errors="replace")


def unmatched_numbers(source: str, target: str) -> list[str]:
    """Numbers that the other side lacks; empty if the sides may say the same.

    Small numbers are often written as words, and dates and times in other orders. So a pair is wrong if each side has a number
    of two digits or more that the other lacks, or if one side has two of them.
    """
    only_source, only_target = _only_in(source, target), _only_in(target, source)
    wrong = (only_source and only_target) or max(len(only_source), len(only_target)) > 1
    return only_source + only_target if wrong else []


def _only_in(one: str, other: str) -> list[str]:
    """The numbers of two digits or more of one text that the other lacks, in whatever notation."""
    parts = [_as_ascii(part) for part in _DIGITS.findall(other)]
    digits, values = "".join(parts), {int(part) for part in parts}
    return [number for number in _NUMBER.findall(one) if not _is_there(number, digits, values)]


def _is_there(number: str, digits: str, values: set[int]) -> bool:
    """Whether the digits of a number are there without its separators, or each of its parts is: dates have other orders."""
    parts = [_as_ascii(part) for part in _DIGITS.findall(number)]
    whole = "".join(parts).strip("0")
    return len(whole) < 2 or whole in digits or all(_part_is_there(part, digits, values) for part in parts)


def _part_is_there(part: str, digits: str, values: set[int]) -> bool:
    """Whether a part of a date, time or number is there: 1999 also as 99, and 14 o'clock also as 2."""
    year = part[2:] if len(part) == 4 and part[:2] in ("19", "20") else part
    value = int(part)
    return value < 10 or year in digits or value in values or (12 < value <= 24 and value - 12 in values)


def _as_ascii(digits: str) -> str:
    return digits if digits.isascii() else "".join(str(int(one)) for one in digits)


def _show_lengths(block: Block, row: int, context: Context) -> str:
    return f"{block.source.lengths[row]:,} and {block.target.lengths[row]:,} characters"


def _show_numbers(block: Block, row: int, context: Context) -> str:
    return "without a match: " + ", ".join(unmatched_numbers(*(_text(side, row) for side in block.sides)))[:200]


def _show_empty(block: Block, row: int, context: Context) -> str:
    blank = [not _text(side, row).strip() for side in block.sides]
    return "both sides" if all(blank) else "the source" if blank[0] else "the target"


def _show_nothing(block: Block, row: int, context: Context) -> str:
    return ""


PAIR_RULES = [
    Rule(
        "empty_sides",
        EitherSide(_blank),
        _show_empty,
        "Pairs with an empty side; `transduce train` leaves them out.",
        "Nothing needs to be done for a few; many show that the sides were aligned badly.",
        serious=0.2,
        notable=0.01,
    ),
    Rule(
        "copied_sides",
        _copied,
        _show_nothing,
        "Pairs whose target is a copy of the source; from many of them the model learns to copy instead of to translate.",
        "Nothing needs to be done: training on translations leaves them out by itself, unless data.identical=keep.",
        serious=0.1,
        notable=0.01,
        sentences=True,
    ),
    Rule(
        "very_long",
        _too_long,
        _show_lengths,
        "Texts above the limits longest_source and longest_target; often several sentences, or no sentences at all.",
        "Split them into sentences.",
        notable=0.01,
        side=_too_long_side,
    ),
    Rule(
        "length_ratio",
        _unequal_lengths,
        _show_lengths,
        "Pairs of which one side is much longer than the other, so that they are hardly translations of each other.",
        "Look at the examples; set other limits with --threshold.",
        serious=0.1,
        notable=0.005,
        sentences=True,
    ),
    Rule(
        "unmatched_numbers",
        partial(_numbers),
        _show_numbers,
        "Pairs whose numbers differ: often wrong translations, sometimes another way to write a number.",
        "Look at the examples, and correct the wrong ones.",
        serious=0.1,
        notable=0.01,
        sentences=True,
    ),
]
