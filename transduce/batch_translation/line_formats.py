"""Formats of files of lines: plain text, TSV and JSONL, compressed or not.

Only "\\n" ends a line, as everywhere in Transduce, and a blank line of a table stays a blank line. Bytes that are not
UTF-8 are read as U+FFFD and counted: a crawl of the web is never free of them.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from transduce.batch_translation.formats import ROWS_AT_ONCE, Range, Rows, already_there, reading
from transduce.config.columns import Columns
from transduce.data import open_bytes
from transduce.data.corpus import is_compressed
from transduce.data.json_lines import json_object
from transduce.errors import DataError, SettingError

CHUNK = 1 << 20  # bytes
CHECKED = 1 << 16  # bytes at the beginning of a file, which show whether it is text
_SURROGATES = re.compile("[\ud800-\udfff]")

TextOf = Callable[[str, str], str]  # from a line and its place, `file:line`
TextsOf = Callable[[list[str], int], list[str]]  # from consecutive lines of a range and the number of the first


class TextLines:
    """Plain text: the translation of each line."""

    ending = "txt"

    def check(self, path: str) -> None:
        _check_text(path)
        next(self.read(Range(path, 0, 1, None)), None)

    def header(self, path: str) -> str:
        return ""

    def heading(self) -> int:
        """The number of header lines of an input."""
        return 0

    def ranges(self, path: str, rows: int) -> Iterator[Range]:
        for first, offset, count in _cut(path, rows, self.heading()):
            yield Range(path, first - self.heading(), count, None if is_compressed(path) else offset)

    def read(self, part: Range) -> Iterator[Rows]:
        index, texts_of = 0, self.texts_of(part)
        for lines in _lines(part, part.first + self.heading()):
            decoded = [_decoded(line.removesuffix(b"\n").removesuffix(b"\r")) for line in lines]
            written = [line for line, _ in decoded]
            yield Rows(texts_of(written, index), written, sum(bad for _, bad in decoded))
            index += len(lines)

    def place(self, part: Range, index: int) -> str:
        return f"{part.path}:{part.first + self.heading() + index + 1}"

    def texts_of(self, part: Range) -> TextsOf:
        """Finds the texts to translate in lines of this range; the number of the first of these lines is given too."""
        return lambda lines, index: lines

    def writer(self, file: IO[bytes]) -> "LineWriter":
        return LineWriter(file, self.line)

    def line(self, kept: str, translation: str) -> str:
        """The line that is written for a line that was read."""
        return translation

    def count(self, path: Path) -> int:
        with path.open("rb") as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(CHUNK), b""))

    def join(self, header: str, parts: Sequence[Path], file: IO[bytes]) -> None:
        if header:
            file.write(f"{header}\n".encode())
        for part in parts:
            with part.open("rb") as read:
                shutil.copyfileobj(read, file, CHUNK)


class LineWriter:
    """Writes one line for each row."""

    def __init__(self, file: IO[bytes], line: Callable[[str, str], str]) -> None:
        self.file, self.line = file, line

    def write(self, kept: Any, translations: Sequence[str]) -> None:
        pairs = zip(kept, translations, strict=True)
        self.file.write("".join(f"{self.line(*pair)}\n" for pair in pairs).encode())

    def close(self) -> None:
        self.file.flush()


class RecordLines(TextLines):
    """Lines with several fields, one of which is translated."""

    def texts_of(self, part: Range) -> TextsOf:
        text_of = self.text_of(part.path)
        return lambda lines, index: [text_of(line, self.place(part, n)) for n, line in enumerate(lines, index)]

    def text_of(self, path: str) -> TextOf:
        """Finds the text to translate in a line of this file."""
        raise NotImplementedError


@dataclass(frozen=True)
class TsvLines(RecordLines):
    """TSV: each line, with its translation as one more column. Columns with names are those of a header line."""

    columns: Columns
    into: str
    ending = "tsv"

    def check(self, path: str) -> None:
        super().check(path)
        if self.columns.named and self.into in _first_line(path).split("\t"):
            raise already_there(f"{path}:1", "column", self.into)

    def header(self, path: str) -> str:
        return f"{_first_line(path)}\t{self.into}" if self.columns.named else ""

    def heading(self) -> int:
        return int(self.columns.named)

    def _numbered(self, path: str) -> Columns:
        if not self.columns.named:
            return self.columns
        names = _first_line(path).split("\t")
        try:
            return self.columns.numbered(names)
        except KeyError as missing:
            raise DataError(f"{path}:1: no column {missing} in the header line, which has {', '.join(names)}") from None

    def text_of(self, path: str) -> TextOf:
        columns = self._numbered(path)

        def text(line: str, where: str) -> str:
            fields = line.split("\t")
            if line.strip() and len(fields) < columns.needed:
                raise DataError(f"{where}: has {len(fields)} of the {columns.needed} columns that --columns names")
            return columns.source_of(fields) if line.strip() else ""

        return text

    def line(self, kept: str, translation: str) -> str:
        return f"{kept}\t{translation.replace(chr(9), ' ')}" if kept.strip() else ""


@dataclass(frozen=True)
class JsonLines(RecordLines):
    """JSONL: the object of each line, with its translation under one more key."""

    columns: Columns
    into: str
    ending = "jsonl"

    def __post_init__(self) -> None:
        if not self.columns.named:
            raise SettingError("JSONL has keys, not numbers of columns: --columns source=KEY")

    def text_of(self, path: str) -> TextOf:
        return lambda line, where: self._text(line, where) if line.strip() else ""

    def _text(self, line: str, where: str) -> str:
        record = json_object(line, where)
        if self.into in record:
            raise already_there(where, "key", self.into)
        for key in filter(None, (self.columns.source, self.columns.features)):
            if not isinstance(record.get(key), str):
                raise DataError(f"{where}: no text under the key '{key}'; its keys are {', '.join(record)}")
        return _SURROGATES.sub("\ufffd", self.columns.source_of(record))

    def line(self, kept: str, translation: str) -> str:
        if not kept.strip():
            return ""
        record = {**json.loads(kept), self.into: translation}
        line = json.dumps(record, ensure_ascii=False)
        return json.dumps(record) if _SURROGATES.search(line) else line  # half a character needs an escape


def _decoded(line: bytes) -> tuple[str, bool]:
    try:
        return line.decode(), False
    except UnicodeDecodeError:
        return line.decode(errors="replace"), True


def _check_text(path: str) -> None:
    """Refuse what is no text, by its beginning: a line that is not UTF-8 is common in crawls, a file of them is a mistake."""
    with reading(path), open_bytes(path) as file:
        beginning = file.read(CHECKED)
    whole = beginning[: beginning.rfind(b"\n") + 1] if len(beginning) == CHECKED else beginning
    lines = whole.splitlines()
    strange = sum(_decoded(line)[1] for line in lines)
    if 2 * strange > len(lines) or 100 * beginning.count(0) > len(beginning):
        raise DataError(
            f"{path}: its first lines are not UTF-8 text: convert it with iconv; the name of a compressed file must end in .gz, "
            ".xz or .bz2"
        )


def _first_line(path: str) -> str:
    with reading(path), open_bytes(path) as file:
        return _decoded(file.readline().rstrip(b"\r\n"))[0]


def _lines(part: Range, before: int) -> Iterator[list[bytes]]:
    """The lines of a range, a block at a time. A compressed file is read from its beginning."""
    with reading(part.path), open_bytes(part.path) as file:
        if part.offset is not None:
            file.seek(part.offset)
        else:
            next(islice(file, before, before), None)  # skips the lines before
        lines = islice(file, part.rows)
        while block := list(islice(lines, ROWS_AT_ONCE)):
            yield block


def _cut(path: str, rows: int, heading: int) -> Iterator[tuple[int, int, int]]:
    """For each range of `rows` lines after the header: the number of its first line, its first byte, and its lines."""
    first = offset = position = number = 0
    last, ends_line = heading or rows, True
    with reading(path), open_bytes(path) as file:
        while chunk := file.read(CHUNK):
            at = 0
            while (found := chunk.count(b"\n", at)) >= last - number:
                for _ in range(last - number):
                    at = chunk.index(b"\n", at) + 1
                if first >= heading:
                    yield first, offset, last - first
                first, offset, number, last = last, position + at, last, last + rows
            number += found
            position += len(chunk)
            ends_line = chunk.endswith(b"\n")
    number += not ends_line  # the last line may lack its "\n"
    if number > first >= heading:
        yield first, offset, number - first
