"""A batch of tokens or frames, and which positions may attend to which.

One small type covers the ordinary padded batch (one sentence per row) and the packed one (several whole sentences per
row): `segment` numbers the sentences of a row from 1, and 0 is padding. Padding is known from `segment` alone, never from
ids. Knows nothing about text: ids are numbers.

Axes: R rows, W positions of a row, Q query positions, K key positions, F values of a frame.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from transduce.model.shapes import Bool, Float, Int

Sentence = Sequence[int] | NDArray[np.integer]  # ids
SourceItem = Sequence[int] | NDArray[Any]  # what one source is: ids, or an array of frames


Batched = TypeVar("Batched", bound="_Rows")


class _Rows:
    """Base of tokens and frames: a batch whose fields are tensors with one entry per row."""

    segment: Int[Tensor, "R W"]

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, positions, and the shape of one position if it is not a single id."""
        first: Tensor = getattr(self, fields(self)[0].name)  # type: ignore[arg-type]
        return tuple(first.shape)

    @property
    def width(self) -> int:
        return self.segment.shape[1]

    @property
    def real(self) -> Bool[Tensor, "R W"]:
        """True for tokens and frames, False for padding."""
        return self.segment != 0

    def to(self: Batched, device: torch.device | str) -> Batched:
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def rows(self: Batched, rows: slice) -> Batched:
        return self._each(lambda tensor: tensor[rows])

    def padded_to(self: Batched, rows: int, width: int) -> Batched:
        """The same with more padding after each row, and with rows of padding after the last one."""
        more = (0, width - self.width, 0, rows - len(self.segment))
        return self._each(lambda tensor: pad(tensor, (0, 0) * (tensor.dim() - 2) + more))

    def doubled(self: Batched) -> Batched:
        """All rows twice: the whole batch followed by a copy of it."""
        return self._each(lambda tensor: torch.cat([tensor, tensor]))

    def pinned(self: Batched) -> Batched:
        """The same in page-locked memory, from which a GPU copies asynchronously."""
        return self._each(Tensor.pin_memory)

    def copy_(self, other: Any) -> None:
        """Overwrite the tensors with those of another batch of the same shape."""
        for field in fields(self):  # type: ignore[arg-type]
            getattr(self, field.name).copy_(getattr(other, field.name), non_blocking=True)

    def _each(self: Batched, change: Callable[[Tensor], Tensor]) -> Batched:
        return type(self)(*(change(getattr(self, field.name)) for field in fields(self)))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Tokens(_Rows):
    """Ids, with the position of each in its sentence and the number of its sentence in the row (0: padding)."""

    ids: Int[Tensor, "R W"]
    position: Int[Tensor, "R W"]
    segment: Int[Tensor, "R W"]

    @staticmethod
    def padded(sentences: Sequence[Sentence], pad: int) -> "Tokens":
        """One sentence per row."""
        lengths = list(map(len, sentences))
        ids = torch.from_numpy(padded_ids(sentences, max(lengths, default=0), pad))
        return Tokens.of_lengths(ids, torch.tensor(lengths, dtype=torch.long))

    @staticmethod
    def of_lengths(ids: Int[Tensor, "R W"], lengths: Int[Tensor, "R"]) -> "Tokens":
        """One sentence per row, where the first `lengths[r]` ids of row r are real and the rest is padding."""
        position = torch.arange(ids.shape[1], device=ids.device).expand(len(ids), -1)
        real = position < lengths[:, None]
        return Tokens(ids, position * real, real.long())

    @staticmethod
    def packed(rows: Sequence[Sequence[Sentence]], pad: int) -> "Tokens":
        """Several whole sentences per row, in the given order."""
        width = max((sum(map(len, row)) for row in rows), default=0)
        ids = torch.full((len(rows), width), pad)
        position, segment = torch.zeros_like(ids), torch.zeros_like(ids)
        for r, row in enumerate(rows):
            begin = 0
            for number, sentence in enumerate(row, start=1):
                columns = slice(begin, begin := begin + len(sentence))
                ids[r, columns] = torch.as_tensor(np.asarray(sentence, np.int64))
                position[r, columns] = torch.arange(len(sentence))
                segment[r, columns] = number
        return Tokens(ids, position, segment)


@dataclass(frozen=True)
class Sequences(Tokens):
    """Tokens of which each row is a single sequence, with padding after it: attention to what is earlier needs no mask."""


