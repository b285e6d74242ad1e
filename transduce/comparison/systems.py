"""Systems: what is compared. A system has a name and the outputs of one or more seeds, from files or from run folders.

Run folders are translated once; their outputs are kept in the cache under the hash of weights, search settings and sources.
This module knows files, translators and the cache, not metrics.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transduce.config import Config
from transduce.data import cache_folder
from transduce.data.cache import entry_key, open_or_write
from transduce.errors import DataError, SettingError
from transduce.translator import LoadOptions, Translator, open_folder
from transduce.translator.alignment import Pairs
from transduce.translator.engines import Say

FORMAT = 1  # of the entries in the cache
OUTPUTS, ALIGNMENTS = "outputs.json", "alignments.json"


@dataclass(frozen=True)
class SystemPaths:
    """A system as the user names it: `RUN`, `FILE`, or `NAME=RUN,RUN,...` with one run or file for each seed."""

    name: str
    paths: tuple[Path, ...]

    @staticmethod
    def parse(text: str) -> "SystemPaths":
        """A text without a name is named by its last part; a path that exists is never split."""
        name, equals, rest = text.partition("=")
        if not equals or Path(text).exists():
            return SystemPaths(Path(text).resolve().name, (Path(text),))
        if not name or not all(rest.split(",")):
            raise SettingError(f"{text}: write NAME=RUN, or NAME=RUN1,RUN2,RUN3 for several seeds of a system")
        return SystemPaths(name, tuple(map(Path, rest.split(","))))


def parse_systems(texts: Sequence[str]) -> list[SystemPaths]:
    """The baseline and the systems that are compared to it; systems of one name are named by their paths."""
    if len(texts) < 2:
        raise SettingError("give at least two systems to compare: the baseline first, then the others")
    parsed = [SystemPaths.parse(str(text)) for text in texts]
    names = [one.name for one in parsed]
    unique = [
        replace(one, name=text) if names.count(one.name) > 1 else one for one, text in zip(parsed, texts, strict=True)
    ]
    if len({one.name for one in unique}) < len(unique):
        raise SettingError(f"{', '.join(texts)}: two systems have the same name: name them as in A=RUN B=RUN")
    return unique


@dataclass(frozen=True)
class Member:
    """One seed of a system: a run folder, or a file of outputs."""

    path: Path
    config: Config | None  # of a run folder; None for a file
    options: LoadOptions  # how to load a run

    def load(self) -> Translator:
        """The translator of a run, loaded anew for each use, so that only one model is in memory at a time."""
        translator = Translator.load(self.path, replace(self.options, to=""))
        return translator.to(self.options.to) if self.options.to and translator.target_languages else translator


@dataclass(frozen=True)
class System:
    """A system and its seeds."""

    name: str
    members: tuple[Member, ...]

    @property
    def runs(self) -> list[tuple[Path, Config]]:
        """The seeds that are run folders, with their settings."""
        return [(member.path, member.config) for member in self.members if member.config]


def open_system(paths: SystemPaths, options: LoadOptions) -> System:
    """The system; a folder must be a run folder, anything else is a file of outputs."""
    return System(paths.name, tuple(_open_member(path, options) for path in paths.paths))


def _open_member(path: Path, options: LoadOptions) -> Member:
    if path.is_dir():
        return Member(path, open_folder(path).config, options)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder: give a run folder, or a file with one output per line")
    return Member(path, None, options)


# --- outputs and alignments --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Search:
    """How run folders are translated; None keeps the setting of the run."""

    beam: int | None = None
    alpha: float | None = None
    length_penalty: str | None = None
    max_extra: int | None = None


def translate_member(member: Member, sources: Sequence[str], search: Search, say: Say) -> list[str]:
    """The outputs of a run for these sources, from the cache or translated now."""
    translator = member.load()
    if member.options.to and not translator.target_languages:
        say(f"{member.path}: translates into one language only, so --to {member.options.to} does not apply to it")
    request = translator.request(**vars(search)).but(log_probs="none")
    key = ("outputs", translator.digest, translator.forms.tag, request, member.options.engine, member.options.device)

    def translate() -> list[str]:
        say(f"{member.path}: translating {len(sources):,} lines")
        return translator.translate(sources, request)

    return _kept(translator, OUTPUTS, (*key, _digest(sources)), translate, say)


def align_member(member: Member, sources: Sequence[str], outputs: Sequence[str], say: Say) -> list[Pairs]:
    """The word alignments of these outputs by the attention of a run, from the cache or computed now."""
    translator = member.load()
    key = ("alignments", translator.digest, translator.forms.tag, _digest(sources), _digest(outputs))
    return _kept(translator, ALIGNMENTS, key, lambda: translator.align(sources, outputs), say)


def _kept(translator: Translator, file: str, key: Iterable[object], make: Callable[[], Any], say: Say) -> Any:
    """What `make` returns, kept as JSON in the cache under a hash of the key; weights without a hash are not cached."""
    if translator.digest.startswith(" "):
        return make()

    def write(folder: Path) -> None:
        (folder / file).write_text(json.dumps(make(), ensure_ascii=False), encoding="utf-8")

    name = f"{Path(file).stem}-{entry_key(FORMAT, *key)}"
    entry = open_or_write(cache_folder(translator.config.data.cache), name, write, say)
    return json.loads((entry / file).read_text(encoding="utf-8"))


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(lines)).encode()).hexdigest()
