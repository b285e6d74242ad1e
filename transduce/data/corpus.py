"""Corpora: files of pairs in any supported format, read as blocks of strings in bounded memory.

A group is what one `--train` gives: one TSV or JSONL file, or two aligned text files. Groups are concatenated. Every file may
be compressed (.gz, .xz, .bz2). Text is strict UTF-8, and only "\\n" ends a line. A corpus is read more than once, so standard
input and pipes are copied to files first (`transduce/data/inputs.py`). This module knows no vocabularies and no ids.
"""

import bz2
import codecs
import gzip
import io
import lzma
import shlex
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, ClassVar, Literal
from zlib import crc32

from transduce.audio.recording import Recording
from transduce.config import DataConfig, language_tag
from transduce.config.columns import Columns, feature_symbols
from transduce.data.headers import named_sides
from transduce.data.json_lines import json_object
from transduce.data.manifests import (
    ManifestParser,
    Utterance,
    is_kaldi_folder,
    kaldi_utterances,
    keys_of,
    look_like_recordings,
    names_recordings,
)
from transduce.errors import DataError, UnreadableFile
from transduce.placeholders import Masker

LINES_PER_BLOCK = 4096

Group = tuple[str, ...]

_OPENERS: dict[str, Callable[[str], IO[bytes]]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}  # type: ignore[dict-item]
_TABLES = {".tsv": "tsv", ".jsonl": "json", ".json": "json"}
READ_ERRORS = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, OSError)  # of a file, compressed or not


@dataclass(frozen=True)
class PairBlock:
    """Consecutive pairs, and counts of what was removed from their lines or found in them."""

    source: list[str]
    target: list[str]
    carriage_returns: int
    byte_order_marks: int
    symbols: frozenset[str] = frozenset()  # of the features column
    blank: int = 0  # blank lines that were skipped
    group: int = 0  # the number of their group; a block never spans two groups
    places: Sequence[str] = ()  # of recordings: the file and line that names each
    names: Sequence[str] = ()  # of recordings: what identifies each, also after the files were moved

    @property
    def identities(self) -> Sequence[str]:
        """What identifies the sources: the texts themselves, or the names of recordings."""
        return self.names or self.source


def speakers_of(block: PairBlock) -> list[str]:
    """Who speaks in each recording; an empty string where the manifest does not say, or where sources are texts."""
    return [Recording.parse(source).speaker if block.places else "" for source in block.source]


@dataclass(frozen=True)
class Corpus:
    """The files that pairs are read from, and how to read them."""

    unit: ClassVar = "pair"  # what it is made of, for messages
    groups: tuple[Group, ...]
    languages: tuple[str, ...] = ()  # keys of {"translation": {...}}; without them, the first two in order
    columns: Columns | None = None  # of TSV and JSONL; None: the first two, or the keys source and target
    skip_blank_lines: bool = False  # of TSV and JSONL; otherwise a blank line is an error
    extra_columns: bool = False  # whether lines of TSV may have more columns than the first
    hold_out: int = 0  # about one source in this many belongs to the held-out part; 0: there is none
    speakers: tuple[str, ...] = ()  # recordings of these speakers are the held-out part instead
    part: Literal["kept", "held out"] = "kept"
    tags: tuple[str, ...] = ()  # the target language of each group, put before its sources; empty for none
    placeholders: tuple[str, ...] = ()  # kinds of placeholders to mask

    @staticmethod
    def of(groups: tuple[Group, ...], data: DataConfig) -> "Corpus":
        """These files, to be read according to the settings."""
        return Corpus(groups, data.languages, data.layout, data.skip_blank_lines)

    @property
    def is_divided(self) -> bool:
        """Whether validation data are held out of these files."""
        return bool(self.hold_out or self.speakers)

    def blocks(self) -> Iterator[PairBlock]:
        """The pairs of this part in order, read `LINES_PER_BLOCK` at a time."""
        for number, group in enumerate(self.groups):
            for block in self._group_blocks(group):
                part = self._part_of(block) if self.is_divided else block
                yield replace(self._tagged(self._masked(part), number), group=number)

    def _masked(self, block: PairBlock) -> PairBlock:
        if not self.placeholders:
            return block
        mask_pair = Masker(self.placeholders).mask_pair
        pairs = [mask_pair(*pair) for pair in zip(block.source, block.target, strict=True)]
        return replace(block, source=[source for source, _ in pairs], target=[target for _, target in pairs])

    def _tagged(self, block: PairBlock, group: int) -> PairBlock:
        if not self.tags:
            return block
        tag = language_tag(self.tags[group])
        return replace(block, source=[f"{tag} {text}" if text.strip() else text for text in block.source])

    def _part_of(self, block: PairBlock) -> PairBlock:
        """The pairs of this part."""
        wanted = self.part == "held out"
        rows = [n for n, held_out in enumerate(self._held_out(block)) if held_out == wanted]
        if wanted:  # what was removed is counted once, with the part that is kept
            block = replace(block, blank=0, carriage_returns=0, byte_order_marks=0)
        return replace(
            block,
            source=[block.source[n] for n in rows],
            target=[block.target[n] for n in rows],
            places=[block.places[n] for n in rows] if block.places else (),
            names=[block.names[n] for n in rows] if block.names else (),
        )

    def _held_out(self, block: PairBlock) -> list[bool]:
        """By the speaker, or by a hash of the source: equal sources (a word with two pronunciations) stay together."""
        if self.speakers:
            return [speaker in self.speakers for speaker in speakers_of(block)]
        return [crc32(text.encode()) % self.hold_out == 0 for text in block.identities]

    def _group_blocks(self, group: Group) -> Iterator[PairBlock]:
        if is_kaldi_folder(group[0]):
            yield _block_of(list(kaldi_utterances(group[0])))
            return
        parse = _manifest_parser(group, self.skip_blank_lines) or TableParser(self, group)
        for sides in _lines_together(group):
            yield replace(
                parse(sides[0].lines) if len(group) == 1 else PairBlock(sides[0].lines, sides[1].lines, 0, 0),
                carriage_returns=sum(side.carriage_returns for side in sides),
                byte_order_marks=sum(side.byte_order_marks for side in sides),
            )


