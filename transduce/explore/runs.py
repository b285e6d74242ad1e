"""The training of a run for the explorer: curves, sample translations, model card, and whether it is running.

Reads the files that training writes, possibly at the same time, and knows nothing else about it.
"""

import math
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from transduce.checkpoint import RunFolder
from transduce.run_lock import is_training
from transduce.run_log import Event, read_events, read_text

MOST_POINTS = 1_500  # of a curve: more than a screen can show


def training_view(run: str | Path) -> dict[str, Any]:
    """Everything logged so far. A folder without a log, such as an imported model, has a model card but no curves."""
    folder = RunFolder(Path(run))
    events = read_events(folder.metrics)
    return {
        "name": folder.path.resolve().name,
        "running": is_training(folder),
        "steps": _thinned([_curve_point(event) for event in events if event.get("event") == "train"]),
        "validations": [_validation(event) for event in events if event.get("event") == "valid"],
        "averaged": [_validation(event) for event in events if event.get("event") == "averaged"][-1:],
        "card": read_text(folder.card),
    }


def training_state(run: str | Path) -> Hashable:
    """What differs from before whenever `training_view` does; it takes no time."""
    folder = RunFolder(Path(run))
    return is_training(folder), _version(folder.metrics), _version(folder.card)


def _version(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:  # a missing file, or one that the view complains about
        return 0, -1
    return found.st_mtime_ns, found.st_size


def _curve_point(event: Event) -> Event:
    """A point of the training curves; the loss is without label smoothing if that was logged, as in validation."""
    names = ("step", "epoch", "learning_rate", "gradient_norm", "tokens_per_second")
    loss = event.get("cross_entropy", event.get("loss"))
    return {name: _number(event.get(name)) for name in names} | {"loss": _number(loss)}


def _validation(event: Event) -> Event:
    return {
        "step": _number(event.get("step")),
        "loss": _number(event.get("loss")),
        "perplexity": _number(event.get("perplexity")),
        "scores": {name: _number(score.get("value")) for name, score in event.get("scores", {}).items()},
        "samples": event.get("samples", []),
    }


def _number(value: Any) -> float | None:
    """A finite number or None: JSON in browsers has no NaN."""
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _thinned(points: list[Event]) -> list[Event]:
    every = math.ceil(len(points) / MOST_POINTS) or 1
    return points[(len(points) - 1) % every :: every]  # the newest point is always included
