"""Merges the sources of settings: defaults < chosen for the data < preset < file < `--set`.

A layer is a nested dictionary, `{"model": {"d_model": 256}}`. Nothing is accepted that is not a setting, and
every value is checked against its field's type. Knows files only as TOML text.
"""

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from transduce.config.models import FAMILIES, ModelConfig
from transduce.config.old_names import Layers, refuse_removed, with_current_names, without_removed
from transduce.config.other_names import our_name
from transduce.config.refusals import check
from transduce.config.setting import KINDS
from transduce.config.settings import SECTIONS, Config, DataConfig, SearchConfig, TrainConfig
from transduce.errors import SettingError

T = TypeVar("T")


def merge(*layers: Mapping[str, Mapping[str, Any]]) -> Layers:
    """Later layers win, key by key. Old names of settings become those of today."""
    merged: Layers = {section: {} for section in SECTIONS}
    for layer in map(with_current_names, layers):
        for section, values in layer.items():
            merged.setdefault(section, {}).update(values)
    return merged


def build(*layers: Mapping[str, Mapping[str, Any]]) -> Config:
    """The configuration the layers add up to, refused where it cannot work."""
    config = assemble(*layers)
    check(config)
    return config


def assemble(*layers: Mapping[str, Mapping[str, Any]]) -> Config:
    """The configuration the layers add up to; names and types are checked, combinations are not."""
    merged = merge(*layers)
    refuse_removed(merged)
    merged = without_removed(merged)
    for section in merged:
        if section not in SECTIONS:
            raise SettingError(f"unknown section [{section}]{_suggestion(section, SECTIONS)}")
    return Config(
        model=_section("model", _family(merged["model"]), merged["model"]),
        data=_section("data", DataConfig, merged["data"]),
        train=_section("train", TrainConfig, merged["train"]),
        search=_section("search", SearchConfig, merged["search"]),
    )


def _family(values: Mapping[str, Any]) -> type[ModelConfig]:
    """The settings of the family that is asked for."""
    name = values.get("family", ModelConfig.family)
    if name not in FAMILIES:
        raise SettingError(f"model.family = {name!r}: must be one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def assignments(items: Iterable[str]) -> Layers:
    """The layer that `--set section.key=value ...` describes."""
    layer: Layers = {}
    for item in items:
        if not isinstance(item, str):
            raise SettingError(f"settings: {item!r}: write each as text, section.key=value, or give a dictionary")
        name, equals, text = item.partition("=")
        section, dot, key = name.strip().partition(".")
        if not equals or not dot or not key:
            raise SettingError(f"--set {item}: write section.key=value, for example model.d_model=256")
        layer.setdefault(section, {})[key] = _parse(text.strip())
    return layer


def settings_layer(settings: Mapping[str, Any] | Iterable[str]) -> Layers:
    """The layer of what a program gives: `section.key=value` texts, {"section.key": value} or {"section": {"key": value}}."""
    if isinstance(settings, str):
        return assignments([settings])
    if not isinstance(settings, Mapping):
        return assignments(settings)
    layer: Layers = {}
    for name, value in settings.items():
        section, dot, key = str(name).partition(".")
        if isinstance(value, Mapping) and not dot:
            layer.setdefault(section, {}).update({str(key): _plain(item) for key, item in value.items()})
        elif dot:
            layer.setdefault(section, {})[key] = _plain(value)
        else:
            raise SettingError(f'settings: {name!r} names no setting: write "section.key", for example "model.d_model"')
    return layer


def _plain(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def from_toml(text: str, where: str) -> Layers:
    """The layer written in a TOML text; `where` names it in errors."""
    try:
        layer = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets without end
        raise SettingError(f"{where}: not valid TOML: {error}") from None
    for section, values in layer.items():
        if not isinstance(values, dict):
            raise SettingError(f"{where}: '{section}' is outside a section; put it under [model], [data], ...")
    return layer


def to_toml(config: Config) -> str:
    """Every setting as TOML, in the order of the page."""
    lines: list[str] = []
    for section, values in asdict(config).items():
        lines += [f"[{section}]", *(f"{key} = {_toml_value(value)}" for key, value in values.items()), ""]
    return "\n".join(lines)


def flatten(config: Config) -> dict[str, Any]:
    """`{"model.d_model": 512, ...}`."""
    return {f"{s}.{key}": value for s, values in asdict(config).items() for key, value in values.items()}


def differences(old: Config, new: Config) -> dict[str, tuple[Any, Any]]:
    """The settings that differ, with both values."""
    before, after = flatten(old), flatten(new)
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def _section(name: str, kind: type[T], values: Mapping[str, Any]) -> T:
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # hints also name what belongs to the class
    for key in values:
        if key not in known:
            raise SettingError(
                f"unknown setting {name}.{key}{_of_families(name, key) or _suggestion(key, known, name)}"
            )
    return kind(**{key: _coerce(f"{name}.{key}", value, hints[key]) for key, value in values.items()})


def _of_families(section: str, key: str) -> str:
    """Which families of models have a setting that this one has not; nothing if none has."""
    having = [name for name, kind in FAMILIES.items() if key in {field.name for field in fields(kind)}]
    if section != "model" or not having:
        return ""
    add = f"; add model.family={having[0]}" if len(having) == 1 else ""
    return f" for this model: the setting belongs to model.family = {' or '.join(having)}{add}"


def _suggestion(word: str, known: Iterable[str], section: str = "") -> str:
    if section and (ours := our_name(word)):
        return f"; did you mean {ours}?"
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    if close:
        return f"; did you mean {section + '.' if section else ''}{close[0]}?"
    others = {name: kind for name, kind in SECTIONS.items() if name != section}
    elsewhere = [f"{s}.{word}" for s, kind in others.items() if word in {f.name for f in fields(kind)}]
    return f"; did you mean {elsewhere[0]}?" if elsewhere else f"; known: {', '.join(sorted(known))}"


def _parse(text: str) -> Any:
    """A TOML value where it is one, else the text itself (so that names need no quotes)."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _coerce(name: str, value: Any, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
        raise SettingError(f"{name} = {value!r}: must be one of {', '.join(map(str, get_args(kind)))}")
    if get_origin(kind) is tuple:
        items = (value.split(",") if value else ()) if isinstance(value, str) else value
        return tuple(str(item) for item in (items if isinstance(items, list | tuple) else [items]))
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind is str and isinstance(value, int | float):
        return str(value)
    if type(value) is kind:
        return value
    raise SettingError(f"{name} = {value!r}: must be {KINDS[kind]}")


def _toml_value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return _toml_string(value)
        case tuple() | list():
            return f"[{', '.join(_toml_string(item) for item in value)}]"
    raise TypeError(f"no TOML form for {type(value)}")


def _toml_string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
