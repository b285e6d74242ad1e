"""Where two runs differ: their settings, their data, their scores, and their learning curves in one picture.

Data are compared by the hashes in the run folders, so files that were moved or renamed are still the same data.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transduce.checkpoint import RunFolder
from transduce.config import Config, flatten
from transduce.errors import DamagedFile, RunError
from transduce.files import read_plain
from transduce.run_log import Event, read_events
from transduce.tracking.listing import RunStatus, status_of
from transduce.translator import read_config

LARGEST_HASHES = 1_000_000  # bytes
FILES = ("data.train", "data.valid")  # compared by content
PLACES = ("data.cache",)  # where prepared data are kept; it affects no result

Curve = list[tuple[int, float]]


@dataclass(frozen=True)
class RunDifference:
    """Two runs, and everything in which they differ."""

    runs: tuple[RunStatus, RunStatus]
    settings: dict[str, tuple[Any, Any]]  # None for a setting that only the other run has
    data: dict[str, bool]  # for "train" and "valid", whether the content differs

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON has it."""
        return asdict(self)


def run_difference(one: str | Path, other: str | Path) -> RunDifference:
    """Compare two run folders."""
    folders = RunFolder(Path(one)), RunFolder(Path(other))
    configs = _config(folders[0]), _config(folders[1])
    return RunDifference(
        runs=(status_of(folders[0].path), status_of(folders[1].path)),
        settings=_settings(*configs),
        data=_data(data_hashes(folders[0]), data_hashes(folders[1])),
    )


def _config(folder: RunFolder) -> Config:
    if not folder.config.is_file():
        raise RunError(f"{folder.path}: not a run folder (it has no config.toml)")
    return read_config(folder)


def _settings(one: Config, other: Config) -> dict[str, tuple[Any, Any]]:
    before, after = flatten(one), flatten(other)
    names = [name for name in {**before, **after} if name not in (*FILES, *PLACES)]
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def _data(one: dict[str, str], other: dict[str, str]) -> dict[str, bool]:
    """Whether the data differ; a model without training data, such as an imported one, has none to compare."""
    return {name: one[name] != other[name] for name in ("train", "valid") if name in one and name in other}


def data_hashes(folder: RunFolder) -> dict[str, str]:
    """The hashes of the training and validation data of a run; none for a model that was not trained here."""
    try:
        hashes = json.loads(read_plain(folder.data, LARGEST_HASHES))
        return {name: str(hashes[name]) for name in ("train", "valid")}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{folder.data}: cannot be read ({error})") from None


# --- the picture -------------------------------------------------------------------------------------------------


def draw_difference(one: str | Path, other: str | Path, picture: Path) -> None:
    """Draw the learning curves of two runs over each other: losses, main score and learning rate."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), dpi=110, layout="constrained")
    panels = figure.subplots(1, 3)
    logs = {name: _events(Path(run)) for name, run in zip(_names(one, other), (one, other), strict=True)}
    metrics = list(dict.fromkeys(filter(None, map(_main_metric, logs.values()))))
    for number, (name, events) in enumerate(logs.items()):
        _draw(panels[0], events, _training_loss, "--", f"{name}, training", number)
        _draw(panels[0], events, _validation_loss, "o-", f"{name}, validation", number)
        _draw(panels[1], events, _score, "o-", f"{name}{f': {_main_metric(events)}' * (len(metrics) > 1)}", number)
        _draw(panels[2], events, _learning_rate, "-", name, number)
    titles = "loss per target token", f"validation: {', '.join(metrics)}" if metrics else "validation", "learning rate"
    for panel, title in zip(panels, titles, strict=True):
        panel.set(title=title, xlabel="step")
        panel.grid(alpha=0.3)
        if panel.lines:
            panel.legend()
    figure.savefig(picture)


def _names(one: str | Path, other: str | Path) -> tuple[str, str]:
    """The names of the folders, or their paths if the names are equal; `$` would begin a formula."""
    names = Path(one).resolve().name, Path(other).resolve().name
    if names[0] == names[1]:
        names = str(one), str(other)
    if names[0] == names[1]:
        names = names[0], f"{names[1]} (again)"
    return names[0].replace("$", r"\$"), names[1].replace("$", r"\$")


def _events(run: Path) -> list[Event]:
    events = read_events(RunFolder(run).metrics)
    if not events:
        raise RunError(f"{run}: has no training log (metrics.jsonl), so there are no curves to draw")
    return events


def _draw(panel: Any, events: list[Event], value: Callable[[Event], Any], style: str, label: str, color: int) -> None:
    points: Curve = [
        (event["step"], found)
        for event in events
        if isinstance(event.get("step"), int) and isinstance(found := value(event), int | float)
    ]
    if points:
        panel.plot(*zip(*points, strict=True), style, label=label, color=f"C{color}", markersize=4)


def _training_loss(event: Event) -> Any:
    return event.get("cross_entropy", event.get("loss")) if event.get("event") == "train" else None


def _validation_loss(event: Event) -> Any:
    return event.get("loss") if event.get("event") == "valid" else None


def _learning_rate(event: Event) -> Any:
    return event.get("learning_rate") if event.get("event") == "train" else None


def _score(event: Event) -> Any:
    scores = event.get("scores") if event.get("event") == "valid" else None
    main = next(iter(scores.values()), None) if isinstance(scores, dict) else None
    return main.get("value") if isinstance(main, dict) else None


def _main_metric(events: list[Event]) -> str:
    scores = next((event.get("scores") for event in events if event.get("event") == "valid"), None)
    return next(iter(scores), "") if isinstance(scores, dict) else ""
