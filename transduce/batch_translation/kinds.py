"""Which format the inputs have, by their names, and the files that a pattern stands for."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from transduce.batch_translation.formats import Format
from transduce.batch_translation.line_formats import JsonLines, TextLines, TsvLines
from transduce.batch_translation.parquet import Parquet
from transduce.config.columns import Columns
from transduce.data.corpus import ending_of
from transduce.errors import DataError, SettingError

KINDS = {".tsv": "TSV", ".jsonl": "JSONL", ".json": "JSONL", ".parquet": "parquet"}
EXAMPLES = {
    "TSV": "--columns source=2, or source=NAME for a file with a header line",
    "JSONL": "--columns source=text",
    "parquet": "--columns source=text",
}


def find_inputs(given: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The absolute paths of these files, and of the files that patterns such as `crawl/*.gz` match, sorted."""
    paths: list[str] = []
    for one in [os.fspath(path) for path in given]:
        found = [one] if os.path.exists(one) or not glob.has_magic(one) else sorted(glob.glob(one, recursive=True))
        if not found:
            raise DataError(f"{one}: no file matches this pattern")
        paths += [os.path.abspath(path) for path in found if not os.path.isdir(path) or path == one]
    if not paths:
        raise DataError("no input: give files to translate")
    _check_files(paths)
    return paths


def _check_files(paths: Sequence[str]) -> None:
    """Refuse what cannot be read twice, from any place, by any worker."""
    for path in paths:
        if not os.path.exists(path):
            raise DataError(f"{path}: cannot be read: no such file")
        if not os.path.isfile(path):
            raise DataError(f"{path}: not a regular file; a batch reads its inputs in several places: give files")
    if twice := {path for path in paths if paths.count(path) > 1} if len(set(paths)) < len(paths) else set():
        raise DataError(f"{min(twice)}: given twice: leave out one of them")


def kind_of(path: str) -> str:
    """`text`, `TSV`, `JSONL` or `parquet`."""
    return KINDS.get(ending_of(path), "text")


def format_of(paths: Sequence[str], columns: str, into: str) -> Format:
    """The format that all inputs have; `columns` says what to translate in a table, `into` where to put it."""
    kinds = {kind_of(path): path for path in reversed(paths)}
    if len(kinds) > 1:
        named = " and ".join(f"{path} is {kind}" for kind, path in sorted(kinds.items())[:2])
        raise SettingError(f"all inputs must have one format, but {named}: translate them to separate folders")
    [(kind, path)] = kinds.items()
    if kind == "text":
        if columns:
            raise SettingError(f"--columns {columns}: {path} is plain text, which has no columns: leave it out")
        return TextLines()
    if not columns:
        raise SettingError(f"{Path(path).name}: name the column to translate: {EXAMPLES[kind]}")
    return _table(kind, Columns.of(columns.split(","), needs_target=False), into)


def _table(kind: str, columns: Columns, into: str) -> Format:
    if kind == "TSV":
        return TsvLines(columns, into)
    return JsonLines(columns, into) if kind == "JSONL" else Parquet(columns, into)
