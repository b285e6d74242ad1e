"""Reads corpora as blocks of raw bytes, even if they are malformed.

`transduce train` refuses files that are not UTF-8, tables with malformed lines, and aligned files of different lengths. An
examination reports them instead, so it reads bytes. It reads the same formats, with the parser that `train` uses for tables. Lines
are cut into portions in the main process; portions become blocks in the workers. This module knows no rules.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import IO

from transduce.data import READ_ERRORS, Corpus, Group, open_bytes, unreadable
from transduce.data.corpus import TableParser, kind_of
from transduce.diagnosis.analysis import Block, Place, Side
from transduce.diagnosis.findings import Role
from transduce.errors import DataError

LINES_PER_PORTION = 4096
_LINE_BREAK = "\u2028"  # stands for a line feed inside a JSON text, because a text of a block contains none


@dataclass(frozen=True)
class Portion:
    """Consecutive lines of every file of a group, each followed by a line feed."""

    role: Role
    group: int
    first_line: int
    files: tuple[bytes, ...]


@dataclass(frozen=True)
class Surplus:
    """The lines that only the longer of two aligned files has."""

    files: Group
    longer: str
    first_line: int
    lines: int


@dataclass(frozen=True)
class Malformed:
    """A line of a table that is no pair."""

    line: int
    text: bytes
    reason: str


@dataclass(frozen=True)
class Parsed:
    """A portion as a block, and the lines that are no pairs."""

    block: Block
    malformed: tuple[Malformed, ...] = ()


class PortionReader:
    """Reads the files of a corpus once, in order."""

    def __init__(self, role: Role, corpus: Corpus) -> None:
        self.role: Role = role
        self.corpus = corpus
        self.surplus: list[Surplus] = []  # complete after the last portion

    def __iter__(self) -> Iterator[Portion]:
        for number, group in enumerate(self.corpus.groups):
            kind_of(group)  # refuses what is no group
            yield from self._portions(number, group)

    def _portions(self, number: int, group: Group) -> Iterator[Portion]:
        line = 1
        with ExitStack() as files:
            opened = [files.enter_context(_open(path)) for path in group]
            while any(sides := [_take(file, path, line) for file, path in zip(opened, group, strict=True)]):
                common = min(map(len, sides))
                if common:
                    yield Portion(self.role, number, line, tuple(b"".join(side[:common]) for side in sides))
                line += common
                if common < max(map(len, sides)):
                    self._count_surplus(group, opened, [side[common:] for side in sides], line)
                    return

    def _count_surplus(self, group: Group, opened: list[IO[bytes]], rest: list[list[bytes]], line: int) -> None:
        longer = max(range(len(group)), key=lambda side: len(rest[side]))
        lines = len(rest[longer]) + sum(1 for _ in opened[longer])
        self.surplus.append(Surplus(group, group[longer], line, lines))


class PortionParser:
    """Turns portions of one corpus into blocks; workers have copies of it."""

    def __init__(self, role: Role, corpus: Corpus) -> None:
        self.role = role
        self.corpus = corpus
        self._tables = {
            number: _table(corpus, group) for number, group in enumerate(corpus.groups) if kind_of(group) != "aligned"
        }

    def __call__(self, portion: Portion) -> Parsed:
        files = self.corpus.groups[portion.group]
        if len(portion.files) == 2:
            lines = range(portion.first_line, portion.first_line + portion.files[0].count(b"\n"))
            place = Place(portion.role, portion.group, files, lines)
            return Parsed(Block(place, Side(portion.files[0]), Side(portion.files[1])))
        return self._parse_table(portion, files)

    def _parse_table(self, portion: Portion, files: Group) -> Parsed:
        table = self._tables[portion.group]
        texts = portion.files[0].decode(errors="surrogateescape").replace("\r\n", "\n").split("\n")[:-1]
        numbered = list(enumerate(texts, portion.first_line))
        if portion.first_line == 1:
            numbered[0] = (1, texts[0].removeprefix("\ufeff"))
            numbered = numbered[table.has_header :]
        if self.corpus.skip_blank_lines:
            numbered = [(number, text) for number, text in numbered if text.strip()]
        rows, malformed = table.rows(numbered)
        place = Place(portion.role, portion.group, files, [row.line for row in rows])
        block = Block(place, _side([row.source for row in rows]), _side([row.target for row in rows]))
        return Parsed(block, tuple(malformed))


@dataclass(frozen=True)
class _Row:
    line: int
    source: str
    target: str


@dataclass(frozen=True)
class _Table:
    parser: TableParser
    has_header: bool

    def rows(self, numbered: Sequence[tuple[int, str]]) -> tuple[list[_Row], list[Malformed]]:
        """The pairs of these lines; only if a line is malformed are they parsed one by one."""
        try:
            pairs = self._parse(numbered[0][0], [text for _, text in numbered]) if numbered else []
            return [_Row(number, *pair) for (number, _), pair in zip(numbered, pairs, strict=True)], []
        except DataError:
            return self._one_by_one(numbered)

    def _one_by_one(self, numbered: Sequence[tuple[int, str]]) -> tuple[list[_Row], list[Malformed]]:
        rows, malformed = [], []
        for number, text in numbered:
            try:
                rows.append(_Row(number, *self._parse(number, [text])[0]))
            except DataError as error:
                reason = str(error).removeprefix(f"{self.parser.path}:{number}: ")
                malformed.append(Malformed(number, text.encode(errors="surrogateescape"), reason))
        return rows, malformed

    def _parse(self, number: int, texts: list[str]) -> list[tuple[str, str]]:
        self.parser.line = number
        block = self.parser(texts)
        return list(zip(block.source, block.target, strict=True))


def _table(corpus: Corpus, group: Group) -> _Table:
    parser = TableParser(Corpus(corpus.groups, corpus.languages, corpus.columns), group)
    with _open(group[0]) as file:
        first = file.readline().decode(errors="surrogateescape").rstrip("\r\n").removeprefix("\ufeff")
    return _Table(parser, has_header=parser.read_first(first))


def _side(texts: list[str]) -> Side:
    text = "\n".join(texts)
    if text.count("\n") > max(0, len(texts) - 1):
        text = "\n".join(text.replace("\n", _LINE_BREAK) for text in texts)
    return Side((text + "\n" * bool(texts)).encode(errors="surrogateescape"))


def _open(path: str) -> IO[bytes]:
    try:
        return open_bytes(path)
    except OSError as error:
        raise unreadable(path, error) from None


def _take(file: IO[bytes], path: str, line: int) -> list[bytes]:
    """The next lines of a file; the last line of a file may lack its line feed."""
    try:
        lines = list(islice(file, LINES_PER_PORTION))
    except READ_ERRORS as error:
        raise unreadable(f"{path}:{line}", error) from None
    if lines and not lines[-1].endswith(b"\n"):
        lines[-1] += b"\n"
    return lines
