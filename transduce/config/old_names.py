"""Settings of earlier versions: one table of what they are called now, or of what was removed.

Old names are read wherever settings are read (`config.toml`, `--config`, `--set`, Python) and never written.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transduce.config.columns import Columns
from transduce.errors import SettingError

Layers = dict[str, dict[str, Any]]
AnyLayers = Mapping[str, Mapping[str, Any]]


def _same(value: Any) -> Any:
    return value


def _columns(number: Any) -> tuple[str, ...]:
    """The columns that a number of the column of features stood for."""
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= 10_000:
        raise SettingError(f"data.features_column = {number!r}: must be a whole number from 0 to 10,000")
    return Columns.with_features_in(number).setting if number else ()


@dataclass(frozen=True)
class Renamed:
    """A setting that has another name now, and perhaps another form."""

    to: str
    convert: Callable[[Any], Any] = _same


@dataclass(frozen=True)
class Removed:
    """A setting that no longer exists; at `off` it changed nothing, so that value is still read."""

    off: Any


OLD_NAMES: dict[str, Renamed | Removed] = {
    "train.tokens_per_microbatch": Renamed("train.positions_per_microbatch"),  # padding was always counted
    "data.sampling": Renamed("data.subword_sampling"),  # neither the sampling of corpora nor that of outputs
    "data.features_column": Renamed("data.columns", _columns),
    "train.ramp_epochs": Removed(0),
    "train.simcut": Removed(0.0),
    "train.simcut_rate": Removed(0.05),
}
OLD_VALUES: dict[str, Any] = {"train.optimizer": "schedule_free"}
LAST_WITH_THEM = "commit 18ebe9c, before the release of 0.1.0, is the last version that has it"


def with_current_names(layer: AnyLayers) -> Layers:
    """The same layer under the names of today. What was removed is left alone."""
    current: Layers = {section: dict(values) for section, values in layer.items()}
    for old, renamed in _renamed_in(layer):
        section, _, key = old.partition(".")
        to_section, _, to_key = renamed.to.partition(".")
        value = current[section].pop(key)
        converted, others = renamed.convert(value), current.setdefault(to_section, {})
        if to_key not in others:
            others[to_key] = converted
        elif converted and others[to_key]:
            raise SettingError(f"{old} = {value}: this is the old name of {renamed.to}, which is set too: leave it out")
    return current


def notes_on_old_names(*layers: AnyLayers) -> list[str]:
    """A line for each old name, with the name to use instead."""
    found = {old: renamed.to for layer in layers for old, renamed in _renamed_in(layer)}
    return [f"note: {old} is called {new} now; the old name still works" for old, new in found.items()]


def _renamed_in(layer: AnyLayers) -> Iterator[tuple[str, Renamed]]:
    for old, fate in OLD_NAMES.items():
        section, _, key = old.partition(".")
        if isinstance(fate, Renamed) and key in layer.get(section, {}):
            yield old, fate


def without_removed(layer: AnyLayers) -> Layers:
    """The layer without removed settings and values: how a model was trained does not matter for using it."""
    return {
        section: {key: value for key, value in values.items() if not _is_removed(f"{section}.{key}", value)}
        for section, values in layer.items()
    }


def refuse_removed(layer: AnyLayers) -> None:
    """Raise for a removed feature that is turned on; one that is turned off changes nothing."""
    for section, values in layer.items():
        for key, value in values.items():
            name = f"{section}.{key}"
            fate = OLD_NAMES.get(name)
            if _is_removed(name, value) and not (isinstance(fate, Removed) and value == fate.off):
                raise SettingError(f"{name} = {value!r}: this feature was removed; {LAST_WITH_THEM}")


def _is_removed(name: str, value: Any) -> bool:
    return isinstance(OLD_NAMES.get(name), Removed) or (name in OLD_VALUES and value == OLD_VALUES[name])
