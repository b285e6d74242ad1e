"""Ragged arrays on disk: rows of different lengths, written in one pass and read through a memory map.

`NAME.values` holds the rows end to end, `NAME.offsets` where each row begins and the last one ends, and `NAME.lengths` the
length of each row, all little-endian. This module does not know what the rows mean.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from transduce.files import synchronize_open

Numbers = NDArray[np.integer]

_PARTS = ("values", "offsets", "lengths")


@dataclass(frozen=True)
class Rows:
    """Rows in memory, end to end."""

    values: Numbers
    lengths: NDArray[np.int32]

    @classmethod
    def of_ids(cls, rows: list[list[int]], dtype: str) -> Self:
        lengths = np.fromiter(map(len, rows), "<i4", len(rows))
        return cls(np.fromiter(chain.from_iterable(rows), dtype, int(lengths.sum())), lengths)

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> Self:
        rows = [text.encode() for text in texts]
        return cls(np.frombuffer(b"".join(rows), "u1"), np.fromiter(map(len, rows), "<i4", len(rows)))


class RaggedWriter:
    """Appends rows to a new ragged array; leaving the `with` block synchronises the files to disk."""

    def __init__(self, folder: Path, name: str) -> None:
        self._values, self._offsets, self._lengths = (_path(folder, name, part).open("wb") for part in _PARTS)
        self._end = 0
        self._offsets.write(np.zeros(1, "<i8").tobytes())

    def append(self, rows: Rows) -> None:
        offsets = self._end + np.cumsum(rows.lengths, dtype="<i8")
        self._values.write(rows.values.tobytes())
        self._offsets.write(offsets.tobytes())
        self._lengths.write(rows.lengths.tobytes())
        self._end = int(offsets[-1]) if len(offsets) else self._end

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in (self._values, self._offsets, self._lengths):
            with file:
                if error is None:
                    synchronize_open(file)


class Ragged:
    """A ragged array on disk, memory-mapped."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        values, offsets, lengths = (_path(folder, name, part) for part in _PARTS)
        self.values = _mapped(values, dtype)
        self.offsets = _mapped(offsets, "<i8")
        self.lengths: NDArray[np.int32] = np.asarray(_mapped(lengths, "<i4"))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Numbers:
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def take(self, rows: Numbers) -> Numbers:
        """Several rows end to end."""
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths, dtype=np.int64)
        return self.values[
            np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.offsets[rows] - ends + lengths, lengths)
        ]

    def texts(self, begin: int, end: int) -> list[str]:
        """Rows of UTF-8 bytes as strings."""
        return [self[index].tobytes().decode() for index in range(begin, end)]


def _path(folder: Path, name: str, part: str) -> Path:
    return folder / f"{name}.{part}"


def _mapped(path: Path, dtype: str) -> Numbers:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))
