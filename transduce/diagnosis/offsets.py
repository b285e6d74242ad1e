"""Offsets between the two sides of a corpus: where source line i belongs to target line i + offset instead of i.

Each line is reduced to a few small codes: its length, first and last character, punctuation and digits. How the codes of
the two sides depend on each other is learned from the corpus itself, so nothing needs to be known about the languages.
Every window of lines gets a score for each offset between the sides, and dynamic programming finds the best sequence of
offsets. Knows codes and positions, and no files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

FEWEST_LINES = 300  # with fewer, there is too little evidence
FEWEST_TO_MATCH = 2_000  # lines: with fewer, nothing is said about sides that match nowhere at all
WINDOW = 32  # lines: the resolution of the search; boundaries are then found to the line
NEAR = 8  # lines: offsets that are always tried
FAR = 1_000  # lines: offsets that are tried where no other fits
SWITCH = (
    40.0  # nats that a change of the offset must gain: twice what the best of all windows and offsets gains by chance
)
TRUST = 0.5  # the codes of a line depend on each other, so the sum of their scores says too much
MOST_TRIED = 20  # stretches for which all offsets up to FAR are tried
NOISE = 0.05  # share of pairs that may match in nothing: bounds how much a single line can say
NOWHERE = 1 << 60  # the offset of lines that match at no offset

Codes = NDArray[np.uint8]  # [lines, features]
Table = NDArray[np.float32]  # [source classes, target classes]
Scores = NDArray[np.float32]

LENGTH, FIRST, LAST, PUNCTUATION, NUMBERS = range(5)
FEATURES = 5
_MARKS = b".?!:;,\"()'-"  # each is a class of its own as first or last byte; other bytes share the remaining classes
_CLASSES = (64, 32, 32, 8, 256)
_CLASS_OF_BYTE = np.array([_MARKS.find(byte) if byte in _MARKS else 12 + byte % 19 for byte in range(256)], np.uint8)
_IS_PUNCTUATION = np.isin(np.arange(256), list(b',;:()"?!'))
_DIGIT_WEIGHTS = np.array([17, 37, 59, 83, 101, 127, 151, 179, 199, 229])  # a sum ignores order and separators
_EMPTY = 31  # the class of the first and last byte of an empty line
_LINES_AT_ONCE = 1 << 16
_LINES_FOR_OFFSET = 20_000


@dataclass(frozen=True)
class Stretch:
    """Source lines `first` to `last`, counted from 0 and inclusive, belong to the targets `offset` lines later."""

    first: int
    last: int
    offset: int  # NOWHERE if they match at no offset
    evidence: float  # nats that the offset gains over 0

    def __len__(self) -> int:
        return self.last - self.first + 1


def codes_of(data: NDArray[np.uint8], ends: NDArray[np.int64]) -> Codes:
    """The codes of each line of a text, given its bytes and the position of the line feed after each line."""
    starts = np.concatenate([np.zeros(min(1, len(ends)), np.int64), ends[:-1] + 1])
    codes = np.empty((len(ends), FEATURES), np.uint8)
    codes[:, LENGTH] = np.minimum(5 * np.log2(ends - starts + 1), _CLASSES[LENGTH] - 1)
    codes[:, FIRST] = np.where(ends > starts, _CLASS_OF_BYTE[data[starts]], _EMPTY)
    codes[:, LAST] = np.where(ends > starts, _CLASS_OF_BYTE[data[ends - 1]], _EMPTY)
    codes[:, PUNCTUATION] = np.minimum(_per_line(np.flatnonzero(_IS_PUNCTUATION[data]), ends), 7)
    codes[:, NUMBERS] = _number_codes(data, ends)
    return codes


def _per_line(positions: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.diff(np.searchsorted(positions, ends), prepend=0)


def _number_codes(data: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 for a line without digits, otherwise 1 to 255 by a hash of its digits."""
    positions = np.flatnonzero((data - np.uint8(ord("0"))) < 10)
    sums = np.concatenate([[0], np.cumsum(_DIGIT_WEIGHTS[data[positions] - ord("0")])])
    hashes = np.diff(sums[np.searchsorted(positions, ends)], prepend=0)
    return np.where(hashes > 0, 1 + hashes % 255, 0)


def find_shifts(source: Codes, target: Codes) -> list[Stretch]:
    """The stretches of lines in which the sides, which have equally many, are shifted against each other, in order."""
    lines = len(source)
    if lines < FEWEST_LINES:
        return []
    usual = _usual_offset(source, target)
    if lines >= FEWEST_TO_MATCH and not _match_at(source, target, usual):
        return [Stretch(0, len(source) - 1, NOWHERE, 0.0)]
    return _widening(_Sides(source, target, learn_tables(source, target, usual)), {*range(-NEAR, NEAR + 1), usual})


