"""The training request: everything that a user can specify when training a model, and the resulting settings.

The command line, `transduce.train`, distillation and the demonstration all build a `TrainingRequest`. The only
file it reads is a configuration file; it knows nothing of the data.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transduce.config import PRESETS, Config, Layers, assemble, check_ranges, from_toml, merge, settings_layer
from transduce.data import Files, groups_of, groups_to_setting, paths_of
from transduce.errors import SettingError
from transduce.languages import wrong_code
from transduce.training.shard_settings import refuse_unsupported

OPTIONS = "options"
TEACHER = "the teacher"
FILE_OPTIONS = ("--train", "--valid", "--text", "--valid-text")  # settings that these name are not settings for people
OWN_OPTIONS = {"data.columns": "--columns", "data.skip_blank_lines": "--skip-blank-lines", "train.seed": "--seed"}

Settings = Mapping[str, Any] | Iterable[str]  # {"model.d_model": 64}, {"model": {"d_model": 64}}, ["model.d_model=64"]


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """What to train on and with which settings. Omitted settings are chosen for the data, or kept when resuming."""

    train: Files | None = None
    valid: Files | None = None
    text: Files | None = None  # text files, for a language model; instead of pairs
    valid_text: Files | None = None
    languages: Iterable[str] | None = None  # source and target
    preset: str = ""
    config: str | Path = ""  # a TOML file
    settings: Settings | None = None
    set_by: str = OPTIONS  # who gives `settings`, in words
    start_from: str | Path = ""  # the run folder of a model to fine-tune
    vocabulary: str | Path = ""  # the run folder whose vocabulary to use
    inherited: Layers = field(default_factory=dict)  # settings of a teacher; all other settings override them
    shrunk: Layers = field(default_factory=dict)  # changes of the preset for a small teacher


@dataclass(frozen=True)
class RequestedSettings:
    """The requested settings: their layers, and the configuration that results from them and the defaults."""

    layers: tuple[Layers, ...]
    origins: tuple[str, ...]  # where each layer comes from, in words
    config: Config  # nothing is fitted to the data yet
    gpus: int = 1  # that will train together, to which settings are fitted too
    typed: Mapping[str, str] = field(default_factory=dict)  # the option of a setting; empty for `--set`
    preset: str = ""

    @property
    def start_from(self) -> str:
        return self.config.train.start_from

    def origin(self, name: str) -> str:
        """Where a requested setting comes from; the last layer that has it counts."""
        return self._origins().get(name, OPTIONS)

    def given(self) -> dict[str, str]:
        """Every setting that the user gave, with where it comes from; a teacher's settings and the data files are left out."""
        return {
            name: origin
            for name, origin in self._origins().items()
            if origin != TEACHER and self.typed.get(name, "").split(" ")[0] not in FILE_OPTIONS
        }

    def _origins(self) -> dict[str, str]:
        layers = zip(self.origins, self.layers, strict=True)
        return {name: origin for origin, layer in layers for name in _names(merge(layer))}


def requested_settings(request: TrainingRequest) -> RequestedSettings:
    """The layers that override the settings chosen for the data: inherited from a teacher < preset < file < options and `--set`."""
    if request.preset and request.preset not in PRESETS:
        raise SettingError(f"unknown preset '{request.preset}'; choose one of {', '.join(PRESETS)}")
    start_from: Layers = {"train": {"start_from": str(request.start_from)}} if request.start_from else {}
    vocabulary: Layers = {"data": {"vocabulary_from": str(request.vocabulary)}} if request.vocabulary else {}
    file, data, settings = _file_layer(request.config), _data_layer(request), settings_layer(request.settings or ())
    given = (
        (TEACHER, request.inherited),
        (f"preset {request.preset}", PRESETS.get(request.preset, {})),
        (f"preset {request.preset}, smaller for a small teacher", request.shrunk),
        ("the configuration file", file),
        (OPTIONS, data),
        (OPTIONS, start_from),
        (OPTIONS, vocabulary),
        (request.set_by, settings),
    )
    layers = tuple(_without_auto(layer) for _, layer in given)
    check_preset(request.preset, merge(*layers)["model"].get("family", ""))
    config = assemble(*layers)  # a misspelt setting is refused before anything is read
    check_ranges(config)
    if "languages" in merge(file, data, settings)["data"]:
        _check_languages(config.data.languages)
    refuse_unsupported(config)
    typed = {
        **dict.fromkeys(_names(PRESETS.get(request.preset, {})), f"--preset {request.preset}"),
        **dict.fromkeys(_names(file), f"--config {request.config}"),
        **_typed_data(data["data"]),
        **dict.fromkeys(_names(start_from), f"--from {request.start_from}"),
        **dict.fromkeys(_names(vocabulary), f"--vocabulary {request.vocabulary}"),
        **{name: OWN_OPTIONS.get(name, "") for name in _names(settings)},
    }
    return RequestedSettings(layers, tuple(origin for origin, _ in given), config, typed=typed, preset=request.preset)


