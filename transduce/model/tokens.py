"""A batch of tokens, and who may attend to whom.

One small type covers the ordinary padded batch (one sentence a row) and the packed one (several whole sentences a
row): `segment` numbers the sentences of a row from 1, and 0 is padding. Padding is known from `segment` alone,
never from ids. Knows nothing of text: ids are numbers.

Axes: R rows, W places of a row, Q places that ask, K places that are asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.model.shapes import Bool, Int

Sentence = Sequence[int] | NDArray[np.integer]  # ids


@dataclass(frozen=True)
class Tokens:
    """Ids, the position of each in its sentence, and the sentence of its row it belongs to (0: padding)."""

    ids: Int[Tensor, "R W"]
    position: Int[Tensor, "R W"]
    segment: Int[Tensor, "R W"]

    @staticmethod
    def padded(sentences: Sequence[Sentence], pad: int) -> "Tokens":
        """One sentence a row."""
        lengths = list(map(len, sentences))
        ids = torch.from_numpy(padded_ids(sentences, max(lengths, default=0), pad))
        return Tokens.of_lengths(ids, torch.tensor(lengths, dtype=torch.long))

    @staticmethod
    def of_lengths(ids: Int[Tensor, "R W"], lengths: Int[Tensor, "R"]) -> "Tokens":
        """Rows of one sentence, of which the first so many ids are real."""
        position = torch.arange(ids.shape[1], device=ids.device).expand(len(ids), -1)
        real = position < lengths[:, None]
        return Tokens(ids, position * real, real.long())

    @staticmethod
    def packed(rows: Sequence[Sequence[Sentence]], pad: int) -> "Tokens":
        """Several whole sentences a row, in the order given."""
        width = max((sum(map(len, row)) for row in rows), default=0)
        ids = torch.full((len(rows), width), pad)
        position, segment = torch.zeros_like(ids), torch.zeros_like(ids)
        for r, row in enumerate(rows):
            begin = 0
            for number, sentence in enumerate(row, start=1):
                place = slice(begin, begin := begin + len(sentence))
                ids[r, place] = torch.as_tensor(np.asarray(sentence, np.int64))
                position[r, place] = torch.arange(len(sentence))
                segment[r, place] = number
        return Tokens(ids, position, segment)

    @property
    def width(self) -> int:
        return self.ids.shape[1]

    @property
    def real(self) -> Bool[Tensor, "R W"]:
        """True where there is a token rather than padding."""
        return self.segment != 0

    def to(self, device: torch.device | str) -> "Tokens":
        return Tokens(
            self.ids.to(device, non_blocking=True),
            self.position.to(device, non_blocking=True),
            self.segment.to(device, non_blocking=True),
        )

    def rows(self, rows: slice) -> "Tokens":
        return Tokens(self.ids[rows], self.position[rows], self.segment[rows])

    def pinned(self) -> "Tokens":
        """The same in memory from which a GPU copies while others work."""
        return Tokens(self.ids.pin_memory(), self.position.pin_memory(), self.segment.pin_memory())


@dataclass(frozen=True)
class Keep:
    """Who may attend to whom: places of the same sentence; with `causal`, none that is later in the row.

    A padding place may see anything: a query without a single key would be not-a-number, and nobody looks at it.
    """

    asking: Int[Tensor, "R Q"]  # the segments of the places that ask
    asked: Int[Tensor, "R K"]
    causal: bool = False

    @cached_property
    def mask(self) -> Bool[Tensor, "R 1 Q K"]:
        """True = may be attended to."""
        asking, asked = self.asking[:, None, :, None], self.asked[:, None, None, :]
        keep = (asking == asked) | (asking == 0)
        if not self.causal:
            return keep
        return keep & torch.ones(keep.shape[-2:], dtype=torch.bool, device=keep.device).tril()

    def select(self, rows: Int[Tensor, "N"]) -> "Keep":
        return Keep(self.asking.index_select(0, rows), self.asked.index_select(0, rows), self.causal)


def keep_same_sentence(segment: Int[Tensor, "R W"]) -> Keep:
    """Encoder self-attention: the whole sentence."""
    return Keep(segment, segment)


def keep_earlier(segment: Int[Tensor, "R W"]) -> Keep:
    """The sequence mask: the same sentence, and not later in the row (section 3.2.3)."""
    return Keep(segment, segment, causal=True)


def keep_source(target: Int[Tensor, "R Q"], source: Int[Tensor, "R K"]) -> Keep:
    """Attention to the source: the sentence with the same number."""
    return Keep(target, source)


def padded_ids(sentences: Sequence[Sentence], width: int, pad: int) -> NDArray[np.int64]:
    """One sentence a row, none longer than `width`."""
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    ids = np.full((len(sentences), width), pad, np.int64)
    ids[np.arange(width) < lengths[:, None]] = _joined(sentences)
    return ids


def _joined(sentences: Sequence[Sentence]) -> NDArray[np.integer]:
    if sentences and isinstance(sentences[0], np.ndarray):
        return np.concatenate(sentences)
    return np.fromiter(chain.from_iterable(sentences), np.int64)  # for short lists faster than an array of each