def _widening(sides: "_Sides", near: set[int]) -> list[Stretch]:
    """Search with the near offsets first, and add those that fit stretches which match at none of them."""
    offsets = sorted(near)
    while True:
        found = _searched(sides, offsets)
        lost = sorted((one for one in found if one.offset == NOWHERE), key=lambda one: -one.evidence)[:MOST_TRIED]
        far = {offset for one in lost for offset in _far_offset(sides, one)} - set(offsets)
        if not far or len(offsets) > 4 * NEAR:
            return found
        offsets = sorted({*offsets, *far})


# --- how the two sides depend on each other ------------------------------------------------------------------------


def learn_tables(source: Codes, target: Codes, offset: int) -> list[Table]:
    """For each feature, the log of how much likelier two codes are in a pair than in two random lines."""
    one, other = _shifted(source, target, offset)
    return [
        _equality_table(one[:, f], other[:, f]) if f == NUMBERS else _joint_table(one[:, f], other[:, f], _CLASSES[f])
        for f in range(FEATURES)
    ]


def _shifted(source: Codes, target: Codes, offset: int) -> tuple[Codes, Codes]:
    """The pairs (i, i + offset)."""
    first, last = max(0, -offset), min(len(source), len(target) - offset)
    return source[first:last], target[first + offset : last + offset]


def _joint_table(one: NDArray[np.uint8], other: NDArray[np.uint8], classes: int) -> Table:
    counts = np.bincount(one.astype(np.int64) * classes + other, minlength=classes**2)
    joint = counts.reshape(classes, classes) / len(one)
    return _information(joint, np.outer(joint.sum(1), joint.sum(0)))


