"""MinHash signatures of pairs, for whole blocks of text at once.

A pair is a set of word bigrams of both sides, without case, digits and punctuation. Its signature has SIZE bytes, and two
signatures agree in about as many bytes as the sets have in common (b-bit minwise hashing, Li and König 2010). Eight bytes
make one 64-bit band, so a signature is also its own table of bands for locality-sensitive hashing. Knows bytes only.
"""

import numpy as np
from numpy.typing import NDArray

SIZE = 64  # bytes of a signature: the standard error of a similarity of 0.8 is 0.05
BANDS = SIZE // 8

Hashes = NDArray[np.uint64]
Signatures = NDArray[np.uint8]  # [pairs, SIZE]

_RANDOM = np.random.default_rng(20_100)
_OF_BYTE = _RANDOM.integers(0, 1 << 63, 256, np.uint64)
_FACTORS = _RANDOM.integers(0, 1 << 31, SIZE, np.uint32) | np.uint32(1)
_SHIFTS = _RANDOM.integers(0, 1 << 32, SIZE, np.uint32)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SALTS = (np.uint64(0), np.uint64(0x5851F42D4C957F2D))  # of source and target: equal words of the two sides differ
_WIDE = 0xE0  # first byte of characters of three or more bytes: most of their scripts have no spaces, so each is a word
_SYMBOLS = 0xE2  # first byte of U+2000 to U+2FFF: dashes, quotation marks and other symbols

# Letters in lower case; bytes of characters beyond ASCII stay as they are; 0 for what separates words.
_LETTER = np.arange(256, dtype=np.uint8)
_LETTER[:128] = [code | 0x20 if chr(code).isalpha() else 0 for code in range(128)]


def word_hashes(data: NDArray[np.uint8], ends: NDArray[np.int64]) -> tuple[Hashes, NDArray[np.int64]]:
    """The hash of each word of a text, and for each line the number of words before its end."""
    letters = _LETTER[data]
    symbols = np.flatnonzero(data == _SYMBOLS)
    for byte in range(3):
        letters[np.minimum(symbols + byte, len(data) - 1)] = 0
    inside = letters > 0
    follows = np.concatenate([[False], inside[:-1]])
    wide = inside & (letters >= _WIDE)
    begins = np.flatnonzero((inside & ~follows) | wide)
    stops = np.flatnonzero((follows & ~inside) | (wide & follows))
    return _spelt(letters, begins, stops), np.searchsorted(begins, ends)


def line_hashes(data: NDArray[np.uint8], ends: NDArray[np.int64]) -> Hashes:
    """A hash of all bytes of each line."""
    return _spelt(data, np.concatenate([np.zeros(min(1, len(ends)), np.int64), ends[:-1] + 1]), ends)


def _spelt(letters: NDArray[np.uint8], begins: NDArray[np.int64], stops: NDArray[np.int64]) -> Hashes:
    """The sum of each word's letters, weighted by their distance from its end, from two running sums."""
    once = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_OF_BYTE[letters])])
    twice = np.concatenate([np.zeros(1, np.uint64), np.cumsum(once[1:])])
    hashes = twice[stops] - twice[begins] - (stops - begins).astype(np.uint64) * once[begins]
    hashes *= _MIX
    return hashes ^ (hashes >> np.uint64(32))


def bigram_hashes(words: Hashes, ends: NDArray[np.int64], salt: np.uint64) -> NDArray[np.uint32]:
    """Each word with the one before it; the first of a line is alone."""
    before = np.concatenate([np.zeros(min(1, len(words)), np.uint64), words[:-1]])
    firsts = np.concatenate([np.zeros(min(1, len(ends)), np.int64), ends[:-1]])
    before[firsts[firsts < len(words)]] = 0
    return (((words + salt) * _MIX + before) * _MIX >> np.uint64(32)).astype(np.uint32)


def signatures(sides: list[tuple[NDArray[np.uint8], NDArray[np.int64]]]) -> tuple[Signatures, NDArray[np.int64]]:
    """The signatures of all pairs that have words, and their rows; each side is its bytes and the ends of its lines."""
    hashes, counts = [], []
    for (data, ends), salt in zip(sides, _SALTS, strict=True):
        words, word_ends = word_hashes(data, ends)
        hashes.append(bigram_hashes(words, word_ends, salt))
        counts.append(np.diff(word_ends, prepend=0))
    total = counts[0] + counts[1]
    rows = np.flatnonzero(total)
    return minima(_interleaved(hashes, counts), total[rows]), rows


def _interleaved(hashes: list[NDArray[np.uint32]], counts: list[NDArray[np.int64]]) -> NDArray[np.uint32]:
    """The hashes of the first source, the first target, the second source, and so on."""
    rows = np.arange(len(counts[0]))
    order = np.concatenate([np.repeat(2 * rows + side, counts[side]) for side in (0, 1)])
    return np.concatenate(hashes)[np.argsort(order, kind="stable")]


def minima(tokens: NDArray[np.uint32], counts: NDArray[np.int64]) -> Signatures:
    """One byte of the smallest hash of each set, for each of SIZE hash functions; no set is empty."""
    begins = np.concatenate([np.zeros(min(1, len(counts)), np.int64), np.cumsum(counts)[:-1]])
    found = np.empty((len(counts), SIZE), np.uint8)
    for number in range(SIZE if len(counts) else 0):
        hashes = tokens * _FACTORS[number]
        hashes ^= hashes >> np.uint32(15)
        hashes += _SHIFTS[number]
        smallest = np.minimum.reduceat(hashes, begins)
        found[:, number] = (smallest * np.uint32(0x9E3779B9)) >> np.uint32(24)
    return found


def similarities(one: Signatures, other: Signatures) -> NDArray[np.float64]:
    """The estimated Jaccard similarity of each row; unequal minima have equal bytes once in 256 times."""
    return (np.mean(one == other, axis=1) - 1 / 256) / (1 - 1 / 256)
