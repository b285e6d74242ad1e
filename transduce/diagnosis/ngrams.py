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
_FIRST, _LAST, _LENGTH, _NEXT_WORD = (
    np.uint64(factor) for factor in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xFF51AFD7ED558CCD, 0xD6E8FEB86659FD93)
)
_WORD_BYTES = 8
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD_BYTES + 1)], np.uint64)


@dataclass(frozen=True)
class NGrams:
    """The n-grams of a block: their hashes, and the row of each."""

    hashes: Hashes
    rows: NDArray[np.int64]


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
    """The hash of each word and its row. It depends on the first and last eight bytes of the word, and on its length."""
    plain = side.data.translate(_PLAIN)
    values = np.frombuffer(plain, np.uint8)
    blank = (values == 32) | (values == 10)
    first = ~blank
    first[1:] &= blank[:-1]
    if values.max(initial=0) >= _UNSPACED[0]:
        first |= (values >= _UNSPACED[0]) & (values <= _UNSPACED[1])
    begins = np.flatnonzero(first)
    blanks = np.flatnonzero(blank)
    ends = np.minimum(np.append(begins[1:], len(values)), blanks[np.searchsorted(blanks, begins)])
    return _hashed(plain, begins, ends), np.searchsorted(side.ends, begins)


def _hashed(text: bytes, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> Hashes:
    padding = bytes(_WORD_BYTES)
    padded = padding + text + padding
    # The eight bytes from every position on, without copying.
    eight = np.ndarray((len(padded) - _WORD_BYTES + 1,), "<u8", padded, strides=(1,))
    sizes = ends - begins
    start = eight[begins + _WORD_BYTES] & _MASKS[np.minimum(sizes, _WORD_BYTES)]
    end = np.where(sizes > _WORD_BYTES, eight[ends], np.uint64(0))
    value = start * _FIRST + end * _LAST + sizes.astype(np.uint64) * _LENGTH
    return value ^ (value >> np.uint64(32))
