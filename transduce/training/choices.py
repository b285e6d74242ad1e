"""The settings of a run: requested settings override those chosen for the data or inherited from another model.

Reads no files and sees only counts of the data.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from transduce.config import (
    Config,
    Counts,
    FitRequest,
    Fitted,
    Layers,
    SideCounts,
    all_settings,
    assemble,
    build,
    check_ranges,
    differences,
    fit,
    fit_text,
    flatten,
    from_toml,
    merge,
    to_toml,
)
from transduce.data import Scan, absolute_setting, find, found_setting
from transduce.device import choose_device
from transduce.errors import SettingError
from transduce.training.request import RequestedSettings, as_typed, check_preset
from transduce.training.shard_settings import refuse_unsupported
from transduce.training.speed import time_for
from transduce.translator import ModelFolder

Say = Callable[[str], None]
CHOSEN = "chosen for this data: "  # before each choice that is printed

# Settings that every run has its own values of; fine-tuning does not report them as changes.
NEW_FOR_EACH_RUN = {
    "data.train", "data.valid", "data.hold_out", "data.columns", "data.cache", "data.vocabulary_from", "train.start_from",
}  # fmt: skip
BUDGETS = {"train.minutes", "train.steps", "train.epochs"}
# What is said elsewhere too: if the user gives no more than this, the settings are not listed.
SAID_ELSEWHERE = BUDGETS | {"data.languages", "data.vocabulary_from", "train.start_from"}
VOCABULARY_SETTINGS = (
    "source_units",
    "target_units",
    "joint",
    "vocabulary_size",
    "unknown",
    "normalization",
    "symbols",
)
FINE_TUNING_RATE = 0.25  # of the fitted learning rate: the weights are already good, and large updates would undo that


def with_absolute_paths(config: Config) -> Config:
    """The settings with absolute paths, so that the run can be resumed from any working directory."""
    data, begin = config.data, config.train.start_from
    cache = os.path.abspath(os.path.expanduser(data.cache)) if data.cache else ""
    files = replace(data, train=absolute_setting(data.train), valid=absolute_setting(data.valid), cache=cache)
    files = replace(files, vocabulary_from=os.path.abspath(data.vocabulary_from) if data.vocabulary_from else "")
    return replace(config, data=files, train=replace(config.train, start_from=os.path.abspath(begin) if begin else ""))


def found_again(stored: Config, requested: RequestedSettings, run: Path) -> Config:
    """The settings of a run with the current paths of its files: the run folder may have moved together with its data.

    Files that the user gives again are not searched for.
    """
    data, given = stored.data, requested.config.data
    files = replace(
        data,
        train=() if given.train else found_setting(data.train, run),
        valid=() if given.valid else found_setting(data.valid, run),
        vocabulary_from=find(data.vocabulary_from, run),
    )
    start_from = find(stored.train.start_from, run)
    return with_absolute_paths(replace(stored, data=files, train=replace(stored.train, start_from=start_from)))


def settings_of_new(
    scanned: Scan,
    requested: RequestedSettings,
    start: ModelFolder | None,
    owner: ModelFolder | None,
    found: Mapping[str, Any],
    say: Say,
    begun: float,
) -> Config:
    """The settings of a new run: requested settings override those chosen for the data, machine and budget, or inherited.

    `start` is the model to start from, and `owner` the one whose vocabulary is used. Reports the reasons. A budget in minutes
    counts from `begun`.
    """
    asked, counted = merge(*requested.layers), counts(scanned, requested.config.data.languages)
    of_vocabulary = _with_vocabulary(owner, requested, scanned.audio) if owner and not start else {}
    known = as_layers(start.config) if start else of_vocabulary
    around = FitRequest.of(merge(known, asked) | {"train": asked["train"]})
    around = replace(around, gpus=requested.gpus, family=_family(scanned, requested, start))
    check_preset(requested.preset, around.family)
    around = replace(around, fine_tunes=start is not None)
    if start and not around.optimizer:
        around = replace(around, optimizer="adam")  # Muon was not measured in fine-tuning
    fitted = _fitted(scanned, counted, requested, around, begun)
    taken = _taken_from(start, requested, fitted.layer) if start else of_vocabulary
    alone = with_absolute_paths(assemble(fitted.layer, taken, {"data": asked["data"]}))
    config = with_absolute_paths(build(fitted.layer, taken, *requested.layers, {"data": found}))
    check_ranges(config)  # again: absolute paths have names that nobody gave
    refuse_unsupported(config)
    overridden = list(_overridden(alone, config, requested, found))
    for line in _chosen(fitted, config, overridden) if start is None else overridden:
        say(line)
    for warning in fitted.warnings:
        say(f"note: {warning}")
    if start:
        _say_what_changes(start.config, config, requested.start_from, say)
    return config


def reads_text(config: Config) -> bool:
    """Whether a run trains a language model, on text without sources."""
    return config.data.task == "text"


def _fitted(scanned: Scan, counted: Counts, requested: RequestedSettings, around: FitRequest, begun: float) -> Fitted:
    train = requested.config.train
    time = time_for(train, counted, around, begun)
    if not reads_text(requested.config):
        return fit(counted, around, time)
    device = choose_device(train.device, train.precision, train.threads)
    return fit_text(scanned.target.characters + scanned.pairs, device.kind == "cuda", around, time)


def _chosen(fitted: Fitted, config: Config, overridden: list[str]) -> Iterator[str]:
    """The settings of a run, each once with its final value, and where they come from."""
    for reason in fitted.reasons:
        yield f"{CHOSEN}{reason}"
    if not overridden:
        yield f"{CHOSEN}{fitted.summary(config)}"
        return
    yield f"settings for {fitted.summary(config)}"
    *others, last = overridden
    yield from others
    yield f"{last}; all other settings have the values chosen for this data"


def _overridden(
    fitted: Config, config: Config, requested: RequestedSettings, found: Mapping[str, Any]
) -> Iterator[str]:
    """The settings that were not chosen for the data, one line for each source of settings.

    Everything that the user gave is listed, whether or not it differs from what would have been chosen.
    """
    final, given = flatten(config), requested.given()
    changed = [name for name in differences(fitted, config) if name.removeprefix("data.") not in found]
    names = [name for name in final if name in given or (name in changed and name not in BUDGETS)]
    if given.keys() <= SAID_ELSEWHERE and not set(names) - SAID_ELSEWHERE:
        return
    by_origin: dict[str, list[str]] = {}
    for name in names:
        by_origin.setdefault(requested.origin(name), []).append(f"{name}={as_typed(final[name])}")
    for origin, settings in by_origin.items():
        yield f"set by {origin}: {', '.join(settings)}"


def _family(scanned: Scan, requested: RequestedSettings, start: ModelFolder | None) -> str:
    """The family that was requested or fine-tuned; recordings are for the family `speech`."""
    is_requested = any("family" in layer.get("model", {}) for layer in requested.layers)
    return "speech" if scanned.audio and not (start or is_requested) else (start or requested).config.model.family


def _say_what_changes(old: Config, new: Config, start_from: str, say: Say) -> None:
    """Report every setting that differs from the model to fine-tune, except for the data."""
    changes = [
        f"{name} {before} -> {after}"
        for name, (before, after) in differences(old, new).items()
        if name not in NEW_FOR_EACH_RUN
    ]
    if changes:
        say(f"settings that differ from {start_from}: {', '.join(changes)}")


def _taken_from(start: ModelFolder, requested: RequestedSettings, fitted: Layers) -> Layers:
    """The settings inherited from another model; a requested setting that contradicts them is refused and named."""
    stored = as_layers(start.config)
    dictated = _inherited(stored, "always")
    for section, values in merge(*requested.layers).items():
        for key, value in values.items():
            if key in dictated.get(section, {}) and value != dictated[section][key]:
                raise SettingError(
                    f"{section}.{key} = {value}: the model {requested.start_from} has {dictated[section][key]}, and "
                    "a fine-tuned model must keep this value"
                )
    rate = float(fitted["train"]["learning_rate"]) * FINE_TUNING_RATE
    usual: Layers = {"train": {"learning_rate": rate, "start_from": requested.start_from}}
    return merge(dictated, _inherited(stored, "default"), usual)


def _with_vocabulary(owner: ModelFolder, requested: RequestedSettings, audio: bool) -> Layers:
    """The settings that go with the vocabulary of another run; another value is refused and named."""
    data = owner.config.data
    dictated: dict[str, Any] = {name: getattr(data, name) for name in VOCABULARY_SETTINGS}
    if reads_text(requested.config) or audio:
        dictated |= {"source_units": data.target_units, "joint": True}
    for key, value in merge(*requested.layers)["data"].items():
        if key in dictated and value != dictated[key]:
            raise SettingError(
                f"data.{key} = {value}: the vocabulary of {owner.folder.path} has {dictated[key]}: leave out data.{key}"
            )
    return {"data": dictated}


def _inherited(stored: Layers, how: str) -> Layers:
    """The settings of a model that fine-tuning inherits in this way."""
    layer: Layers = {}
    for one in all_settings(stored["model"]["family"]):
        if one.about.inherited == how:
            layer.setdefault(one.section, {})[one.key] = stored[one.section][one.key]
    return layer


def counts(scanned: Scan, languages: tuple[str, ...] = ()) -> Counts:
    """The counts of the data by which settings are chosen."""
    source, target = (
        SideCounts(
            tokens_per_line=side.tokens_per_line,
            distinct_tokens=side.distinct_tokens,
            characters_per_line=side.characters / scanned.pairs,
            unspaced_words_per_line=side.unspaced_words_per_line,
            alphabet=side.alphabet,
        )
        for side in (scanned.source, scanned.target)
    )
    return Counts(
        pairs=scanned.pairs,
        source=source,
        target=target,
        features=bool(scanned.symbols),
        languages=languages,
        identical=scanned.identical,
        audio=scanned.audio,
    )


def as_layers(config: Config) -> Layers:
    """A configuration as requests give theirs."""
    return from_toml(to_toml(config), "the run's settings")
