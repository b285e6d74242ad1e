"""Corpora: files of pairs in any of the formats -> blocks of pairs of strings, in bounded memory.

What followed one `--train` is a group: one TSV or JSONL file, or two aligned text files. Groups are concatenated.
Every file may be compressed (.gz, .xz, .bz2). Text is strict UTF-8 and only "\\n" ends a line. A corpus is read more than
once: standard input and pipes are copied to files first (`transduce/data/inputs.py`). Knows no vocabularies and no ids.
"""

import bz2
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Literal
from zlib import crc32

from transduce.errors import DataError

LINES_PER_BLOCK = 4096

Group = tuple[str, ...]

_OPENERS: dict[str, Callable[[str], IO[bytes]]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}  # type: ignore[dict-item]
_TABLES = {".tsv": "tsv", ".jsonl": "json", ".json": "json"}
READ_ERRORS = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, OSError)  # of a file, compressed or not


@dataclass(frozen=True)
class Block:
    """Consecutive pairs, and what was stripped from or found in their lines."""

    source: list[str]
    target: list[str]
    carriage_returns: int
    byte_order_marks: int
    symbols: frozenset[str] = frozenset()  # of the features column
    group: int = 0  # the number of the group they are from; a block never crosses two


@dataclass(frozen=True)
class Corpus:
    """Where pairs are read from, and how."""

    groups: tuple[Group, ...]
    languages: tuple[str, ...] = ()  # keys of {"translation": {...}}; without them, the first two in order
    features_column: int = 0  # TSV: the column, counted from 1, whose `A;B` makes the source `... ;A;B`
    hold_out: int = 0  # about one source in this many belongs to the held-out part; 0: there is none
    part: Literal["kept", "held out"] = "kept"

    def blocks(self) -> Iterator[Block]:
        """The pairs of this part in order, read `LINES_PER_BLOCK` at a time."""
        for number, group in enumerate(self.groups):
            for block in self._group_blocks(group):
                yield replace(self._part_of(block) if self.hold_out else block, group=number)

    def _part_of(self, block: Block) -> Block:
        """By a hash of the source, so that equal sources (a word and its pronunciations) are never in both parts."""
        wanted = self.part == "held out"
        rows = [n for n, text in enumerate(block.source) if (crc32(text.encode()) % self.hold_out == 0) == wanted]
        return replace(block, source=[block.source[n] for n in rows], target=[block.target[n] for n in rows])

    def _group_blocks(self, group: Group) -> Iterator[Block]:
        kind = _kind(group)
        first_line = 1
        for sides in _lines_together(group):
            carriage_returns = sum(side.carriage_returns for side in sides)
            marks = sum(side.byte_order_marks for side in sides)
            lines = sides[0].lines
            if kind == "aligned":
                yield Block(lines, sides[1].lines, carriage_returns, marks)
            elif kind == "tsv":
                parsed = _parse_tsv(lines, group[0], first_line, self.features_column)
                yield replace(parsed, carriage_returns=carriage_returns, byte_order_marks=marks)
            else:
                pairs = [
                    _parse_json(line, f"{group[0]}:{n}", self.languages) for n, line in enumerate(lines, first_line)
                ]
                yield Block([s for s, _ in pairs], [t for _, t in pairs], carriage_returns, marks)
            first_line += len(lines)


def read_pairs(corpus: Corpus) -> tuple[list[str], list[str]]:
    """All sources and all targets, for corpora that fit in memory: test sets."""
    sources: list[str] = []
    targets: list[str] = []
    for block in corpus.blocks():
        sources += block.source
        targets += block.target
    return sources, targets


def is_table(path: str) -> bool:
    """Whether the file's name says that it holds both sides: TSV or JSONL."""
    return _ending(path) in _TABLES


def _kind(group: Group) -> str:
    """`aligned`, `tsv` or `json`; a group that is none of these is refused."""
    endings = [_ending(path) for path in group]
    if len(group) == 1 and endings[0] in _TABLES:
        return _TABLES[endings[0]]
    if len(group) == 1:
        raise DataError(f"{group[0]}: one file must be .tsv or .jsonl; else give a source and a target file")
    if len(group) > 2:
        raise DataError(f"{' '.join(group)}: give one TSV or JSONL file, or a source and a target file")
    if endings[0] in _TABLES and endings[0] == endings[1]:
        raise DataError(f"{group[0]} {group[1]}: each TSV or JSONL file needs an option of its own: repeat it")
    return "aligned"


def _ending(path: str) -> str:
    """What kind of file it is by its name, compressed or not."""
    name = Path(path)
    return (name.with_suffix("") if name.suffix.lower() in _OPENERS else name).suffix.lower()


@dataclass(frozen=True)
class _Lines:
    lines: list[str]
    carriage_returns: int
    byte_order_marks: int


