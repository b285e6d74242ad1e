"""The settings of a resumed run: the stored ones with the requested budget; any other change is refused by what was typed.

Sees no data.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from transduce.checkpoint import RunFolder
from transduce.config import Config, Layers, all_settings, build, differences, merge
from transduce.errors import RunError
from transduce.training.choices import as_layers, found_again, with_absolute_paths
from transduce.training.request import RequestedSettings, TrainingRequest
from transduce.translator import read_config


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
    may_change = {one.name for one in all_settings() if one.about.resumable}
    for name, (old, new) in differences(found, config).items():
        if name not in may_change:
            raise _cannot_change(run, requested, name, old, new)
    return config


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
        f"is resumed (`transduce settings NAME` says which settings can). {_resume(run)}; to change it, use a new run folder"
    )


def _resume(run: Path) -> str:
    return f"`transduce train {run}` resumes the run as it is"


def _shown(value: Any) -> str:
    """A value as it is typed; an empty one is in words."""
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text or "nothing"
