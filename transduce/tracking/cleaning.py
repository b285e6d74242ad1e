"""The disk space of the cache and the checkpoints, and which part of it no run needs.

Needed is whatever a run that can be resumed would read: its prepared data and its sampled segmentations. The runs are those under
the folder and all others that have used the cache and still exist. Nothing is removed that loading, resuming or averaging needs, and
nothing of a run that a process is training. Every removal begins with a rename, so an interrupted one leaves nothing half there.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from transduce.checkpoint import RunFolder, checkpoint_path, freed_by_deleting, leftovers, remove, steps_saved
from transduce.config import Config
from transduce.data import Rules, cache, cache_folder
from transduce.data.store import SAMPLED, STORE, sampled_name, store_name
from transduce.data.vocabularies import MODEL, VOCABULARY
from transduce.errors import DataError, RunError, TransduceError
from transduce.files import read_plain
from transduce.run_lock import alone_in, is_training
from transduce.tracking.difference import data_hashes
from transduce.tracking.listing import find_runs, is_finished
from transduce.translator import longest_target, read_config

Kind = Literal["prepared data", "unfinished data", "unfinished weights", "old checkpoint", "last checkpoint"]


@dataclass(frozen=True)
class Removable:
    """Something that no run needs."""

    path: str
    kind: Kind
    bytes: int


@dataclass(frozen=True)
class Cleaning:
    """What the cache and the checkpoints take, and what was or could be removed."""

    caches: dict[str, int]  # the bytes of each cache folder
    checkpoints: int  # bytes that deleting all checkpoints would free
    removable: list[Removable]
    resumable: list[Removable]  # the last checkpoints of finished runs, needed only to train them further
    kept: dict[str, str] = field(default_factory=dict)  # by run, why its last checkpoint is never removed
    removed: list[Removable] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON has it."""
        return asdict(self)


def clean(
    folder: str | Path = ".",
    *,
    checkpoints: bool = False,
    agree: Callable[[Cleaning], bool] = lambda found: False,
) -> Cleaning:
    """Find what no run needs, and remove it if `agree` returns True; `checkpoints` includes those of finished runs.

    What is needed is determined again after `agree`, which may wait for a person while a run begins.
    """
    found = examine(folder, checkpoints)
    if not found.removable or not agree(found):
        return found
    agreed = set(found.removable)
    still = [one for one in examine(folder, checkpoints).removable if one in agreed]
    return replace(found, removed=list(_removed(still)))


def examine(folder: str | Path, checkpoints: bool = False) -> Cleaning:
    """What the cache and the runs under a folder take, and what of it no run needs."""
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f"{root}: {'not a folder' if root.exists() else 'no such folder'}")
    runs = [RunFolder(path) for path in find_runs(root)]
    caches = _caches(runs)
    idle = [run for run in runs if not is_training(run)]
    last = [one for run in idle for one in _last_checkpoint(run)]
    removable = [one for run in idle for one in _of_run(run)]
    removable += [one for place in caches for one in _of_cache(place, _known_runs(runs, place))]
    return Cleaning(
        caches={str(place): sum(map(_bytes, cache.entries(place))) for place in caches},
        checkpoints=sum(freed_by_deleting(run.checkpoints) for run in runs),
        removable=[*removable, *(last if checkpoints else [])],
        resumable=[] if checkpoints else last,
        kept={str(run.path): why for run in runs if steps_saved(run) and (why := _why_kept(run))},
    )


# --- the cache ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Needed:
    """The entries of the cache that runs need; `unknown` if the settings of a run cannot be read."""

    stores: frozenset[str]
    sampled: tuple[str, ...]  # beginnings of names
    vocabularies: frozenset[str]  # hashes of their models
    unknown: bool


def _caches(runs: Sequence[RunFolder]) -> list[Path]:
    """The user's cache, and those that the settings of the runs name."""
    named = {cache_folder(config.data.cache) for run in runs if (config := _settings(run))}
    return sorted({cache_folder("").resolve(), *(place.resolve() for place in named)})


def _known_runs(runs: Sequence[RunFolder], place: Path) -> list[RunFolder]:
    others = map(RunFolder, cache.remembered_runs(place))
    return [*runs, *(run for run in others if run.config.exists())]


def _of_cache(place: Path, runs: Sequence[RunFolder]) -> Iterator[Removable]:
    needed = _needed(runs)
    for entry in cache.entries(place):
        if cache.is_abandoned(entry):
            yield Removable(str(entry), "unfinished data", _bytes(entry))
        elif _is_unneeded(entry, needed) and not cache.was_used_lately(entry):
            yield Removable(str(entry), "prepared data", _bytes(entry))


