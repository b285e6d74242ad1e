"""A batch of tokens, and who may attend to whom.

One small type covers the ordinary padded batch (one sentence a row) and the packed one (several whole sentences a
row): `segment` numbers the sentences of a row from 1, and 0 is padding. Padding is known from `segment` alone,
never from ids. Knows nothing of text: ids are numbers.

Axes: R rows, W places of a row, Q places that ask, K places that are asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
        lengths = torch.tensor([len(sentence) for sentence in sentences], dtype=torch.long)
        position = torch.arange(int(lengths.max()) if len(sentences) else 0).expand(len(sentences), -1)
        real = position < lengths[:, None]
        ids = torch.full(real.shape, pad)
        ids[real] = torch.from_numpy(np.concatenate([np.asarray(sentence, np.int64) for sentence in sentences]))
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


def keep_same_sentence(asking: Int[Tensor, "R Q"], asked: Int[Tensor, "R K"]) -> Bool[Tensor, "R 1 Q K"]:
    """True where a place may attend to another: both in the same sentence. Padding keeps padding's company."""
    return asking[:, None, :, None] == asked[:, None, None, :]


def keep_earlier(segment: Int[Tensor, "R W"]) -> Bool[Tensor, "R 1 W W"]:
    """The sequence mask: the same sentence, and not later in the row (section 3.2.3)."""
    width = segment.shape[1]
    order = torch.ones(width, width, dtype=torch.bool, device=segment.device).tril()
    return keep_same_sentence(segment, segment) & order


def keep_source(target: Int[Tensor, "R Q"], source: Int[Tensor, "R K"]) -> Bool[Tensor, "R 1 Q K"]:
    """The same sentence, or anything at all for padding: a query without a single key would be not-a-number."""
    return keep_same_sentence(target, source) | (target == 0)[:, None, :, None]
