"""What a format of input files is: a range of rows in, the same rows with their translations out. Knows no models."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from transduce.data import READ_ERRORS, unreadable
from transduce.errors import DataError

ROWS_AT_ONCE = 4_096


@dataclass(frozen=True)
class Range:
    """Consecutive rows of a file."""

    path: str
    first: int  # counted from 0, without the header line
    rows: int
    offset: int | None  # the byte where they begin, if the file can be entered there


@dataclass(frozen=True)
class Rows:
    """Consecutive rows: the texts to translate, and the rows themselves in the form of their format."""

    texts: list[str]
    kept: Any
    undecodable: int = 0  # lines that were not UTF-8


class Writer(Protocol):
    """Writes rows with their translations to a file."""

    def write(self, kept: Any, translations: Sequence[str]) -> None: ...

    def close(self) -> None: ...


class Format(Protocol):
    """How a kind of file is read and written."""

    @property
    def ending(self) -> str:
        """The ending of the files that are written."""
        ...

    def check(self, path: str) -> None:
        """Refuse a file that is of another kind, lacks a column, or already has one for the translations."""
        ...

    def header(self, path: str) -> str:
        """The header line of the output for a file, if there is one."""
        ...

    def ranges(self, path: str, rows: int) -> Iterator[Range]:
        """The file cut into ranges of this many rows."""
        ...

    def read(self, part: Range) -> Iterator[Rows]:
        """The rows of a range, at most `ROWS_AT_ONCE` at a time."""
        ...

    def place(self, part: Range, index: int) -> str:
        """Where a row of a range is, for messages."""
        ...

    def writer(self, file: IO[bytes]) -> Writer:
        """Writes rows of this format to an open file."""
        ...

    def count(self, path: Path) -> int:
        """The number of rows in a file that was written."""
        ...

    def join(self, header: str, parts: Sequence[Path], file: IO[bytes]) -> None:
        """Write the rows of several files to one, in order, below a header line if there is one."""
        ...


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Turn errors while reading a file into errors of one line."""
    try:
        yield
    except READ_ERRORS as error:
        raise unreadable(where, error) from None


def already_there(where: str, what: str, name: str) -> DataError:
    return DataError(f"{where}: already has a {what} '{name}': name the one for the translations with --into")