def _is_unneeded(entry: Path, needed: _Needed) -> bool:
    """Whether no run needs this entry; what is not known stays."""
    if entry.name.startswith(STORE):
        return entry.name not in needed.stores
    if entry.name.startswith(SAMPLED):  # another process could not make the same segmentation again
        return not entry.name.startswith(needed.sampled) and not needed.unknown
    return entry.name.startswith(VOCABULARY) and _digest(entry / MODEL) not in needed.vocabularies


def _needed(runs: Iterable[RunFolder]) -> _Needed:
    stores: set[str] = set()
    sampled: set[str] = set()
    vocabularies: set[str] = set()
    unknown = False
    for run in runs:
        if not is_training(run) and is_finished_for_good(run):
            continue
        try:
            config = read_config(run)
            train, valid = _stores(run, config)
            models = _models(run, config)
        except (TransduceError, OSError):
            unknown = True
            continue
        stores |= {train, valid}
        sampled.add(sampled_name(train, config.data.subword_sampling, config.train.seed))
        vocabularies |= {hashlib.sha256(model).hexdigest() for model in models}
    return _Needed(frozenset(stores), tuple(sampled), frozenset(vocabularies), unknown)


def is_finished_for_good(run: RunFolder) -> bool:
    """Whether a run has finished and its checkpoints are deleted, so that it cannot be trained further."""
    try:
        return not steps_saved(run) and is_finished(run)
    except (TransduceError, OSError):
        return False


def _stores(run: RunFolder, config: Config) -> tuple[str, str]:
    """The names of the stores of a run's training and validation data."""
    hashes, models = data_hashes(run), _models(run, config)
    if not hashes:
        raise RunError(f"{run.path}: has no {run.data.name}")
    rules = Rules.for_training(config.data), Rules.for_validation(longest_target(config.model), config.data.holds_out)
    return store_name(hashes["train"], models, rules[0]), store_name(hashes["valid"], models, rules[1])


def _models(run: RunFolder, config: Config) -> tuple[bytes, bytes]:
    source, target = ("joint", "joint") if config.data.joint else ("source", "target")
    return read_plain(run.vocabulary(source)), read_plain(run.vocabulary(target))


def _settings(run: RunFolder) -> Config | None:
    try:
        return read_config(run)
    except (TransduceError, OSError):
        return None


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_plain(path)).hexdigest()
    except OSError:
        return ""


# --- runs --------------------------------------------------------------------------------------------------------


def _of_run(run: RunFolder) -> Iterator[Removable]:
    """What killed processes have left in a run, and the checkpoints that a finished run no longer needs."""
    for path in leftovers(run):
        yield Removable(str(path), "unfinished weights", _bytes(path))
    for step in steps_saved(run)[:-1] if _is_over(run) else []:
        path = checkpoint_path(run, step)
        yield Removable(str(path), "old checkpoint", _bytes(path))


def _last_checkpoint(run: RunFolder) -> list[Removable]:
    """The last checkpoint of a finished run that has its final weights."""
    if _why_kept(run):
        return []
    paths = [checkpoint_path(run, step) for step in steps_saved(run)[-1:]]
    return [Removable(str(path), "last checkpoint", _bytes(path)) for path in paths]


def _why_kept(run: RunFolder) -> str:
    """Why the last checkpoint of a run must stay; empty if it is needed only to train a finished run further."""
    if is_training(run):
        return "it is being trained"
    if not _is_over(run):
        return "it is not finished, and resumes from its last checkpoint"
    missing = [which for which in ("best", "last") if not run.weights(which).exists()]
    return f"its {' and '.join(missing)} weights are missing" if missing else ""


def _is_over(run: RunFolder) -> bool:
    try:
        return is_finished(run)
    except (TransduceError, OSError):
        return False


# --- removing ----------------------------------------------------------------------------------------------------


def _removed(items: Sequence[Removable]) -> Iterator[Removable]:
    """Remove these items; what another process uses or has removed by now is left out."""
    for one in sorted(items, key=lambda one: one.path):
        try:
            _remove(one)
        except (RunError, OSError):
            continue
        yield one


def _remove(one: Removable) -> None:
    path = Path(one.path)
    if one.kind == "unfinished data":
        shutil.rmtree(path)
    elif one.kind == "prepared data":
        if not cache.was_used_lately(path):
            cache.discard(path)
    else:
        _remove_of_run(path, one.kind)


def _remove_of_run(path: Path, kind: Kind) -> None:
    """Remove something from a run while no process can begin to train it."""
    run = RunFolder(path.parent.parent if path.parent.name == "checkpoints" else path.parent)
    with alone_in(run):
        if kind != "unfinished weights":
            remove(run, int(path.name.removeprefix("step-")))
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _bytes(path: Path) -> int:
    """The bytes that removing a file or a folder would free."""
    return freed_by_deleting(path) if path.is_dir() else path.lstat().st_size
