"""The runs under a folder: its data, its progress, its best score, and its disk space.

Reads settings, the headers of weights and the end of the log, so hundreds of runs take seconds and nothing imports torch. A
run that cannot be read is listed as broken, with the reason.
"""

import hashlib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from transduce.checkpoint import RunFolder, checkpoint_path, read_about, read_progress, read_shapes, steps_saved
from transduce.config import Config
from transduce.data import groups_from_setting
from transduce.errors import DamagedFile, DataError, RunError, TransduceError
from transduce.files import read_plain
from transduce.run_lock import is_training
from transduce.run_log import Event, last_events, read_text
from transduce.translator import better_weights, read_config

RunState = Literal["running", "stopped", "finished", "broken"]
_CARD_STEPS = re.compile(r"^- ([\d,]+) steps, ", re.M)


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """What is known about one run; None where its files do not say."""

    run: str
    state: RunState
    reason: str = ""  # why it is broken
    task: str = ""
    languages: tuple[str, ...] = ()
    train: tuple[tuple[str, ...], ...] = ()  # files, one group for each --train
    valid: tuple[tuple[str, ...], ...] = ()
    model: str = ""  # the shape of the model in a few words
    parameters: int | None = None
    steps: int | None = None
    seconds: float | None = None  # of training
    weights: str = ""  # the better of best and averaged
    metric: str = ""
    score: float | None = None
    signature: str = ""
    lines: int | None = None  # validation lines that the score was measured on
    all_lines: int | None = None  # of the validation data
    bytes: int = 0  # on disk, hard links counted once
    changed: float = 0.0  # when the newest of its files was written, in seconds since 1970

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON has it."""
        return asdict(self)


def list_runs(folder: str | Path = ".") -> list[RunStatus]:
    """The runs in and below a folder, ordered by their path."""
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f"{root}: {'not a folder' if root.exists() else 'no such folder'}")
    return [status_of(path) for path in find_runs(root)]


def find_runs(root: Path) -> list[Path]:
    """The run folders in and below a folder; hidden folders are left out, and links are followed once."""
    return sorted(_found(root, set()))


def _found(folder: Path, seen: set[tuple[int, int]]) -> Iterator[Path]:
    try:
        here = folder.stat()
        if (here.st_dev, here.st_ino) in seen:
            return
        seen.add((here.st_dev, here.st_ino))
        entries = list(os.scandir(folder))
    except OSError:  # it vanished, or may not be read
        return
    if is_run({entry.name for entry in entries}):
        yield folder
        return
    for entry in entries:
        if not entry.name.startswith(".") and entry.is_dir():
            yield from _found(folder / entry.name, seen)


def is_run(names: set[str]) -> bool:
    """Whether a folder with these files is a run, whole or broken: one file alone could belong to another program."""
    folder = RunFolder(Path())
    kinds = [
        {folder.config.name},
        {folder.metrics.name},
        {folder.data.name},
        {folder.vocabulary(side).name for side in ("joint", "source", "target")},
        {folder.weights(which).name for which in ("best", "last", "averaged")},
    ]
    return sum(bool(kind & names) for kind in kinds) >= 2


def status_of(path: Path) -> RunStatus:
    """What is known about the run in a folder."""
    folder, disk = RunFolder(path), _disk(path)
    state: RunState = "running" if is_training(folder) else "broken"
    try:
        config = _read_settings(folder)
        known = _about_model(config) | _about_training(folder) | _about_score(folder, config)
        if state != "running":
            state = "finished" if is_finished(folder) else "stopped"
        return RunStatus(run=str(path), state=state, **known, **disk)
    except (TransduceError, OSError) as error:  # of a run that is training: a file that is being replaced
        return RunStatus(run=str(path), state=state, reason=_one_line(error, path), **disk)


def _read_settings(folder: RunFolder) -> Config:
    if not folder.config.exists():
        raise RunError(
            f"{folder.path}: has no config.toml: the run was killed before it started, or the file was deleted"
        )
    return read_config(folder)


def _about_model(config: Config) -> dict[str, Any]:
    data = config.data
    return {
        "task": data.task,
        "languages": data.languages,
        "train": groups_from_setting(data.train),
        "valid": groups_from_setting(data.valid),
        "model": config.model.description,
    }


def _about_training(folder: RunFolder) -> dict[str, Any]:
    """The steps and seconds of training: from the end of the log, or else from the newest checkpoint."""
    events = last_events(folder.metrics)
    steps = steps_of(events)
    if (end := events[-1] if events else {}).get("event") == "finished":
        return {"steps": max(steps), "seconds": _number(end.get("seconds"))}
    saved = steps_saved(folder)
    progress = read_progress(checkpoint_path(folder, saved[-1])) if saved else {}
    if not steps and not progress:
        return {}
    return {"steps": max([*steps, *saved]), "seconds": _number(progress.get("seconds"))}


def _about_score(folder: RunFolder, config: Config) -> dict[str, Any]:
    """The size of the model, and the validation score of its better weights."""
    which = better_weights(folder)
    path = folder.weights(which)
    if not path.exists():
        return {}
    about = read_about(path)
    _check_vocabularies(folder, config, about)
    known: dict[str, Any] = {"weights": which, "parameters": sum(map(math.prod, read_shapes(path).values()))}
    if "score" in about:
        known |= {
            "score": float(about["score"]),
            "metric": about.get("metric", ""),
            "signature": about.get("signature", ""),
        }
    known |= {name: int(about[name]) for name in ("lines", "all_lines") if name in about}
    return known


def _check_vocabularies(folder: RunFolder, config: Config, about: Mapping[str, str]) -> None:
    """Refuse vocabularies that the weights were not trained with, without the time that sentencepiece takes to load them."""
    for side in ("source", "target"):
        path = folder.vocabulary("joint" if config.data.joint else side)
        digest = hashlib.sha256(read_plain(path)).hexdigest()
        if about.get(f"{side}_vocabulary", digest) != digest:
            raise DamagedFile(f"{path}: modified, incomplete or not the vocabulary that the weights were trained with")


def is_finished(folder: RunFolder) -> bool:
    """Whether training has ended; a model without a log, such as an imported one, was not trained here.

    The log says so, and whether a finished run was resumed. Logs of older versions do not, but their model card, which is
    written at the end, has the last step.
    """
    events, saved = last_events(folder.metrics), steps_saved(folder)
    if not events and not saved:
        return folder.weights(better_weights(folder)).exists()
    kinds = [event.get("event") for event in events]
    if kinds[-1:] == ["finished"] or "resumed" in kinds:
        return kinds[-1] == "finished"
    return _steps_of_card(folder) == max([*saved, *steps_of(events)], default=0)


def steps_of(events: Sequence[Event]) -> list[int]:
    """The steps that events of a log belong to."""
    return [event["step"] for event in events if isinstance(event.get("step"), int)]


def _steps_of_card(folder: RunFolder) -> int | None:
    found = _CARD_STEPS.search(read_text(folder.card))
    return int(found[1].replace(",", "")) if found else None


def _disk(path: Path) -> dict[str, Any]:
    files: dict[tuple[int, int], os.stat_result] = {}
    for name, _, names in os.walk(path):
        for file in names:
            try:
                one = os.lstat(os.path.join(name, file))
            except OSError:  # training deletes old checkpoints
                continue
            files[one.st_dev, one.st_ino] = one
    return {
        "bytes": sum(one.st_size for one in files.values()),
        "changed": max((one.st_mtime for one in files.values()), default=0.0),
    }


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _one_line(error: Exception, path: Path) -> str:
    """The message without the path of the run, which the table shows in its first column."""
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    return " ".join(text.split()).removeprefix(f"{path}: ").replace(f"{path}/", "")
