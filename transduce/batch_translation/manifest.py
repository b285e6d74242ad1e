"""The manifest of a batch: its inputs with their hashes, the shards they are cut into, the model and the options.

It is written before anything is translated. A worker on any machine needs nothing else, and a second command over the
same folder is refused unless it asks for the same translations. Knows no translators and no processes.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from transduce.batch_translation.formats import Format, Range
from transduce.batch_translation.kinds import find_inputs, format_of
from transduce.checkpoint import read_about
from transduce.errors import DamagedFile, DataError, SettingError
from transduce.files import open_plain
from transduce.translator import LoadOptions, SearchRequest, open_folder
from transduce.translator.folder import shortlist_digest
from transduce.translator.inputs import LINES_AT_ONCE

VERSION = 2
SHARD_ROWS = 100_000
MOST_ROWS = 10_000_000  # of a shard: what is lost when a worker dies


@dataclass(frozen=True, kw_only=True)
class BatchRequest:
    """What to translate, with which model, and how."""

    run: str | Path
    inputs: Sequence[str | os.PathLike[str]]
    columns: str = ""  # `source=2` or `source=text,features=tags`, for tables
    into: str = "translation"  # the column for the translations, for tables
    shard_rows: int = SHARD_ROWS
    search: SearchRequest | None = None  # by default the settings of the model
    options: LoadOptions = LoadOptions()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        if not 1 <= self.shard_rows <= MOST_ROWS:
            raise SettingError(f"shard_lines = {self.shard_rows}: must be from 1 to {MOST_ROWS:,}")
        if not self.into.strip() or set(self.into) & set("\t\r\n"):
            raise SettingError(f"--into {self.into!r}: give the column a name, without tabs and line breaks")


@dataclass(frozen=True)
class Input:
    """An input file as it was when the manifest was made."""

    path: str
    bytes: int
    modified_ns: int
    sha256: str
    rows: int


@dataclass(frozen=True)
class Shard:
    """Consecutive rows of one input."""

    number: int
    input: int
    first: int
    rows: int
    offset: int | None


@dataclass(frozen=True)
class Manifest:
    """Everything that decides what a batch writes."""

    run: str
    model: str  # the hash of weights and vocabularies
    options: dict[str, Any]
    search: dict[str, Any]
    columns: str
    into: str
    shard_rows: int
    inputs: tuple[Input, ...]
    shards: tuple[Shard, ...]

    @property
    def format(self) -> Format:
        return format_of([one.path for one in self.inputs], self.columns, self.into)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.inputs)

    def place(self, number: int, index: int = 0) -> str:
        """Where a row of a shard is, for messages."""
        return self.format.place(self.range(self.shards[number]), index)

    def range(self, shard: Shard) -> Range:
        return Range(self.inputs[shard.input].path, shard.first, shard.rows, shard.offset)

    def load_options(self, threads: int, say: Any) -> LoadOptions:
        return LoadOptions(**{**self.options, "ensemble": tuple(self.options["ensemble"])}, threads=threads, say=say)

    def search_request(self, shard: Shard) -> SearchRequest:
        """The search for a shard: when sampling, no two blocks of the corpus have the same seed."""
        return SearchRequest(**self.search).drawing(shard.number * -(-self.shard_rows // LINES_AT_ONCE))

    @property
    def work(self) -> dict[str, Any]:
        """What decides the translations; the device, paths and times may change."""
        inputs = [(one.bytes, one.sha256) for one in self.inputs]
        options = {name: value for name, value in self.options.items() if name != "device"}
        found = {**options, **self.search, "model": self.model, "inputs": inputs}
        return found | {"columns": self.columns, "into": self.into, "shard_lines": self.shard_rows}

    @property
    def digest(self) -> str:
        """A hash of the work."""
        return hashlib.sha256(json.dumps(self.work, sort_keys=True).encode()).hexdigest()

    def difference(self, other: "Manifest") -> str:
        """How the work of another manifest differs from this one's, or an empty string."""
        mine, its = json.loads(json.dumps([self.work, other.work]))
        for name in ("model", "inputs"):
            if mine.pop(name) != its.pop(name):
                return f"another model ({other.run})" if name == "model" else "other inputs"
        changed = [f"{name} = {its.get(name)} instead of {mine[name]}" for name in mine if mine[name] != its.get(name)]
        return ", ".join(changed)

    def to_json(self) -> str:
        shards = [[one.input, one.first, one.rows, one.offset] for one in self.shards]
        return json.dumps({"version": VERSION, **asdict(self), "shards": shards}, ensure_ascii=False, indent=1) + "\n"

    @staticmethod
    def from_json(text: str, where: Path) -> "Manifest":
        try:
            found = json.loads(text)
            version = found.pop("version")
            inputs = tuple(Input(**one) for one in found.pop("inputs"))
            shards = tuple(Shard(number, *one) for number, one in enumerate(found.pop("shards")))
            manifest = Manifest(**found, inputs=inputs, shards=shards)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise DamagedFile(f"{where}: not the manifest of a batch, or damaged: translate to a new folder") from None
        if version != VERSION:
            raise DamagedFile(
                f"{where}: has format version {version}, but this program reads {VERSION}: translate to a new folder"
            )
        return manifest


