"""CTC prefix search: the most probable texts of the frames of a recording, with a guide that allows and scores tokens.

An alignment gives each frame a token or the blank; repeated tokens are merged and blanks removed. The search keeps the prefixes
that are best at each frame, and adds up the alignments of each prefix: those that end in a blank apart from those that end in
its last token. A guide, such as a lexicon with a language model, says which tokens may follow a prefix and what they are worth.
Knows no text and no model.

Axes: T frames, C classes with the blank.
"""

import gc
import heapq
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

LEAST = 1e-3  # probability of a token at a frame below which it is not tried
WITHIN = 15.0  # how much less than the best prefix one may score, as a logarithm
_GAIN = 5.0  # what a token may add to the guide's score; a prefix that needs more to be kept is not tried


class Guide(Protocol):
    """What the search knows of texts. A state belongs to a prefix; None says that there is no such text."""

    def start(self) -> Any: ...

    def extended(self, state: Any, token: int) -> Any | None: ...

    def ended(self, state: Any) -> Any | None: ...

    def score(self, state: Any) -> float:
        """What is added to the log-probability of the frames."""
        ...


@dataclass(frozen=True)
class CtcHypothesis:
    """A text with the log-probability of all its alignments, and the guide's state at its end."""

    tokens: list[int]
    log_probability: float
    state: Any
    score: float  # with what the guide adds


class _Prefix:
    """A prefix of the search. Its probabilities are relative to the sum of all prefixes at its frame."""

    __slots__ = ("blank", "children", "label", "next_blank", "next_label", "parent", "rank", "state", "token", "worth")

    def __init__(self, parent: "_Prefix | None", token: int, state: Any, worth: float) -> None:
        self.parent, self.token, self.state, self.worth = parent, token, state, worth
        self.blank = self.label = self.next_blank = self.next_label = self.rank = 0.0
        self.children: dict[int, _Prefix | None] = {}

    def child(self, token: int, guide: Guide) -> "_Prefix | None":
        """The prefix with one more token; None where the guide allows no such text."""
        if token not in self.children:
            state = guide.extended(self.state, token)
            self.children[token] = None if state is None else _Prefix(self, token, state, guide.score(state))
        return self.children[token]

    def tokens(self) -> list[int]:
        prefix, found = self, list[int]()
        while prefix.parent is not None:
            found.append(prefix.token)
            prefix = prefix.parent
        return found[::-1]


def prefix_search(
    log_probs: NDArray[np.floating[Any]],
    guide: Guide,
    *,
    beam: int,
    n_best: int = 1,
    never: tuple[int, ...] = (),
    least: float = LEAST,
    within: float = WITHIN,
) -> list[CtcHypothesis]:
    """The best texts of the frames [T, C], best first; the last class is the blank, and `never` are tokens of no text.

    There may be fewer than `n_best`, and none where the guide allows no text that the frames could spell.
    """
    start = guide.start()
    root = _Prefix(None, -1, start, guide.score(start))
    with _without_garbage_collection(root):
        return _searched(root, log_probs, guide, beam=beam, n_best=n_best, never=never, least=least, within=within)


def _searched(
    root: _Prefix,
    log_probs: NDArray[np.floating[Any]],
    guide: Guide,
    *,
    beam: int,
    n_best: int,
    never: tuple[int, ...],
    least: float,
    within: float,
) -> list[CtcHypothesis]:
    root.blank, live, scale = 1.0, [root], 0.0
    for frame, blank, tokens in _frames(log_probs, never, least):
        live = _kept(_reached(live, frame, blank, tokens, guide, beam, within), beam, within)
        total = sum(prefix.blank + prefix.label for prefix in live)
        if not total:
            return []
        scale += math.log(total)
        for prefix in live:
            prefix.blank /= total
            prefix.label /= total
    return heapq.nlargest(n_best, _finished(live, guide, scale), key=attrgetter("score"))


@contextmanager
def _without_garbage_collection(root: _Prefix) -> Iterator[None]:
    """Keep Python from looking for garbage while the tree of prefixes grows, and take the tree apart at the end.

    A search creates hundreds of thousands of objects, and every so often Python would go through all objects of the process, such as a
    lexicon. Prefixes refer to each other in both directions, so without the collector they have to be taken apart.
    """
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        _take_apart(root)
        if collected:
            gc.enable()


def _take_apart(root: _Prefix) -> None:
    left = [root]
    while left:
        children = left.pop().children
        left += [child for child in children.values() if child is not None]
        children.clear()


def _frames(
    log_probs: NDArray[np.floating[Any]], never: tuple[int, ...], least: float
) -> Iterator[tuple[list[float], float, list[int]]]:
    """For each frame its probabilities, that of the blank, and the tokens worth trying, the likeliest first."""
    probabilities = np.exp(log_probs.astype(np.float64))
    wanted = probabilities[:, :-1].copy()
    wanted[:, list(never)] = -1.0
    order, counts = (-wanted).argsort(1, kind="stable"), ((wanted >= least) & (wanted > 0)).sum(1)
    for row, tokens, count in zip(probabilities, order, counts, strict=True):
        yield row.tolist(), float(row[-1]), tokens[:count].tolist()


def _reached(
    live: list[_Prefix], frame: list[float], blank: float, tokens: list[int], guide: Guide, beam: int, within: float
) -> list[_Prefix]:
    """Every prefix that has an alignment to one frame more and may stay in the beam, with the sums of those alignments."""
    for prefix in live:
        prefix.next_blank = (prefix.blank + prefix.label) * blank
        prefix.next_label = prefix.label * frame[prefix.token]
    ranks = [_rank_of_staying(prefix) for prefix in live]
    floor = max(max(ranks) - within, min(ranks) if len(live) >= beam else -math.inf) - _GAIN
    reached = {id(prefix): prefix for prefix in live}
    for prefix in live:
        whole = prefix.blank + prefix.label
        least = _exp(floor - prefix.worth) / whole if whole else math.inf
        for token in tokens:
            if frame[token] < least:
                break
            child = prefix.child(token, guide)
            if child is not None:
                child.next_label += (prefix.blank if token == prefix.token else whole) * frame[token]
                reached[id(child)] = child
    return list(reached.values())


def _rank_of_staying(prefix: _Prefix) -> float:
    """What the prefix is worth without another token: its log-probability, and what the guide adds."""
    whole = prefix.next_blank + prefix.next_label
    return math.log(whole) + prefix.worth if whole else -math.inf


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def _kept(reached: list[_Prefix], beam: int, within: float) -> list[_Prefix]:
    """The best prefixes, with their sums at the new frame; the sums of the others are forgotten."""
    for prefix in reached:
        prefix.blank, prefix.label = prefix.next_blank, prefix.next_label
        prefix.next_blank = prefix.next_label = 0.0
        whole = prefix.blank + prefix.label
        prefix.rank = math.log(whole) + prefix.worth if whole else -math.inf  # a function would take longer here
    least = max(map(attrgetter("rank"), reached)) - within
    near = [prefix for prefix in reached if prefix.rank >= least]
    return near if len(near) <= beam else heapq.nlargest(beam, near, key=attrgetter("rank"))


def _finished(live: list[_Prefix], guide: Guide, scale: float) -> Iterator[CtcHypothesis]:
    for prefix in live:
        state, whole = guide.ended(prefix.state), prefix.blank + prefix.label
        if state is not None and whole:
            log_probability = math.log(whole) + scale
            yield CtcHypothesis(prefix.tokens(), log_probability, state, log_probability + guide.score(state))
