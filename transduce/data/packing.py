"""Pages: several whole pairs side by side in a row, so that a GPU computes on tokens and hardly on padding.

Row r of the sources and row r of the targets hold the same pairs, in the same order. Every row of a batch has the same
width and every batch of that width the same number of rows, whatever is in them: shapes that never change are compiled
once. A pair too long for the usual width gets a wider page, never a cut. Knows lengths, not ids.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.integer]
Shares = NDArray[np.float64]

WIDTH = 128  # places of a row on its longer side; attention within it fits one program of a GPU
GRAIN = 2  # widths are multiples of this
WINDOW = 1 << 17  # pairs packed together
ALIKE = 4096  # rows that share out what they were offered
ROUNDING = 1e-9  # shares are sums of fractions


@dataclass(frozen=True)
class Widths:
    """Places of a row on each side."""

    source: int
    target: int

    @staticmethod
    def fitting(source_tokens: int, target_tokens: int, width: int = WIDTH) -> "Widths":
        """The side with fewer tokens gets narrower rows, so that both fill up together."""
        longer = max(source_tokens, target_tokens, 1)
        source, target = (
            max(GRAIN, -(-tokens * width // longer // GRAIN) * GRAIN) for tokens in (source_tokens, target_tokens)
        )
        return Widths(source, target)

    def doubled(self) -> "Widths":
        return Widths(2 * self.source, 2 * self.target)

    def share(self, source: Numbers, target: Numbers) -> Shares:
        """How much of a row each pair needs, on the side where it needs more."""
        return np.maximum(source / self.source, target / self.target)


@dataclass(frozen=True)
class Pages:
    """The rows of one batch: the pairs of all rows one after the other, and how many each row has."""

    pairs: Numbers
    counts: Numbers
    rows: int  # of the batch; the last ones may be empty
    widths: Widths

    @property
    def places(self) -> int:
        return self.rows * (self.widths.source + self.widths.target)


def pack(source: Numbers, target: Numbers, widths: Widths) -> list[Numbers]:
    """Row after row of positions in these arrays; no side of a row holds more than its width.

    Rows are as many as the tokens need; what they cannot take begins rows of its own.
    """
    left = np.arange(len(source))
    rows: list[Numbers] = []
    while len(left):
        needed = max(source[left].sum() / widths.source, target[left].sum() / widths.target)
        taken = _fill(source, target, left, math.ceil(needed), widths)
        rows += [row[row >= 0] for row in taken]
        left = left[~np.isin(left, taken[taken >= 0], assume_unique=True)]
    return rows


def _fill(source: Numbers, target: Numbers, left: Numbers, count: int, widths: Widths) -> Numbers:
    """What each of `count` rows takes of the pairs `left`: one line a row, -1 where there is nothing.

    Best fit, every row at once: round after round each row, the emptiest first, is offered the longest pair left that fits
    it, by the target in one round, by the source in the next, by the longer side in the third. Rows that are about as
    empty share out what they were offered, so that who has more room for the source gets a pair that is longer there:
    both sides fill up together. A pair that does not fit waits.
    """
    needs = Sides(source / widths.source, target / widths.target)
    free = Sides(np.ones(count), np.ones(count))
    columns: list[Numbers] = []
    turn, idle = np.arange(count), 0
    while len(left) and idle < len(MEASURES):
        measure = MEASURES[(len(columns) + idle) % len(MEASURES)]
        need, room = measure(needs, np.maximum), measure(free, np.minimum)
        left = left[np.lexsort((-needs.both[left], -need[left]))]
        rows = np.lexsort((-free.both, -room))
        longest = np.searchsorted(-need[left], -room[rows] - ROUNDING)  # that fits
        places = np.maximum.accumulate(longest - turn) + turn  # each row another one
        rows, places = rows[places < len(left)], places[places < len(left)]
        alike = np.arange(len(rows)) // ALIKE
        rows, places = (
            rows[np.lexsort((free.leaning[rows], alike))],
            places[np.lexsort((needs.leaning[left[places]], alike))],
        )
        fits = needs.fit(left[places], free, rows)
        rows, places = rows[fits], places[fits]
        idle = 0 if len(rows) else idle + 1
        if len(rows):
            columns.append(np.full(count, -1))
            columns[-1][rows] = left[places]
            free.take(rows, needs, left[places])
            left = np.delete(left, places)
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class Sides:
    """Shares of a row's width, on both sides: what pairs need, or what rows have free."""

    source: Shares
    target: Shares

    @property
    def both(self) -> Shares:
        return self.source + self.target

    @property
    def leaning(self) -> Shares:
        """How much more it is on the side of the source."""
        return self.source - self.target

    def fit(self, pairs: Numbers, free: "Sides", rows: Numbers) -> NDArray[np.bool_]:
        source = self.source[pairs] <= free.source[rows] + ROUNDING
        return source & (self.target[pairs] <= free.target[rows] + ROUNDING)

    def take(self, rows: Numbers, needs: "Sides", pairs: Numbers) -> None:
        self.source[rows] -= needs.source[pairs]
        self.target[rows] -= needs.target[pairs]


# How a round measures both sides: the needs of a pair by the larger one, the room of a row by the smaller one.
MEASURES: list[Callable[[Sides, np.ufunc], Shares]] = [
    lambda sides, extreme: sides.target,
    lambda sides, extreme: sides.source,
    lambda sides, extreme: extreme(sides.source, sides.target),
]


def pages_of_epoch(
    source: Numbers, target: Numbers, numbers: Numbers, tokens: int, widths: Widths, order: np.random.Generator
) -> list[Pages]:
    """Every one of the pairs `numbers` once, in batches of about `tokens` target tokens, in random order."""
    shuffled = order.permutation(numbers)
    share = widths.share(source[shuffled], target[shuffled])
    batches: list[Pages] = []
    narrower = 0.0
    while narrower < share.max(initial=0):
        wider = max(1.0, 2 * narrower)
        these = shuffled[(share > narrower) & (share <= wider)]
        rows: list[Numbers] = []
        for begin in range(0, len(these), WINDOW):
            window = these[begin : begin + WINDOW]
            rows += [window[row] for row in pack(source[window], target[window], widths)]
        batches += _batches(rows, max(1, round(tokens / widths.target)), widths, order)
        narrower, widths = wider, widths.doubled()
    order.shuffle(batches)
    return batches


def _batches(rows: list[Numbers], per_batch: int, widths: Widths, order: np.random.Generator) -> list[Pages]:
    order.shuffle(rows)
    groups = [rows[begin : begin + per_batch] for begin in range(0, len(rows), per_batch)]
    return [Pages(np.concatenate(group), np.array([len(row) for row in group]), per_batch, widths) for group in groups]
