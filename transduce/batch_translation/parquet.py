"""The format parquet: the columns of a file, and the translations as one more. Needs the package pyarrow."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from transduce.batch_translation.formats import ROWS_AT_ONCE, Range, Rows, already_there, reading
from transduce.config.columns import Columns
from transduce.errors import DataError, MissingExtra, SettingError

TEXT_TYPES = ("string", "large_string", "string_view", "null")


@dataclass(frozen=True)
class Parquet:
    """Parquet files with a column to translate."""

    columns: Columns
    into: str
    ending = "parquet"

    def __post_init__(self) -> None:
        if find_spec("pyarrow") is None:
            raise MissingExtra("pyarrow", "parquet")
        if not self.columns.named:
            raise SettingError("parquet files have names, not numbers of columns: --columns source=NAME")

    @property
    def _read_columns(self) -> list[str]:
        return [name for name in (self.columns.source, self.columns.features) if name]

    def check(self, path: str) -> None:
        schema = _open(path).schema_arrow
        for name in self._read_columns:
            if name not in schema.names:
                raise DataError(f"{path}: no column '{name}'; its columns are {', '.join(schema.names)}")
            if str(schema.field(name).type) not in TEXT_TYPES:
                raise DataError(f"{path}: column '{name}' holds {schema.field(name).type}, not text")
        if self.into in schema.names:
            raise already_there(path, "column", self.into)

    def header(self, path: str) -> str:
        return ""

    def ranges(self, path: str, rows: int) -> Iterator[Range]:
        total = self.count(Path(path))
        for first in range(0, total, rows):
            yield Range(path, first, min(rows, total - first), None)

    def read(self, part: Range) -> Iterator[Rows]:
        names = self._read_columns
        for batch in _batches(part):
            fields = [batch.column(name).to_pylist() for name in names]
            records = [{n: v or "" for n, v in zip(names, row, strict=True)} for row in zip(*fields, strict=True)]
            yield Rows([self.columns.source_of(record) for record in records], batch)

    def place(self, part: Range, index: int) -> str:
        return f"{part.path}: row {part.first + index + 1}"

    def writer(self, file: IO[bytes]) -> "ParquetWriter":
        return ParquetWriter(file, self.into)

    def count(self, path: Path) -> int:
        return int(_open(str(path)).metadata.num_rows)

    def join(self, header: str, parts: Sequence[Path], file: IO[bytes]) -> None:
        from pyarrow import parquet

        with parquet.ParquetWriter(file, _open(str(parts[0])).schema_arrow) as joined:
            for part in parts:
                for batch in _open(str(part)).iter_batches():
                    joined.write_batch(batch)


class ParquetWriter:
    """Writes record batches with their translations."""

    def __init__(self, file: IO[bytes], into: str) -> None:
        self.file, self.into = file, into
        self.parquet: Any = None  # opened with the schema of the first rows

    def write(self, kept: Any, translations: Sequence[str]) -> None:
        import pyarrow
        from pyarrow import parquet

        batch = kept.append_column(self.into, pyarrow.array(translations, pyarrow.string()))
        self.parquet = self.parquet or parquet.ParquetWriter(self.file, batch.schema)
        self.parquet.write_batch(batch)

    def close(self) -> None:
        if self.parquet:
            self.parquet.close()
        self.file.flush()


def _open(path: str) -> Any:
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(path)
    except FileNotFoundError:
        raise  # an attempt at a shard that was overtaken; a missing input is reported before
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {os.strerror(error.errno).lower() if error.errno else error}"
        ) from None
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: not a parquet file, or a damaged one ({str(error)[:80]})") from None


def _batches(part: Range) -> Iterator[Any]:
    """The rows of the range, from the row groups that hold them."""
    file, begin, last = _open(part.path), 0, part.first + part.rows
    with reading(part.path):
        for group in range(file.num_row_groups):
            end = begin + file.metadata.row_group(group).num_rows
            if end > part.first and begin < last:
                yield from _within(file.iter_batches(ROWS_AT_ONCE, row_groups=[group]), part, begin)
            begin = end


def _within(batches: Iterator[Any], part: Range, begin: int) -> Iterator[Any]:
    """The rows of these batches that are in the range; the first batch begins at row `begin` of the file."""
    for batch in batches:
        skip = min(batch.num_rows, max(0, part.first - begin))
        rows = min(batch.num_rows, part.first + part.rows - begin) - skip
        if rows > 0:
            yield batch.slice(skip, rows)
        begin += batch.num_rows
