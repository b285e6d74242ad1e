"""Input files: groups of absolute paths that can be read twice, found again after a move, with pipes copied to files.

A group is what one `--train` gives: one TSV or JSONL file, or a source and a target file. This module knows paths, not lines.
"""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO

from transduce.data.corpus import Group, is_table, unreadable
from transduce.errors import DataError, SettingError

FilePath = str | os.PathLike[str]
Files = FilePath | Iterable[FilePath | Iterable[FilePath]]  # "a.tsv", ("a.en", "a.de"), [("a.en", "a.de"), "b.tsv"]

_PIPES = ("/dev/fd/", "/dev/stdin", "/proc/")  # where a shell puts `<(command)`


def groups_of(given: Files | None) -> tuple[Group, ...]:
    """The groups in a path, a pair of paths, or a list of paths and pairs; `None` has no groups."""
    if given is None:
        return ()
    if isinstance(given, str | os.PathLike):
        return ((os.fspath(given),),)
    if isinstance(given, dict) or not isinstance(given, Iterable):
        raise SettingError(
            f"{given!r}: give files as (source, target), as one .tsv or .jsonl file, or as a list of these"
        )
    items = list(given)
    paths = [os.fspath(item) for item in items if isinstance(item, str | os.PathLike)]
    if len(paths) < len(items) or all(map(is_table, paths)):
        return tuple(_group(item) for item in items)
    if len(paths) > 2:
        raise SettingError(
            f"{', '.join(paths)}: cannot tell which files form a pair: write [(source, target), (source, target)]"
        )
    return (tuple(paths),)


def paths_of(given: Files | None) -> tuple[str, ...]:
    """The paths in a path or a list of paths, such as files of text."""
    if given is None or isinstance(given, str | os.PathLike):
        return () if given is None else (os.fspath(given),)
    paths = list(given)
    if not all(isinstance(path, str | os.PathLike) for path in paths):
        raise SettingError(f"{paths!r}: give text files as one path or as a list of paths")
    return tuple(os.fspath(path) for path in paths)  # type: ignore[arg-type]


def _group(item: object) -> Group:
    if isinstance(item, str | os.PathLike):
        return (os.fspath(item),)
    if isinstance(item, tuple | list) and item and all(isinstance(path, str | os.PathLike) for path in item):
        return tuple(map(os.fspath, item))
    raise SettingError(f"{item!r}: give a file as text or Path, or a pair of them as (source, target)")


def groups_to_setting(groups: tuple[Group, ...]) -> tuple[str, ...]:
    """Groups as `data.train` stores them: one string per group, its paths separated by a tab."""
    return tuple("\t".join(group) for group in groups)


def groups_from_setting(setting: tuple[str, ...]) -> tuple[Group, ...]:
    return tuple(tuple(group.split("\t")) for group in setting)


def absolute_setting(setting: tuple[str, ...]) -> tuple[str, ...]:
    """The same files by their absolute paths."""
    groups = groups_from_setting(setting)
    return groups_to_setting(tuple(tuple(path if path == "-" else os.path.abspath(path) for path in g) for g in groups))


def found_setting(setting: tuple[str, ...], near: Path) -> tuple[str, ...]:
    """The same files; those that do not exist are searched for near a run folder, which may have moved with them."""
    groups = groups_from_setting(setting)
    return groups_to_setting(tuple(tuple(find(path, near) for path in group) for group in groups))


def find(path: str, near: Path) -> str:
    """The path itself if it exists; otherwise the same file below the folder `near` or one of its parents.

    The longest part of the path that exists there wins: `/old/project/data/train.en` is found as
    `/new/project/data/train.en` from `/new/project/runs/first`. The caller compares the hash of the data, so another
    file of the same name is never used by mistake.
    """
    if path in ("", "-") or os.path.exists(path):
        return path if path in ("", "-") else os.path.abspath(path)
    if path.startswith(_PIPES):
        raise DataError(
            f"{path}: this run read its data from a pipe: give the same data again with --train and --valid"
        )
    return next((str(candidate) for candidate in _candidates(path, near) if candidate.exists()), os.path.abspath(path))


def _candidates(path: str, near: Path) -> Iterator[Path]:
    names = [name for name in Path(path).parts if name != Path(path).anchor]
    folder = near.resolve()
    for begin in range(len(names)):
        for base in (folder, *folder.parents):
            yield base.joinpath(*names[begin:])


def without_pipes(groups: tuple[Group, ...], folder: Path) -> tuple[Group, ...]:
    """The groups with standard input (`-`) and every pipe copied to a file in `folder`, because data are read more than once."""
    if sum(group.count("-") for group in groups) > 1:
        raise DataError("-: standard input can be given only once; give files for the rest")
    return tuple(tuple(_plain(path, folder, alone=len(group) == 1) for path in group) for group in groups)


def _plain(path: str, folder: Path, alone: bool) -> str:
    if path != "-" and not _is_pipe(path):
        return path
    name = "copy-of-" + ("standard-input" if path == "-" else path.strip("/").replace("/", "-"))  # errors show it
    with _open_pipe(path) as file:
        first = file.read(1)
        ending = "" if not alone or is_table(path) else ".jsonl" if first == b"{" else ".tsv"
        with (folder / (name + ending)).open("wb") as copy:
            copy.write(first)
            while chunk := file.read(1 << 20):
                copy.write(chunk)
    return copy.name


def _is_pipe(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False  # opening the file reports the error
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _open_pipe(path: str) -> AbstractContextManager[IO[bytes]]:
    if path == "-":
        if sys.stdin is None:
            raise DataError("-: standard input is closed")
        return nullcontext(sys.stdin.buffer)
    try:
        return open(path, "rb")
    except OSError as error:
        raise unreadable(path, error) from None