def _equality_table(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> Table:
    """All numbers are treated alike: absent on both sides, on one side, equal, or different."""
    classes = _CLASSES[NUMBERS]
    values = np.arange(classes)
    kinds = _kinds(values[:, None], values[None, :])
    joint = np.bincount(_kinds(one, other), minlength=4) / len(one)
    alone = np.outer(np.bincount(one, minlength=classes), np.bincount(other, minlength=classes)) / len(one) ** 2
    independent = np.array([alone[kinds == kind].sum() for kind in range(4)])
    return _information(joint, independent)[kinds]


def _kinds(
    one: NDArray[np.int64] | NDArray[np.uint8], other: NDArray[np.int64] | NDArray[np.uint8]
) -> NDArray[np.int64]:
    return np.where((one == 0) & (other == 0), 0, np.where((one == 0) | (other == 0), 1, np.where(one == other, 2, 3)))


def _information(joint: NDArray[np.float64], independent: NDArray[np.float64]) -> Table:
    """Pointwise mutual information, of a mixture with noise so that it has a bound below; the bound above is its mirror."""
    seen = np.maximum(independent, 1e-12)
    information = np.log(((1 - NOISE) * joint + NOISE * seen) / seen)
    return (TRUST * np.clip(information, np.log(NOISE), -np.log(NOISE))).astype(np.float32)


def _match_at(source: Codes, target: Codes, offset: int) -> bool:
    """Whether the sides tell more about each other at this offset than in random order."""
    source, target = _middle(source), _middle(target)
    shuffled = np.random.default_rng(0).permutation(target)
    return _mean_score(source, target, offset) > 2 * max(0.02, _mean_score(source, shuffled, 0))


def _middle(codes: Codes) -> Codes:
    begin = max(0, len(codes) - _LINES_FOR_OFFSET) // 2
    return codes[begin : begin + _LINES_FOR_OFFSET]


def _mean_score(source: Codes, target: Codes, offset: int) -> float:
    sides = _Sides(source, target, learn_tables(source, target, offset))
    first, last = max(0, -offset), min(len(source), len(target) - offset)
    return float(sides.scores(offset, first, last).mean())


def _usual_offset(source: Codes, target: Codes) -> int:
    """The offset at which most lines match, by their lengths; 0 unless another is clearly better."""
    correlations = _length_correlations(source, target)
    best = int(np.argmax(correlations)) - FAR
    return best if correlations[best + FAR] > 1.5 * max(correlations[FAR], 0.1) else 0


def _length_correlations(source: Codes, target: Codes) -> NDArray[np.float64]:
    """The correlation of the lengths at offsets from -FAR to FAR, over one stretch in the middle, by Fourier transforms."""
    one, other = (_standardized(_middle(side)[:, LENGTH]) for side in (source, target))
    lines = len(one)
    size = 2 * (lines + FAR)
    product = np.conj(np.fft.rfft(one, size)) * np.fft.rfft(other, size)
    return np.roll(np.fft.irfft(product, size), FAR)[: 2 * FAR + 1] / lines


def _standardized(values: NDArray[np.uint8]) -> NDArray[np.float64]:
    return (values - values.mean()) / (values.std() or 1.0)


# --- the best sequence of offsets ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sides:
    """The codes of both sides, and what they say about each other."""

    source: Codes
    target: Codes
    tables: list[Table]

    def __len__(self) -> int:
        return len(self.source)

    def scores(self, offset: int, first: int, last: int) -> Scores:
        """How well the sources from `first` to before `last` match the targets `offset` lines later; 0 where there is none."""
        scores = np.zeros(last - first, np.float32)
        begin, end = max(first, -offset), min(last, len(self.target) - offset)
        if offset != NOWHERE and begin < end:
            one, other = self.source[begin:end], self.target[begin + offset : end + offset]
            for feature, table in enumerate(self.tables):
                scores[begin - first : end - first] += table[one[:, feature], other[:, feature]]
        return scores

    def window_scores(self, offset: int) -> Scores:
        """The score of each window at one offset, computed in blocks of bounded size."""
        blocks = range(0, len(self), _LINES_AT_ONCE)
        return np.concatenate([_summed(self.scores(offset, at, min(at + _LINES_AT_ONCE, len(self)))) for at in blocks])


def _summed(scores: Scores) -> Scores:
    return np.add.reduceat(scores, np.arange(0, len(scores), WINDOW))


def _searched(sides: _Sides, offsets: Sequence[int]) -> list[Stretch]:
    states = [*offsets, NOWHERE]
    windows = np.stack([sides.window_scores(offset) for offset in states], axis=1)
    path = _best_path(windows, states.index(0))
    gains = windows[np.arange(len(path)), path] - windows[:, states.index(0)]
    found = [
        Stretch(first * WINDOW, min(last * WINDOW, len(sides)) - 1, states[path[first]], float(gains[first:last].sum()))
        for first, last in _runs(path)
    ]
    exact = list(_to_the_line(sides, found))
    in_step = [0, *(len(one) if one.offset == 0 else 0 for one in exact), 0]
    grown = [_grown(sides, one, in_step[n], in_step[n + 2]) for n, one in enumerate(exact)]
    return [one for one in grown if one.offset != 0]


def _best_path(windows: Scores, usual: int) -> NDArray[np.int64]:
    """The state of each window in the best sequence (Viterbi): every change of the state costs SWITCH."""
    best = np.full(windows.shape[1], -SWITCH)
    best[usual] = 0.0
    came_from = np.empty(windows.shape, np.int16)
    stay = np.arange(windows.shape[1])
    for number, scores in enumerate(windows):
        top = int(best.argmax())
        changed = best[top] - SWITCH > best
        came_from[number] = np.where(changed, top, stay)
        best = np.where(changed, best[top] - SWITCH, best) + scores
    path = np.empty(len(windows), np.int64)
    state = int(best.argmax())
    for number in range(len(windows) - 1, -1, -1):
        path[number] = state
        state = came_from[number, state]
    return path


def _runs(path: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """First and last + 1 of each run of equal states."""
    changes = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    yield from pairwise(changes)


def _to_the_line(sides: _Sides, stretches: list[Stretch]) -> Iterator[Stretch]:
    """The same stretches with boundaries found to the line; the first one is preceded by the offset 0."""
    first = 0
    if stretches[0].offset != 0:
        first = _boundary(sides, 0, 0, stretches[0].offset)
    for one, following in zip(stretches, [*stretches[1:], None], strict=True):
        end = _boundary(sides, following.first, one.offset, following.offset) if following else len(sides)
        yield replace(one, first=first, last=max(first, end - 1))
        first = end


def _boundary(sides: _Sides, near: int, before: int, after: int) -> int:
    """The first line of the offset `after`."""
    first, last = max(0, near - 2 * WINDOW), min(len(sides), near + 2 * WINDOW)
    gains = sides.scores(before, first, last) - sides.scores(after, first, last)
    return first + int(np.concatenate([[0.0], np.cumsum(gains)]).argmax())


def _grown(sides: _Sides, stretch: Stretch, room_before: int, room_after: int) -> Stretch:
    """The stretch with the lines beside it whose counterparts were lost, at most as many as the offset."""
    lost = 0 if stretch.offset == NOWHERE else abs(stretch.offset)
    before = sides.scores(0, stretch.first - min(lost, room_before), stretch.first)[::-1]
    after = sides.scores(0, stretch.last + 1, stretch.last + 1 + min(lost, room_after))
    earlier, later = (int(np.concatenate([[0.0], np.cumsum(scores)]).argmin()) for scores in (before, after))
    return replace(stretch, first=stretch.first - earlier, last=stretch.last + later)


def _far_offset(sides: _Sides, stretch: Stretch) -> list[int]:
    """The offset up to FAR that fits the beginning of a stretch best, if it fits."""
    first, last = stretch.first, min(stretch.last + 1, stretch.first + FAR)
    totals = [float(sides.scores(offset, first, last).sum()) for offset in range(-FAR, FAR + 1)]
    best = int(np.argmax(totals))
    return [best - FAR] if totals[best] > SWITCH else []