def is_manifest(group: Group) -> bool:
    """Whether a group names recordings as sources."""
    if len(group) != 1:
        return False
    if is_kaldi_folder(group[0]) or not is_table(group[0]):
        return is_kaldi_folder(group[0])
    first = (first_lines(group[0]) or [""])[0]
    return names_recordings(keys_of(first) if kind_of(group) == "json" else first.split("\t"))


def _manifest_parser(group: Group, skip_blank_lines: bool) -> Callable[[list[str]], PairBlock] | None:
    if not is_manifest(group):
        return None
    parse = ManifestParser(group[0], kind_of(group), skip_blank_lines)

    def parsed(lines: list[str]) -> PairBlock:
        before = parse.blank
        block = _block_of(parse(lines))
        return replace(block, blank=parse.blank - before)

    return parsed


def _block_of(utterances: list[Utterance]) -> PairBlock:
    return PairBlock(
        [str(one.recording) for one in utterances],
        [one.text for one in utterances],
        0,
        0,
        places=[one.place for one in utterances],
        names=[one.name for one in utterances],
    )


def are_equal(source: str, target: str) -> bool:
    """Whether a pair has the same text on both sides, apart from a language tag before the source."""
    return source == target or (source.startswith(">>") and source.partition("<< ")[2] == target != "")


def read_pairs(corpus: Corpus) -> tuple[list[str], list[str]]:
    """All sources and all targets of a corpus that fits in memory, such as a test set."""
    sources: list[str] = []
    targets: list[str] = []
    for block in corpus.blocks():
        sources += block.source
        targets += block.target
    return sources, targets


def read_lines(path: str) -> list[str]:
    """All lines of a file that fits in memory, such as a file of outputs."""
    return [line for block in lines_of(path) for line in block.lines]


def lines_of(path: str) -> "Iterator[Lines]":
    """The lines of a file, a block at a time; each block counts what was removed from its lines."""
    with closing(_Reader(path)) as reader:
        while (block := reader.take()).lines:
            yield block


def is_table(path: str) -> bool:
    """Whether a file holds both sides, by its name: TSV or JSONL."""
    return ending_of(path) in _TABLES


def first_lines(path: str) -> list[str]:
    """The first lines of a file, at most one block."""
    with closing(_Reader(path)) as reader:
        return reader.take().lines


