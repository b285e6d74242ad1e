"""The first files of a run folder: its settings, its vocabularies and the hashes of its data, by which it can be resumed."""

import json
from typing import Any

from transduce.checkpoint import RunFolder, write_bytes, write_text
from transduce.config import refuse_removed
from transduce.errors import DamagedFile, DataError, RunError, SettingError
from transduce.training.corpora import Scans
from transduce.training.feed import TrainingData
from transduce.training.request import RequestedSettings
from transduce.translator import read_config, read_layers, write_config


def write_run(folder: RunFolder, training_data: TrainingData, content: dict[str, Any]) -> None:
    """Write the first files of a new run, or the changed settings of a resumed one."""
    config = training_data.config
    if not folder.config.exists():
        _write_folder(folder, training_data, content)
    elif config != read_config(folder):
        write_config(folder, config)


def _write_folder(folder: RunFolder, training_data: TrainingData, content: dict[str, Any]) -> None:
    """Write the configuration last: a folder without one is not a run yet."""
    folder.path.mkdir(parents=True, exist_ok=True)
    config, both = training_data.config, training_data.vocabularies
    if config.data.joint:
        write_bytes(folder.vocabulary("joint"), both.source.model)
    else:
        write_bytes(folder.vocabulary("source"), both.source.model)
        write_bytes(folder.vocabulary("target"), both.target.model)
    write_text(folder.data, json.dumps(content) + "\n")
    write_config(folder, config)


def check_resumable(folder: RunFolder) -> None:
    """Refuse to resume a run that uses a removed feature; its model can still translate."""
    try:
        refuse_removed(read_layers(folder))
    except SettingError as error:
        raise RunError(f"{folder.path}: this run cannot be resumed: {error}") from None


def check_unchanged(folder: RunFolder, scanned: Scans, requested: RequestedSettings) -> None:
    """Refuse to resume a run with other data than it was started with."""
    try:
        known = json.loads(folder.data.read_text(encoding="utf-8"))
        known = {name: known[name] for name in ("train", "valid")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(
            f"{folder.data}: cannot be read ({error}); without this file the run cannot be resumed"
        ) from None
    for name, kind in (("train", "training"), ("valid", "validation")):
        if known[name] != scanned.content[name]:
            option = requested.typed.get(f"data.{name}", "")
            remedy = f"leave out {option.split()[0]} to resume the run with its own data, or " if option else ""
            raise DataError(
                f"{folder.path}: {f'{option}: ' if option else ''}the {kind} data has changed since this run started: {remedy}use a new folder"
            )
