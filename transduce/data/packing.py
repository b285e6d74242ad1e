"""Packing: several whole pairs share a row, so that a GPU computes on tokens and hardly on padding.

Row r of the sources and row r of the targets hold the same pairs, in the same order. All rows of a batch have the same
width, and all batches of that width have the same number of rows, so that there are few shapes and each is captured once.
A pair that is too long for the usual width goes into a wider page; no pair is cut. This module knows lengths, not ids.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.integer]
Shares = NDArray[np.float64]

WIDTH = 128  # positions of a row on its longer side; attention within it fits one program of a GPU
GRAIN = 2  # widths are multiples of this
WINDOW = 1 << 17  # pairs that are packed together
ALIKE = 4096  # rows that are matched with as many pairs at a time, by how much more they need on one side
ROUNDING = 1e-9  # tolerance, because shares are sums of fractions


@dataclass(frozen=True)
class Widths:
    """How many positions a row has on each side."""

    source: int
    target: int

    @staticmethod
    def fitting(source_tokens: int, target_tokens: int, width: int = WIDTH) -> "Widths":
        """Widths in proportion to the tokens of each side, so that both sides fill up together."""
        longer = max(source_tokens, target_tokens, 1)
        source, target = (
            max(GRAIN, -(-tokens * width // longer // GRAIN) * GRAIN) for tokens in (source_tokens, target_tokens)
        )
        return Widths(source, target)

    def doubled(self) -> "Widths":
        return Widths(2 * self.source, 2 * self.target)

    def share(self, source: Numbers, target: Numbers) -> Shares:
        """The share of a row that each pair needs, on the side where it needs more."""
        return np.maximum(source / self.source, target / self.target)


@dataclass(frozen=True)
class Pages:
    """The rows of one batch: the pairs of all rows in order, and how many pairs each row has."""

    pairs: Numbers
    counts: Numbers
    rows: int  # of the batch; the last ones may be empty
    widths: Widths

    @property
    def positions(self) -> int:
        """On both sides, padding included."""
        return self.rows * (self.widths.source + self.widths.target)


def pack(source: Numbers, target: Numbers, widths: Widths) -> list[Numbers]:
    """Rows as lists of indices into these arrays of lengths; neither side of a row exceeds its width.

    There are as many rows as the tokens need at least; pairs that do not fit into them get further rows.
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
    """The pairs among `left` that each of `count` rows takes: one line per row, filled with -1.

    This is best fit for all rows at once. In each round every row, the emptiest first, is offered the longest remaining
    pair that fits: measured by the target in the first round, by the source in the second, and by the longer side in the
    third. Among rows that are about equally empty, the rows with more space on the source side get the pairs with longer
    sources, so that both sides fill up together. A pair that does not fit waits for a later round.
    """
    needs = Sides(source / widths.source, target / widths.target)
    free = Sides(np.ones(count), np.ones(count))
    columns: list[Numbers] = []
    turn, idle = np.arange(count), 0
    while len(left) and idle < len(MEASURES):
        measure = MEASURES[(len(columns) + idle) % len(MEASURES)]
        need, space = measure(needs, np.maximum), measure(free, np.minimum)
        left = left[np.lexsort((-needs.both[left], -need[left]))]
        rows = np.lexsort((-free.both, -space))
        longest = np.searchsorted(-need[left], -space[rows] - ROUNDING)  # the longest pair that fits
        ranks = np.maximum.accumulate(longest - turn) + turn  # a different pair for each row
        rows, ranks = rows[ranks < len(left)], ranks[ranks < len(left)]
        alike = np.arange(len(rows)) // ALIKE
        rows, ranks = (
            rows[np.lexsort((free.leaning[rows], alike))],
            ranks[np.lexsort((needs.leaning[left[ranks]], alike))],
        )
        fits = needs.fit(left[ranks], free, rows)
        rows, ranks = rows[fits], ranks[fits]
        idle = 0 if len(rows) else idle + 1
        if len(rows):
            columns.append(np.full(count, -1))
            columns[-1][rows] = left[ranks]
            free.take(rows, needs, left[ranks])
            left = np.delete(left, ranks)
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class Sides:
    """Shares of a row's width on both sides: what each pair needs, or what each row has free."""

    source: Shares
    target: Shares

    @property
    def both(self) -> Shares:
        return self.source + self.target

    @property
    def leaning(self) -> Shares:
        """How much more it is on the source side than on the target side."""
        return self.source - self.target

    def fit(self, pairs: Numbers, free: "Sides", rows: Numbers) -> NDArray[np.bool_]:
        source = self.source[pairs] <= free.source[rows] + ROUNDING
        return source & (self.target[pairs] <= free.target[rows] + ROUNDING)

    def take(self, rows: Numbers, needs: "Sides", pairs: Numbers) -> None:
        self.source[rows] -= needs.source[pairs]
        self.target[rows] -= needs.target[pairs]


# How a round measures both sides: what a pair needs by the larger side, what a row has free by the smaller side.
MEASURES: list[Callable[[Sides, np.ufunc], Shares]] = [
    lambda sides, extreme: sides.target,
    lambda sides, extreme: sides.source,
    lambda sides, extreme: extreme(sides.source, sides.target),
]


def pages_of_epoch(
    source: Numbers,
    target: Numbers,
    numbers: Numbers,
    tokens: int,
    widths: Widths,
    order: np.random.Generator,
    packed: bool = True,
) -> list[Pages]:
    """Each of the pairs `numbers` once, in batches of about `tokens` target tokens, in random order; or one pair per row."""
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
            packs = pack(source[window], target[window], widths) if packed else np.arange(len(window))[:, None]
            rows += [window[row] for row in packs]
        batches += _batches(rows, max(1, round(tokens / widths.target)), widths, order)
        narrower, widths = wider, widths.doubled()
    order.shuffle(batches)
    return batches


def _batches(rows: list[Numbers], per_batch: int, widths: Widths, order: np.random.Generator) -> list[Pages]:
    order.shuffle(rows)
    groups = [rows[begin : begin + per_batch] for begin in range(0, len(rows), per_batch)]
    return [Pages(np.concatenate(group), np.array([len(row) for row in group]), per_batch, widths) for group in groups]