class _Reader:
    """One file's lines, a block at a time, with every failure named by file and line."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.read = 0
        try:
            self._file = io.TextIOWrapper(open_bytes(path), encoding="utf-8", errors="strict", newline="\n")
        except OSError as error:
            raise unreadable(path, error) from None

    def take(self) -> _Lines:
        try:
            text = "".join(islice(self._file, LINES_PER_BLOCK))
        except UnicodeDecodeError:
            raise _undecodable(self.path) from None
        except READ_ERRORS as error:
            raise unreadable(f"{self.path}:{self.read + 1}", error) from None
        return self._split(text)

    def _split(self, text: str) -> _Lines:
        if not text:
            return _Lines([], 0, 0)
        mark = self.read == 0 and text.startswith("\ufeff")
        lines = text[1 if mark else 0 : -1 if text.endswith("\n") else None].split("\n")
        self.read += len(lines)
        if "\r" not in text:
            return _Lines(lines, 0, int(mark))
        returns = sum(line.endswith("\r") for line in lines)
        return _Lines([line.removesuffix("\r") for line in lines], returns, int(mark))

    def close(self) -> None:
        self._file.close()


def open_bytes(path: str) -> IO[bytes]:
    """What is in the file, uncompressed; a pipe or device will do."""
    opener = _OPENERS.get(Path(path).suffix.lower())
    return opener(path) if opener else Path(path).open("rb")


def unreadable(where: str, error: Exception) -> DataError:
    """Any of `READ_ERRORS` as one line."""
    if isinstance(error, OSError) and error.errno:  # bz2's own complaint is an OSError without a number
        return DataError(f"{where}: cannot be read: {_reason(error)}")
    return DataError(f"{where}: the compressed file is damaged or cut short at or after this line: fetch it again")


def _reason(error: OSError) -> str:
    reasons = {FileNotFoundError: "no such file", IsADirectoryError: "it is a directory"}
    return reasons.get(type(error), (error.strerror or str(error)).lower())


def _undecodable(path: str) -> DataError:
    """The line and byte at fault, found by reading again: the fast way through does not keep count."""
    with open_bytes(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return DataError(
                    f"{path}:{number}: byte 0x{line[error.start]:02x} at column {error.start + 1} is not UTF-8: "
                    "convert the file, e.g. with iconv"
                )
    return DataError(f"{path}: not UTF-8")


def _lines_together(group: Group) -> Iterator[list[_Lines]]:
    """The same lines of each file of the group; the next ones are being read while these are used."""
    with ExitStack() as files, ThreadPoolExecutor(max_workers=len(group)) as pool:
        readers = [files.enter_context(closing(_Reader(path))) for path in group]
        sides = [reader.take() for reader in readers]
        while any(side.lines for side in sides):
            if len({len(side.lines) for side in sides}) > 1:
                raise _unequal(readers)
            ahead = [pool.submit(reader.take) for reader in readers]
            yield sides
            sides = [side.result() for side in ahead]


def _unequal(readers: list[_Reader]) -> DataError:
    for reader in readers:
        while reader.take().lines:
            pass
    short, long = sorted(readers, key=lambda reader: reader.read)
    return DataError(
        f"{long.path}:{short.read + 1}: no line beside it in {short.path}: the files have {long.read:,} and "
        f"{short.read:,} lines: a pair is one line in each"
    )


def _parse_tsv(lines: list[str], path: str, first_line: int, features_column: int) -> Block:
    needed = max(2, features_column)
    rows = [line.split("\t") for line in lines]
    for number, row in enumerate(rows, first_line):
        if len(row) < needed:
            raise DataError(
                f"{path}:{number}: {len(row)} column{'s' * (len(row) > 1)} where {needed} are needed: "
                "source and target stand in columns 1 and 2, with a tab between"
            )
    if not features_column:
        return Block([row[0] for row in rows], [row[1] for row in rows], 0, 0)
    features = [[";" + f for f in row[features_column - 1].split(";") if f] for row in rows]
    sources = [f"{row[0]} {''.join(symbols)}".rstrip() for row, symbols in zip(rows, features, strict=True)]
    return Block(sources, [row[1] for row in rows], 0, 0, frozenset(s for row in features for s in row))


def _parse_json(line: str, where: str, languages: tuple[str, ...]) -> tuple[str, str]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({str(error)[:60]}): each line must be one object") from None
    fields = record.get("translation", record) if isinstance(record, dict) else {}
    fields = fields if isinstance(fields, dict) else {}
    keys = ("source", "target") if fields is record else languages or tuple(fields)[:2]
    texts = [fields.get(key) for key in keys]
    if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
        wanted = " and ".join(f'"{key}"' for key in keys) if len(keys) == 2 else '"source" and "target"'
        raise DataError(f"{where}: no texts {wanted}: each line must hold both as strings")
    source, target = (_valid_unicode(str(text), where) for text in texts)
    return source, target


def _valid_unicode(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{where}: an escape \\ud800 to \\udfff stands alone: it is no character") from None
    return text