def kind_of(group: Group) -> str:
    """`aligned`, `tsv` or `json`; any other group is an error."""
    endings = [ending_of(path) for path in group]
    if len(group) == 1 and endings[0] in _TABLES:
        return _TABLES[endings[0]]
    if len(group) == 1 and Path(group[0]).is_dir():
        raise DataError(
            f"{group[0]}: is a folder: give a source and a target file, one .tsv or .jsonl file, or a folder with wav.scp and text"
        )
    if look_like_recordings(group[:1]):
        raise DataError(f"{group[0]}: is a recording: give a .tsv or .jsonl file with the columns audio and text")
    if len(group) == 1:
        raise DataError(f"{group[0]}: a single file must be .tsv or .jsonl; otherwise give a source and a target file")
    if len(group) > 2:
        raise DataError(f"{' '.join(group)}: give one TSV or JSONL file, or a source and a target file")
    if endings[0] in _TABLES and endings[0] == endings[1]:
        raise DataError(
            f"{group[0]} {group[1]}: a TSV or JSONL file holds both sides: give each file its own option, e.g. --train twice"
        )
    if is_manifest(group[:1]):
        raise DataError(f"{group[0]}: names recordings and their texts: give it alone, without {group[1]}")
    return "aligned"


def ending_of(path: str) -> str:
    """The ending of a file's name, without the ending of its compression."""
    name = Path(path)
    return (name.with_suffix("") if is_compressed(path) else name).suffix.lower()


def is_compressed(path: str) -> bool:
    """Whether a file is read through a decompressor, by its name."""
    return Path(path).suffix.lower() in _OPENERS


@dataclass(frozen=True)
class Lines:
    """Consecutive lines of a file, and counts of what was removed from them."""

    lines: list[str]
    carriage_returns: int
    byte_order_marks: int


