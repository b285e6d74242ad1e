"""Runs on disk, and the environment that matters for a bug report."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.cores import tune_idle_threads

if TYPE_CHECKING:
    from transduce.tracking import Cleaning, RunDifference, RunStatus


def runs(folder: str | Path = ".") -> "list[RunStatus]":
    """The runs in and below a folder: data, size, progress, best score with its signature, state and disk space.

    A run that cannot be read is listed with the state "broken" and the reason.

    Example:
        >>> [(run.run, run.state, run.score) for run in transduce.runs("runs")]
        [('runs/en-de', 'finished', 37.9)]
    """
    from transduce.tracking import list_runs

    return list_runs(folder)


def run_difference(one: str | Path, other: str | Path, *, picture: str | Path = "") -> "RunDifference":
    """The settings and the data in which two runs differ.

    Args:
        one: A run folder.
        other: Another run folder.
        picture: Also draw the learning curves of both runs to this .png, .pdf or .svg file.

    Example:
        >>> transduce.run_difference("runs/a", "runs/b", picture="curves.png").settings
        {'model.dropout': (0.1, 0.3)}
    """
    from transduce.explore import check_picture_path
    from transduce.tracking import draw_difference
    from transduce.tracking import run_difference as compare_runs

    path = check_picture_path(picture) if picture else None
    found = compare_runs(one, other)
    if path is not None:
        draw_difference(one, other, path)
    return found


def clean(
    folder: str | Path = ".",
    *,
    checkpoints: bool = False,
    agree: "Callable[[Cleaning], bool] | None" = None,
) -> "Cleaning":
    """Find what the cache and the runs under a folder hold that no run needs, and remove it if `agree` returns True.

    Args:
        folder: The folder of the runs. Runs elsewhere that have used the cache keep what they need too.
        checkpoints: Include the last checkpoints of finished runs, which are needed only to train them further.
        agree: Called with what was found, if anything can be removed. Without it, nothing is removed.

    Returns:
        What the cache and the checkpoints take, what can be removed, and what was removed.

    Example:
        >>> transduce.clean("runs", agree=lambda found: True).removed
    """
    from transduce.tracking import clean as clean_runs

    return clean_runs(folder, checkpoints=checkpoints, agree=agree or (lambda found: False))


def report() -> dict[str, Any]:
    """The versions, processors and settings of the environment that matter for a bug report, without paths and names.

    Example:
        >>> transduce.report()["torch"]
        '2.13.0'
    """
    tune_idle_threads()
    from transduce.environment import environment

    return environment()
