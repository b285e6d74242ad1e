"""Hashes of the n-grams of words of whole blocks, computed without looking at single words.

Upper and lower case and ASCII punctuation make no difference. In scripts without spaces, every character is a word.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.diagnosis.analysis import Side

N = 5
Hashes = NDArray[np.uint64]

_PUNCTUATION = b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\t\r"
_PLAIN = bytes(32 if code in _PUNCTUATION else code + 32 if 65 <= code <= 90 else code for code in range(256))
_UNSPACED = (0xE3, 0xED)  # first bytes of kana, Chinese characters and Hangul
_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 2**64)
_NEXT_WORD = np.uint64(0xD6E8FEB86659FD93)
_CODES = np.random.default_rng(0).integers(0, 2**63, 256, dtype=np.uint64)


@dataclass(frozen=True)
class NGrams:
    """The n-grams of a block: their hashes, and the row of each."""

    hashes: Hashes
    rows: NDArray[np.int64]


class Powers:
    """Powers of a number and of its inverse, as many as the longest block has needed."""

    def __init__(self) -> None:
        self.up = self.down = np.ones(1, np.uint64)

    def of(self, count: int) -> tuple[Hashes, Hashes]:
        if count > len(self.up):
            size = 1 << count.bit_length()
            self.up, self.down = (_powers(base, size) for base in (_BASE, _INVERSE))
        return self.up[:count], self.down[:count]


def _powers(base: int, size: int) -> Hashes:
    factors = np.full(size, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors)


_POWERS = Powers()


def ngrams(side: Side) -> NGrams:
    """The n-grams of every row of a block."""
    words, rows = _words(side)
    if len(words) < N:
        return NGrams(np.empty(0, np.uint64), np.empty(0, np.int64))
    together = len(words) - N + 1
    hashes = words[:together].copy()
    for following in range(1, N):
        hashes = hashes * _NEXT_WORD + words[following : following + together]
    within = rows[:together] == rows[N - 1 :]
    hashes = hashes[within]
    return NGrams(hashes ^ (hashes >> np.uint64(31)), rows[:together][within])


def _words(side: Side) -> tuple[Hashes, NDArray[np.int64]]:
    """The hash of each word, from differences of one running sum over the block, and the row of each word."""
    values = np.frombuffer(side.data.translate(_PLAIN), np.uint8)
    blank = (values == 32) | (values == 10)
    first = ~blank
    first[1:] &= blank[:-1]
    if values.max(initial=0) >= _UNSPACED[0]:
        first |= (values >= _UNSPACED[0]) & (values <= _UNSPACED[1])
    begins = np.flatnonzero(first)
    following = np.append(begins[1:], len(values))
    ends = np.minimum(following, _next_blank(blank, begins))
    up, down = _POWERS.of(len(values))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_CODES[values] * up)])
    return (sums[ends] - sums[begins]) * down[begins], np.searchsorted(side.ends, begins)


def _next_blank(blank: NDArray[np.bool_], begins: NDArray[np.int64]) -> NDArray[np.int64]:
    blanks = np.flatnonzero(blank)
    return blanks[np.searchsorted(blanks, begins)]