class _Reader:
    """Reads one file block by block; every error names the file and the line."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.read = 0
        try:
            self._file = io.TextIOWrapper(open_bytes(path), encoding="utf-8", errors="strict", newline="\n")
        except OSError as error:
            raise unreadable(path, error) from None

    def take(self) -> Lines:
        try:
            text = "".join(islice(self._file, LINES_PER_BLOCK))
        except UnicodeDecodeError:
            raise _undecodable(self.path) from None
        except READ_ERRORS as error:
            raise unreadable(f"{self.path}:{self.read + 1}", error) from None
        return self._split(text)

    def _split(self, text: str) -> Lines:
        if not text:
            return Lines([], 0, 0)
        mark = self.read == 0 and text.startswith("\ufeff")
        lines = text[1 if mark else 0 : -1 if text.endswith("\n") else None].split("\n")
        self.read += len(lines)
        if "\r" not in text:
            return Lines(lines, 0, int(mark))
        returns = sum(line.endswith("\r") for line in lines)
        return Lines([line.removesuffix("\r") for line in lines], returns, int(mark))

    def close(self) -> None:
        self._file.close()


def open_bytes(path: str) -> IO[bytes]:
    """Open a file, a pipe or a device for reading, and decompress it if necessary."""
    opener = _OPENERS.get(Path(path).suffix.lower())
    return opener(path) if opener else Path(path).open("rb")


def unreadable(where: str, error: Exception) -> UnreadableFile:
    """Any of `READ_ERRORS` as an error of one line."""
    if isinstance(error, OSError) and error.errno:  # bz2's own complaint is an OSError without a number
        return UnreadableFile(f"{where}: cannot be read: {_reason(error)}")
    return UnreadableFile(f"{where}: the compressed file is damaged or cut short at or after this line: fetch it again")


def _reason(error: OSError) -> str:
    reasons = {FileNotFoundError: "no such file", IsADirectoryError: "it is a directory"}
    return reasons.get(type(error), (error.strerror or str(error)).lower())


def iconv_command(encoding: str, path: str) -> str:
    """The command that converts a file to UTF-8; a compressed file is unpacked first."""
    unpack = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2"}.get(Path(path).suffix.lower())
    name, plain = shlex.quote(path), path.removesuffix(Path(path).suffix) if unpack else path
    source = f"{unpack} -dc {name} | iconv -f {encoding} -t UTF-8" if unpack else f"iconv -f {encoding} -t UTF-8 {name}"
    return f"`{source} > {shlex.quote(plain + '.utf8')}`"


def _undecodable(path: str) -> DataError:
    """An error that names the line and the byte, found by reading the file again: the fast reader does not count bytes."""
    if look_like_recordings([path]):
        return DataError(f"{path}: is a recording: give a file with text")
    with open_bytes(path) as file:
        for number, line in enumerate(file, 1):
            if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                return DataError(
                    f"{path}: the file is not UTF-8 but UTF-16: convert it with {iconv_command('UTF-16', path)}"
                )
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return DataError(
                    f"{path}:{number}: byte 0x{line[error.start]:02x} at column {error.start + 1} is not UTF-8: "
                    f"convert the file, for example with {iconv_command('LATIN1', path)} if it is Latin-1"
                )
    return DataError(f"{path}: not UTF-8")


def _lines_together(group: Group) -> Iterator[list[Lines]]:
    """The same lines of every file of the group; the next block is read while this one is used."""
    with ExitStack() as files, ThreadPoolExecutor(max_workers=len(group)) as pool:
        readers = [files.enter_context(closing(_Reader(path))) for path in group]
        sides = [reader.take() for reader in readers]
        while any(side.lines for side in sides):
            if len({len(side.lines) for side in sides}) > 1:
                raise _unequal(readers)
            following = [pool.submit(reader.take) for reader in readers]
            yield sides
            sides = [side.result() for side in following]


def _unequal(readers: list[_Reader]) -> DataError:
    for reader in readers:
        while reader.take().lines:
            pass
    short, long = sorted(readers, key=lambda reader: reader.read)
    return DataError(
        f"{long.path}:{short.read + 1}: no matching line in {short.path}: the files have {long.read:,} and "
        f"{short.read:,} lines, but a pair is one line in each"
    )


class TableParser:
    """Turns the lines of one table into pairs, block by block."""

    def __init__(self, corpus: Corpus, group: Group) -> None:
        self.corpus, self.kind, self.path = corpus, kind_of(group), group[0]
        self.columns = corpus.columns or Columns()
        self.line = 1  # the number of the next one
        self.most_columns = sys.maxsize  # of a line
        if corpus.columns and not self.columns.named and all(map(_is_json, corpus.groups)):
            raise DataError(f"{self.path}: JSONL has keys, not numbers of columns: --columns source=KEY,target=KEY")

    def __call__(self, lines: list[str]) -> PairBlock:
        if self.line == 1 and lines:
            lines = lines[self.read_first(lines[0]) :]
        numbers: Sequence[int] = range(self.line, self.line + len(lines))
        self.line += len(lines)
        blank = [n for n, line in enumerate(lines) if not line.strip()] if self.corpus.skip_blank_lines else []
        if blank:
            numbers = [number for number, line in zip(numbers, lines, strict=True) if line.strip()]
            lines = [line for line in lines if line.strip()]
        block = self._tsv(lines, numbers) if self.kind == "tsv" else self._json(lines, numbers)
        return replace(block, blank=len(blank))

    def read_first(self, first: str) -> bool:
        """Learn the columns from the first line of the table; True if it is a header line, which is no pair."""
        if self.kind != "tsv":
            return False
        if has_header := self.columns.named or bool(self._sides(first)):
            self._read_header(first)
        numbered = self.corpus.columns and not self.corpus.columns.named
        # Where the first line has columns that are not used, their number may vary.
        if not numbered and not self.corpus.extra_columns and first.count("\t") + 1 == self.columns.needed:
            self.most_columns = self.columns.needed
        return has_header

    def _read_header(self, header: str) -> None:
        """Take the names of the columns; columns that were given by number stay."""
        if not self.corpus.columns and (sides := self._sides(header)):
            self.columns = Columns(*sides)
        self.columns, self.line = self._numbered(header) if self.columns.named else self.columns, self.line + 1

    def _sides(self, first: str) -> tuple[str, ...]:
        return named_sides(first.split("\t"), self.corpus.languages)

    def _numbered(self, header: str) -> Columns:
        names = header.split("\t")
        try:
            return self.columns.numbered(names)
        except KeyError as missing:
            raise DataError(
                f"{self.path}:1: no column {missing} in the header line, which has {', '.join(names)}: "
                "name the columns with --columns, or number them: source=1,target=2"
            ) from None

    def _tsv(self, lines: list[str], numbers: Sequence[int]) -> PairBlock:
        columns, needed = self.columns, self.columns.needed
        rows = [line.split("\t") for line in lines]
        for at, row in enumerate(rows):
            if len(row) < needed:
                raise self._too_few(numbers[at], lines[at], len(row))
            if len(row) > self.most_columns:
                raise self._too_many(numbers[at], len(row))
        source, target = int(columns.source) - 1, int(columns.target) - 1
        if not columns.features:
            return PairBlock([row[source] for row in rows], [row[target] for row in rows], 0, 0)
        symbols = {mark for row in rows for mark in feature_symbols(row[int(columns.features) - 1])}
        return PairBlock(
            [columns.source_of(row) for row in rows], [row[target] for row in rows], 0, 0, frozenset(symbols)
        )

    def _too_few(self, number: int, line: str, found: int) -> DataError:
        if not line.strip():
            return DataError(f"{self.path}:{number}: blank line: use --skip-blank-lines to skip such lines")
        columns = " and ".join(f"{role} in {column}" for role, _, column in map(_role, self.columns.setting))
        return DataError(
            f"{self.path}:{number}: {found} column{'s' * (found > 1)} where {self.columns.needed} are needed, separated "
            f"by tabs: {columns}; choose others with --columns"
        )

    def _too_many(self, number: int, found: int) -> DataError:
        return DataError(
            f"{self.path}:{number}: {found} columns where the first line has {self.most_columns}; a tab inside a text? "
            f"Remove it, or choose columns by number: --columns {','.join(self.columns.setting)}"
        )

    def _json(self, lines: list[str], numbers: Sequence[int]) -> PairBlock:
        records = [self._record(line, f"{self.path}:{number}") for number, line in zip(numbers, lines, strict=True)]
        marks = {mark for record in records for mark in feature_symbols(record.get("features", ""))}
        columns = Columns("source", "target", "features" if self.columns.features and self.columns.named else "")
        sources = [columns.source_of(record) for record in records]
        return PairBlock(sources, [record["target"] for record in records], 0, 0, frozenset(marks))

    def _record(self, line: str, where: str) -> dict[str, str]:
        """The texts of one line by role."""
        if not line.strip():
            raise DataError(f"{where}: blank line: use --skip-blank-lines to skip such lines")
        record = json_object(line, where)
        fields = record.get("translation", record)
        fields = fields if isinstance(fields, dict) else {}
        keys = self._keys(fields, nested=fields is not record)
        texts = {role: _text_of(fields.get(key)) for role, key in keys.items()}
        if missing := [keys[role] for role, text in texts.items() if text is None]:
            raise DataError(f"{where}: {_missing(missing)}{_remedy(fields, self.columns)}")
        return {role: _valid_unicode(str(text), where) for role, text in texts.items()}

    def _keys(self, fields: dict[str, Any], nested: bool) -> dict[str, str]:
        """The key of each role: from `--columns`, or `source` and `target`, or the languages."""
        named, languages = self.columns, self.corpus.languages
        if named.named:
            keys = {"source": named.source, "target": named.target, "features": named.features}
            return {role: key for role, key in keys.items() if key}
        first_two = tuple(fields)[:2]
        if nested:
            pair = languages or (first_two if len(first_two) == 2 else ("source", "target"))
        else:
            known = {"source", "target"} <= fields.keys() or not languages or not set(languages) <= fields.keys()
            pair = ("source", "target") if known else languages
        return {"source": pair[0], "target": pair[1]}


def _is_json(group: Group) -> bool:
    return len(group) == 1 and kind_of(group) == "json"


def _role(item: str) -> tuple[str, str, str]:
    return item.partition("=")


def _text_of(value: Any) -> str | None:
    """A text, or a list of features joined to one; None for anything else."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ";".join(value)
    return value if isinstance(value, str) else None


def _quoted(names: Iterable[str]) -> str:
    return " and ".join(f'"{name}"' for name in names)


def _missing(keys: list[str]) -> str:
    several = len(keys) > 1
    problem = "keys {} are missing or not strings" if several else "key {} is missing or not a string"
    return problem.format(_quoted(keys))


def _remedy(fields: dict[str, Any], columns: Columns) -> str:
    """What to do about missing keys."""
    texts = [key for key, value in fields.items() if isinstance(value, str)]
    if columns.named or len(texts) < 2 or {"source", "target"} & fields.keys():
        return ""
    return f"; it has {_quoted(texts)}: name them, for example --columns source={texts[0]},target={texts[1]}"


def _valid_unicode(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{where}: invalid Unicode: unpaired surrogate escape (\\ud800-\\udfff); remove it") from None
    return text
