"""Pairs ranked by their cross-entropy per token under a model, in one direction or in both.

With both directions the score is the dual conditional cross-entropy of Junczys-Dowmunt (2018): the mean of the two, plus
their difference, because a pair that only one direction finds likely is suspicious as well. Knows translators and blocks of
pairs, and no files.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from transduce.diagnosis.analysis import Block, shown
from transduce.diagnosis.findings import RankedPair
from transduce.translator import Translator

SHOWN = 100  # the worst pairs
PAIRS_AT_ONCE = 2_048  # enough to make batches of equal lengths


@dataclass(frozen=True)
class Ranking:
    """The worst pairs, the worst first, and how many pairs were scored."""

    worst: tuple[RankedPair, ...]
    scored: int
    empty: int  # pairs with an empty side, which have no score
    mean: float  # score


def rank(blocks: Iterable[Block], forward: Translator, reverse: Translator | None = None, most: int = SHOWN) -> Ranking:
    """Score all pairs of these blocks. `reverse` translates targets to sources."""
    worst: list[tuple[float, int, RankedPair]] = []  # a heap whose first item is the least bad
    scored, total, pairs = 0, 0.0, 0
    for block in blocks:
        pairs += len(block)
        for one in chain.from_iterable(_scored(block, rows, forward, reverse) for rows in _parts(block)):
            scored, total = scored + 1, total + one.score
            (heapq.heappushpop if len(worst) >= most else heapq.heappush)(worst, (one.score, -scored, one))
    ordered = tuple(one for _, _, one in sorted(worst, key=lambda item: (-item[0], -item[1])))
    return Ranking(ordered, scored, pairs - scored, total / max(1, scored))


def _parts(block: Block) -> Iterator[Sequence[int]]:
    """The rows of a block that have text on both sides, in parts of bounded size."""
    texts = zip(block.source.texts, block.target.texts, strict=True)
    rows = [row for row, (source, target) in enumerate(texts) if source.strip() and target.strip()]
    for begin in range(0, len(rows), PAIRS_AT_ONCE):
        yield rows[begin : begin + PAIRS_AT_ONCE]


def _scored(block: Block, rows: Sequence[int], forward: Translator, reverse: Translator | None) -> Iterator[RankedPair]:
    sources, targets = ([side.texts[row].rstrip("\r") for row in rows] for side in block.sides)
    there = cross_entropies(forward, sources, targets)
    back: Sequence[float | None] = cross_entropies(reverse, targets, sources) if reverse else [None] * len(rows)
    for row, one, other in zip(rows, there, back, strict=True):
        source, target = (shown(side.lines[row]) for side in block.sides)
        file, line = block.place.files[0], block.place.lines[row]
        yield RankedPair(file, line, source, target, score_of(one, other), one, other)


def cross_entropies(translator: Translator, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
    """The cross-entropy of each target given its source, in nats per token; `</s>` is one of the tokens."""
    scored = translator.score_tokens(sources, targets)
    return [-one.log_probability / max(1, len(one.token_log_probabilities)) for one in scored]


def score_of(forward: float, reverse: float | None) -> float:
    """The higher, the worse; a cross-entropy that is not a number is the worst of all."""
    score = forward if reverse is None else abs(forward - reverse) + (forward + reverse) / 2
    return math.inf if math.isnan(score) else score
