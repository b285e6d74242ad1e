"""The first reading of a corpus: it checks every line, counts, hashes, and takes a sample for the vocabulary.

Nothing is written before this reading succeeds. It needs no more memory than the sample. Knows strings, not ids.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import eq

import numpy as np

from transduce.data.corpus import Corpus, Group, PairBlock, are_equal
from transduce.errors import DataError
from transduce.scripts import count_scripts, main_script, unspaced_words

SAMPLE_CHARACTERS = 100_000_000
TOKEN_PAIRS = 20_000  # pairs of the sample whose whitespace tokens are counted
DISTINCT_TOKENS = 100_000  # distinct tokens are counted up to this number
COVERED = 0.9995  # share of the text that the alphabet covers, as sentencepiece recommends for large alphabets


class EmptyCorpus(DataError):
    """A corpus without a single pair, or without a line of text."""

    def __init__(self, groups: Sequence[Group], unit: str = "pair") -> None:
        names = " ".join(path for group in groups for path in group)
        super().__init__(f"{names}: empty: there is no {unit} to learn from")


@dataclass(frozen=True)
class SideStatistics:
    """Statistics of the source texts or of the target texts."""

    characters: int
    tokens_per_line: float  # whitespace tokens, in the sample
    distinct_tokens: int  # in the sample, at most DISTINCT_TOKENS
    unspaced_words_per_line: float  # estimated, in scripts without spaces between words, in the sample
    alphabet: int  # characters that cover COVERED of the sample
    script: str  # of most letters


@dataclass(frozen=True)
class Scan:
    """What one reading of a corpus has found."""

    pairs: int
    groups: tuple[int, ...]  # how many of them each group of the corpus has
    content: str  # sha256 of the pairs and groups, whatever files, formats and compression they came in
    empty: int  # pairs with a side that is empty or only whitespace
    identical: int
    carriage_returns: int
    byte_order_marks: int
    blank: int  # lines that were skipped
    source: SideStatistics
    target: SideStatistics
    symbols: tuple[str, ...]  # of the features column
    sample: tuple[list[str], list[str]]  # sources and targets, evenly spread over the corpus
    found: frozenset[tuple[str, str]] = frozenset()  # the pairs of `look_for` that occur
    audio: bool = False  # whether the sources are recordings


@dataclass
class _Sample:
    """Every `stride`-th pair; when the sample becomes too large, every second pair is dropped and the stride doubles."""

    most_pairs: int
    stride: int = 1
    seen: int = 0
    characters: int = 0
    source: list[str] = field(default_factory=list)
    target: list[str] = field(default_factory=list)

    def add(self, block: PairBlock) -> None:
        taken = slice(-self.seen % self.stride, None, self.stride)
        self.source += block.source[taken]
        self.target += block.target[taken]
        self.characters += _characters(block.source[taken]) + _characters(block.target[taken])
        self.seen += len(block.source)
        while len(self.source) > max(1, self.most_pairs) or (
            self.characters > SAMPLE_CHARACTERS and len(self.source) > 1
        ):
            self._thin()

    def _thin(self) -> None:
        self.source, self.target = self.source[::2], self.target[::2]
        self.characters = _characters(self.source) + _characters(self.target)
        self.stride *= 2


def scan(corpus: Corpus, sample_pairs: int, look_for: Iterable[tuple[str, str]] = ()) -> Scan:
    """Read everything once; any error in the data is raised here, before anything is built."""
    wanted, found = frozenset(look_for), set[tuple[str, str]]()
    counts = dict.fromkeys(("empty", "identical", "carriage_returns", "byte_order_marks", "blank"), 0)
    characters = [0, 0]
    symbols: set[str] = set()
    content = hashlib.sha256()
    sample = _Sample(sample_pairs)
    groups, recordings = [0] * len(corpus.groups), 0
    for block in corpus.blocks():
        content.update(_fingerprint(block))
        sample.add(block)
        groups[block.group] += len(block.source)
        symbols |= block.symbols
        recordings += len(block.places)
        if wanted:
            found |= wanted.intersection(zip(block.source, block.target, strict=True))
        counts["empty"] += sum(is_empty(*pair) for pair in zip(block.source, block.target, strict=True))
        counts["identical"] += sum(map(are_equal if corpus.tags else eq, block.source, block.target))
        counts["carriage_returns"] += block.carriage_returns
        counts["byte_order_marks"] += block.byte_order_marks
        counts["blank"] += block.blank
        characters[0] += _characters(block.source)
        characters[1] += _characters(block.target)
    if sample.seen == 0:
        raise EmptyCorpus(corpus.groups, corpus.unit)
    if 0 < recordings < sample.seen:
        raise DataError(
            "some of the training or validation files name recordings and others have text: give files of one kind"
        )
    if len(groups) > 1:  # blocks do not always show where a group ends
        content.update(repr(groups).encode())
    return Scan(
        pairs=sample.seen,
        groups=tuple(groups),
        content=content.hexdigest(),
        source=side_of(characters[0], sample.source),
        target=side_of(characters[1], sample.target),
        symbols=tuple(sorted(symbols)),
        sample=(sample.source, sample.target),
        found=frozenset(found),
        audio=recordings > 0,
        **counts,
    )


def is_empty(source: str, target: str) -> bool:
    return not (source and target) or source.isspace() or target.isspace()


def _fingerprint(block: PairBlock) -> bytes:
    """A digest of a block; the lengths are part of it because the texts are joined without separators."""
    digest = hashlib.sha256()
    for side in (block.identities, block.target):
        digest.update(np.fromiter(map(len, side), "<i8", len(side)).tobytes())
        digest.update("".join(side).encode())
    return digest.digest()


def _characters(lines: Iterable[str]) -> int:
    return sum(map(len, lines))


def side_of(characters: int, lines: list[str]) -> SideStatistics:
    """Statistics of one side, from a sample of its lines and the number of all its characters."""
    looked_at = lines[:: max(1, len(lines) // TOKEN_PAIRS)]
    tokens, distinct, letters = 0, set[str](), Counter[str]()
    for line in looked_at:
        words = line.split()
        tokens += len(words)
        letters.update(line)
        if len(distinct) < DISTINCT_TOKENS:
            distinct.update(words)
    scripts = count_scripts(letters)
    return SideStatistics(
        characters=characters,
        tokens_per_line=tokens / len(looked_at),
        distinct_tokens=min(len(distinct), DISTINCT_TOKENS),
        unspaced_words_per_line=unspaced_words(scripts) / len(looked_at),
        alphabet=_covering(letters),
        script=main_script(scripts),
    )


def _covering(letters: Counter[str]) -> int:
    """How many of the most frequent characters make up COVERED of the text."""
    covered = accumulate(times for _, times in letters.most_common())
    return min(len(letters), 1 + sum(count < COVERED * letters.total() for count in covered))
