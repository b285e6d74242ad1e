"""The settings of a resumed run: the stored ones with the requested budget; any other change is refused by what was typed.

Sees no data, only whether its files exist.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from transduce.checkpoint import RunFolder
from transduce.config import Config, Layers, all_settings, build, differences, merge
from transduce.data import groups_from_setting
from transduce.errors import RunError, UnreadableFile
from transduce.training.choices import as_layers, found_again, with_absolute_paths
from transduce.training.request import RequestedSettings, TrainingRequest, as_typed
from transduce.translator import read_config

FILES = ("data.train", "data.valid")  # settings


def for_run(folder: RunFolder, request: TrainingRequest) -> TrainingRequest:
    """The request with the family of an existing run, whose settings it may name."""
    if not folder.config.exists():
        return request
    family: Layers = {"model": {"family": read_config(folder).model.family}}
    return replace(request, inherited=merge(family, request.inherited))


def settings_of_resumed(stored: Config, requested: RequestedSettings, run: Path) -> Config:
    """The stored settings with the requested budget; any other change is refused and named."""
    _check_kind(stored, requested, run)
    found = found_again(stored, requested, run)
    config = with_absolute_paths(build(as_layers(found), *requested.layers))
    for name, (old, new) in differences(found, config).items():
        if name not in _may_change():
            raise _cannot_change(run, requested, name, old, new)
    return config


def check_files_are_there(config: Config, requested: RequestedSettings) -> None:
    """Refuse to resume without the data; a file that was moved can be given again."""
    text = config.data.task == "text"
    for name, option in (("train", "--text" if text else "--train"), ("valid", "--valid-text" if text else "--valid")):
        groups = groups_from_setting(getattr(config.data, name))
        again = " ".join(f"{option} {' '.join(f'NEW{Path(path).suffix}' for path in group)}" for group in groups)
        for path in (path for group in groups for path in group):
            if path != "-" and not os.path.exists(path) and not getattr(requested.config.data, name):
                raise UnreadableFile(
                    f"{path}: cannot be read: no such file; if you moved it, give its new place: {again} "
                    "(the content must be the same)"
                )


def _may_change() -> list[str]:
    return [one.name for one in all_settings() if one.about.resumable]


def _may_change_in_words() -> str:
    """These settings; of files only the path."""
    return ", ".join(f"{name} (only the path of the same data)" * (name in FILES) or name for name in _may_change())


def _check_kind(stored: Config, requested: RequestedSettings, run: Path) -> None:
    """Refuse another family, task or kind of data: their settings have other names, so the two cannot be put together."""
    asked, option = merge(*requested.layers), requested.typed.get("data.train") or requested.typed.get("data.valid", "")
    text = asked["data"].get("task") == "text" and option.startswith(("--text", "--valid-text"))
    if option and text != (stored.data.task == "text"):
        wanted = "a language model" if text else "a model of pairs or recordings"
        raise RunError(
            f"{run}: {option}: this run trains a model that {stored.data.what_it_does}. {_resume(run)}; "
            f"to train {wanted}, use a new folder: `transduce train NEW {option}`"
        )
    for section, key, old in (("model", "family", stored.model.family), ("data", "task", stored.data.task)):
        if (new := asked[section].get(key, old)) != old:
            raise _cannot_change(run, requested, f"{section}.{key}", old, new)
    if asked["data"].get("valid") and (stored.data.hold_out or stored.data.hold_out_speakers):
        raise RunError(
            f"{run}: {option}: this run validates on a part of its training data, which cannot change when a run is resumed. "
            f"{_resume(run)}; for other validation data, use a new run folder"
        )


def _cannot_change(run: Path, requested: RequestedSettings, name: str, old: Any, new: Any) -> RunError:
    option = requested.typed.get(name, "")
    return RunError(
        f"{run}: {f'{option}: ' if option else ''}this run has {name} = {_shown(old)}, not {_shown(new)}. {name} cannot change when a run "
        f"is resumed; only these can: {_may_change_in_words()}. {_resume(run)}; to change it, use a new run folder"
    )


def _resume(run: Path) -> str:
    return f"`transduce train {run}` resumes the run as it is"


def _shown(value: Any) -> str:
    """A value as it is typed; an empty one is in words."""
    return as_typed(value) or "nothing"
