"""Windows of text: the documents of a store, cut to the context of a language model.

A window is a pair without a source. Where the windows of an epoch begin is a pure function of (seed, epoch), so that a
resumed run sees the same ones, and every epoch cuts the text elsewhere: with fixed cuts, a model overfits sooner. The first token
of a window is predicted from the last token of the window before it; nothing else is seen of other windows, and nothing of
other documents. This module knows ids and no text.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from transduce.data.ragged import Numbers
from transduce.data.store import Store
from transduce.text import Vocabularies

Documents = Literal["file", "blank-line", "line"]
Offsets = NDArray[np.int64]

NO_TOKEN = -1  # before the first token of a document
FULL = 0.9  # share of a row that windows fill on average: from here on, each has a row to itself
_STREAM = 0x77696E  # keeps these random numbers independent of others drawn from (seed, epoch)


def document_ends(line_lengths: Numbers, file_lines: Sequence[int], documents: Documents) -> Offsets:
    """Where each document ends, counted in tokens, by the tokens of each line and the lines of each file."""
    ends = np.cumsum(line_lengths, dtype=np.int64)
    if documents == "line":
        return ends
    last_lines = np.cumsum(file_lines, dtype=np.int64) - 1
    if documents == "blank-line":  # a line of nothing but `</s>`
        last_lines = np.union1d(np.flatnonzero(line_lengths == 1), last_lines)
    return np.unique(ends[last_lines[last_lines >= 0]])


def strided_windows(ends: Offsets, context: int, stride: int) -> list[tuple[int, int, int]]:
    """Windows that begin `stride` tokens apart in each document: the begin, the first token not in an earlier one, the end."""
    windows = []
    for first, last in pairwise([0, *ends.tolist()]):
        end = first
        for begin in range(first, last, stride):
            new, end = end, min(begin + context, last)
            windows.append((begin, new, end))
            if end == last:
                break
    return windows


def cut_documents(ends: Offsets, context: int, first: int) -> Offsets:
    """Where the windows end: documents longer than `context` begin with a window of `first` tokens."""
    begins = np.concatenate([[0], ends[:-1]])
    long = np.flatnonzero(ends - begins > context)
    cuts = [np.arange(begins[n] + first, ends[n], context) for n in long]
    return np.unique(np.concatenate([ends, *cuts]))


class TextWindows:
    """The windows of one epoch as pairs with empty sources, which batches are made from.

    `first` is the length of a long document's first window; 0 means the whole context. `cut` is where documents end, if known.
    """

    def __init__(
        self, store: Store, context: int, documents: Documents, first: int = 0, cut: Offsets | None = None
    ) -> None:
        self.store, self.context, self.documents = store, context, documents
        self.document_ends = document_ends(store.target_lengths, store.groups, documents) if cut is None else cut
        self.ends = cut_documents(self.document_ends, context, first or context)  # in tokens from the start of the text
        self.begins = np.concatenate([[0], self.ends[:-1]])
        self.target_lengths: NDArray[np.int32] = (self.ends - self.begins).astype(np.int32)
        self.source_lengths: NDArray[np.int32] = np.zeros_like(self.target_lengths)
        self.groups: tuple[int, ...] = (len(self.ends),)

    @property
    def size(self) -> int:
        return self.store.size

    @property
    def one_per_row(self) -> bool:
        """Whether most windows fill a row, so that packing several into one would save nothing."""
        return FULL * len(self.ends) * self.context <= float(self.ends[-1])

    def source(self, index: int) -> Numbers:
        return np.empty(0, np.int64)

    def sources(self, numbers: Numbers) -> Numbers:
        return np.empty(0, np.int64)

    def target(self, index: int) -> Numbers:
        return self.store.target_ids[self.begins[index] : self.ends[index]]

    def targets(self, numbers: Numbers) -> Numbers:
        return np.concatenate([self.target(int(n)) for n in numbers])

    def preceding(self, numbers: Numbers) -> Numbers:
        """The token before each window, from which its first token is predicted; none before a document."""
        begins = self.begins[numbers]
        before = self.store.target_ids[np.maximum(begins - 1, 0)].astype(np.int64)
        documents = np.searchsorted(self.document_ends, begins)  # a window never begins at the end of the last one
        begins_document = (begins == 0) | (self.document_ends[documents] == begins)
        return np.where(begins_document, NO_TOKEN, before)

    def at_epoch(self, seed: int, epoch: int) -> "TextWindows":
        """The same text, cut elsewhere."""
        first = int(np.random.default_rng([seed, epoch, _STREAM]).integers(1, self.context + 1))
        return TextWindows(self.store, self.context, self.documents, first, self.document_ends)

    def resampled(self, vocabularies: Vocabularies, rate: float, seed: int, epoch: int) -> "TextWindows":
        raise AssertionError("settings refuse subword sampling of text")