def _check_languages(given: Iterable[str]) -> None:
    """Refuse names of languages where codes belong; only here, so that runs with such names load and resume."""
    for problem in filter(None, map(wrong_code, given)):
        raise SettingError(problem)


def check_preset(preset: str, family: str) -> None:
    """Refuse a preset whose settings a family does not have, before one of them is named that nobody typed."""
    if preset and family:
        try:
            assemble(PRESETS[preset], {"model": {"family": family}})
        except SettingError:
            raise SettingError(
                f"--preset {preset}: has settings that models of the family {family} do not have: leave it out"
            ) from None


def _typed_data(data: Mapping[str, Any]) -> dict[str, str]:
    """The options about data as they are typed, by setting; files of text ask for a language model too."""
    text = data.get("task") == "text"
    options = {"train": "--text" if text else "--train", "valid": "--valid-text" if text else "--valid"}
    options["languages"] = "--languages"
    typed = {
        f"data.{key}": f"{option} {' '.join(data[key])}".replace("\t", " ")
        for key, option in options.items()
        if key in data
    }
    asked = typed.get("data.train") or typed.get("data.valid", "")
    return typed | (dict.fromkeys(("data.task", "model.family"), asked) if text else {})


def _names(layer: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [f"{section}.{key}" for section, values in layer.items() for key in values]


def as_typed(value: Any) -> str:
    """The value of a setting as `--set` takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def language_codes(given: Iterable[str] | None) -> tuple[str, ...]:
    """The two language codes; from Python, one string such as "en de" is also accepted."""
    return tuple(given.replace(",", " ").split()) if isinstance(given, str) else tuple(given or ())


def _data_layer(request: TrainingRequest) -> Layers:
    if request.text is not None or request.valid_text is not None:
        return _text_layer(request)
    options: dict[str, Any] = {
        "train": groups_to_setting(groups_of(request.train)),
        "valid": groups_to_setting(groups_of(request.valid)),
        "languages": language_codes(request.languages),
    }
    return {"data": {key: value for key, value in options.items() if value}}


def _text_layer(request: TrainingRequest) -> Layers:
    """Every file of text is a corpus of its own."""
    if request.train or request.valid:
        raise SettingError("--text and --valid-text are for language models: leave out --train and --valid")
    if request.languages:
        raise SettingError(
            "--languages has no effect on a language model, which has no source and target: leave it out"
        )
    options = {"train": paths_of(request.text), "valid": paths_of(request.valid_text), "task": "text"}
    return {"model": {"family": "decoder"}, "data": {key: value for key, value in options.items() if value}}


def _without_auto(layer: Mapping[str, Mapping[str, Any]]) -> Layers:
    """Drop settings of `auto`, so that they are chosen for the data."""
    return {
        section: {k: v for k, v in values.items() if not (section == "data" and v == "auto")}
        for section, values in layer.items()
    }


def _file_layer(path: str | Path) -> Layers:
    if not path:
        return {}
    if not isinstance(path, str | Path):
        raise SettingError("config must be the path of a TOML file; to pass settings from Python, use settings={...}")
    try:
        return from_toml(Path(path).read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise SettingError(f"{path}: cannot be read: {error}") from None
    except OSError as error:
        raise SettingError(f"{path}: cannot be read: {error.strerror}") from None