def make_manifest(request: BatchRequest, known: Manifest | None = None) -> Manifest:
    """Read all inputs once, to hash them and to cut them. Files that an earlier manifest knows are not read again."""
    opened = open_folder(request.run)
    search = (request.search or SearchRequest.of(opened.config.search)).but(log_probs="none", n_best=1)
    options = {
        name: value
        for name, value in asdict(replace(request.options, say=print)).items()
        if name not in ("threads", "say") and not _is_new(name, value, request.options)
    }
    paths = find_inputs(request.inputs)
    form = format_of(paths, request.columns, request.into)
    manifest = Manifest(
        os.path.abspath(request.run), model_hash(request.run, request.options), options, asdict(search),
        request.columns, request.into if request.columns else "", request.shard_rows, (), (),
    )  # fmt: skip
    if (
        known
        and _same_files(paths, known)
        and known.shard_rows == request.shard_rows
        and known.columns == request.columns
    ):
        return replace(manifest, inputs=known.inputs, shards=known.shards)
    return _cut_inputs(manifest, form, paths)


def _same_files(paths: Sequence[str], known: Manifest) -> bool:
    """Whether these are the files of a manifest, unmodified by size and time."""
    return [(path, *_stamp(path)) for path in paths] == [(one.path, one.bytes, one.modified_ns) for one in known.inputs]


def _cut_inputs(manifest: Manifest, form: Format, paths: Sequence[str]) -> Manifest:
    inputs: list[Input] = []
    shards: list[Shard] = []
    for path in paths:
        stamp = _stamp(path)
        parts = list(form.ranges(path, manifest.shard_rows))
        shards += [Shard(len(shards) + n, len(inputs), one.first, one.rows, one.offset) for n, one in enumerate(parts)]
        inputs.append(Input(path, *stamp, sha256_of(path), sum(one.rows for one in parts)))
        if _stamp(path) != stamp:
            raise DataError(f"{path}: changed while it was read: wait until it is complete")
    if not shards:
        raise DataError("the input is empty: there are no lines to translate")
    return replace(manifest, inputs=tuple(inputs), shards=tuple(shards))


def _stamp(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def sha256_of(path: str | Path) -> str:
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_new(name: str, value: Any, options: LoadOptions) -> bool:
    """Whether this is an unused option that older manifests do not have."""
    return (name in ("to", "lm", "ngram") and not value) or (name == "lm_weight" and not options.lm)


def model_hash(run: str | Path, options: LoadOptions) -> str:
    """A hash of the weights, the vocabularies and the shortlist: the same on every machine, whatever engine runs there."""
    parts: list[str] = []
    for folder in (run, *options.ensemble):
        opened = open_folder(folder)
        about: Mapping[str, str] = read_about(opened.weights(options.weights))
        parts += [about.get("sha256", ""), opened.vocabularies.source.digest, opened.vocabularies.target.digest]
    if options.lm:
        parts.append(read_about(open_folder(options.lm).weights()).get("sha256", ""))
    if options.shortlist:
        parts.append(shortlist_digest(open_folder(run).folder))
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()