@dataclass(frozen=True)
class Frames(_Rows):
    """Vectors of numbers, such as the log-mel energies of speech, instead of ids; otherwise the same as tokens."""

    values: Float[Tensor, "R W F"]
    position: Int[Tensor, "R W"]
    segment: Int[Tensor, "R W"]

    @staticmethod
    def padded(sources: Sequence[NDArray[np.floating]]) -> "Frames":
        """One source per row."""
        lengths = [len(source) for source in sources]
        values = np.zeros((len(sources), max(lengths), *sources[0].shape[1:]), np.result_type(*sources))
        for row, source in zip(values, sources, strict=True):
            row[: len(source)] = source
        position = torch.arange(values.shape[1]).expand(len(sources), -1)
        real = position < torch.tensor(lengths)[:, None]
        return Frames(torch.from_numpy(values), position * real, real.long())


Source = Tokens | Frames


def collate(sources: Sequence[SourceItem], pad: int) -> Source:
    """One source per row: tokens where the sources are ids, frames where each is an array of vectors."""
    if sources and isinstance(sources[0], np.ndarray) and sources[0].ndim == 2:
        return Frames.padded(sources)  # type: ignore[arg-type]
    return Tokens.padded(sources, pad)


@dataclass(frozen=True)
class Keep:
    """The attention mask: a position attends to its own sentence and, if `causal`, to no later position of the row.

    With a `window`, it attends to that many neighbours on each side. A padding position attends to everything, since without any
    key its result would be NaN. The result is never used.
    """

    query: Int[Tensor, "R Q"]  # the segments of the query positions
    key: Int[Tensor, "R K"]
    causal: bool = False
    window: int = 0  # 0: no limit
    prefix: int = 0  # the first positions of a row, which all positions of their sentence see even if `causal`
    only_causal: bool = False  # each row is one sequence, with its padding last: the order alone is the mask
    whole_row: bool = False  # each row is one sentence: every position attends to all positions that are not padding

    @cached_property
    def mask(self) -> Bool[Tensor, "R 1 Q K"] | Bool[Tensor, "R 1 1 K"]:
        """True = may be attended to."""
        if self.whole_row:  # W instead of W x W booleans, which attention would convert and keep in each layer
            real = self.key != 0
            return (real | ~real.any(1, keepdim=True))[:, None, None, :]
        query, key = self.query[:, None, :, None], self.key[:, None, None, :]
        keep = (query == key) | (query == 0)
        if not self.causal and not self.window:
            return keep
        band = torch.ones(keep.shape[-2:], dtype=torch.bool, device=keep.device)
        if self.window:
            band = band.tril(self.window).triu(-self.window)
        if self.causal:
            band = band.tril()
            band[:, : self.prefix] = True
        return keep & band

    def select(self, rows: Int[Tensor, "N"]) -> "Keep":
        return replace(self, query=self.query.index_select(0, rows), key=self.key.index_select(0, rows))


def keep_same_sentence(segment: Int[Tensor, "R W"], window: int = 0) -> Keep:
    """Encoder self-attention: the whole sentence, or the neighbours in a window (section 4, "restricted")."""
    return Keep(segment, segment, window=window)


def keep_whole_row(segment: Int[Tensor, "R W"]) -> Keep:
    """The same where each row is one sentence."""
    return Keep(segment, segment, whole_row=True)


def keep_earlier(segment: Int[Tensor, "R W"], window: int = 0) -> Keep:
    """Decoder self-attention: the same sentence, up to the position itself (section 3.2.3)."""
    return Keep(segment, segment, causal=True, window=window)


def keep_earlier_of(target: Tokens, window: int = 0) -> Keep:
    """The same, without a mask of segments where each row is a single sequence."""
    only_causal = isinstance(target, Sequences) and not window
    return Keep(target.segment, target.segment, causal=True, window=window, only_causal=only_causal)


def keep_source(target: Int[Tensor, "R Q"], source: Int[Tensor, "R K"]) -> Keep:
    """Attention to the source: the source sentence with the same number."""
    return Keep(target, source)


def padded_ids(sentences: Sequence[Sentence], width: int, pad: int) -> NDArray[np.int64]:
    """One sentence per row; none may be longer than `width`."""
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    ids = np.full((len(sentences), width), pad, np.int64)
    ids[np.arange(width) < lengths[:, None]] = _joined(sentences)
    return ids


def _joined(sentences: Sequence[Sentence]) -> NDArray[np.integer]:
    if sentences and isinstance(sentences[0], np.ndarray):
        return np.concatenate(sentences)
    return np.fromiter(chain.from_iterable(sentences), np.int64)  # faster than making an array of each short list
