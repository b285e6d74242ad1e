"""Messages about runs that are still being trained, or were stopped before the end of their budget."""

from pathlib import Path

from transduce.checkpoint import RunFolder, read_about, steps_saved
from transduce.errors import RunError, TransduceError
from transduce.run_lock import is_training
from transduce.run_log import last_events
from transduce.tracking.listing import is_finished, steps_of
from transduce.translator import better_weights

_NAMED = {"best": "the best weights", "last": "the last weights", "averaged": "the averaged weights"}


def refuse_untrained(run: str | Path) -> None:
    """Refuse a run that is being trained and has no weights yet."""
    folder = RunFolder(Path(run))
    if not _has_weights(folder) and is_training(folder):
        raise RunError(
            f"{run}: training is in progress{_step(folder)} and has saved no weights yet: wait for its first checkpoint"
        )


def progress_note(run: str | Path, weights: str = "auto") -> str:
    """A line about a run whose training has not finished, and the step of the weights that are used.

    Empty for a finished run, and for a log that cannot be read.
    """
    folder = RunFolder(Path(run))
    try:
        if not folder.config.exists() or not _has_weights(folder) or is_finished(folder):
            return ""
        which = better_weights(folder) if weights == "auto" else weights
        if is_training(folder):
            return (
                f"{run}: training is in progress{_step(folder)}; these are {_NAMED[which]} so far{_of(folder, which)}"
            )
        resumes = f"; `transduce train {run}` resumes it" if steps_saved(folder) else ""
        return (
            f"{run}: training was stopped{_step(folder)} before the end of its budget; "
            f"these are {_NAMED[which]}{_of(folder, which)}{resumes}"
        )
    except TransduceError:
        return ""


def _has_weights(folder: RunFolder) -> bool:
    return any(folder.weights(which).exists() for which in ("best", "last"))


def _step(folder: RunFolder) -> str:
    """The newest step that the log or a checkpoint names: training also saves where it is stopped, which logs nothing."""
    steps = [*steps_of(last_events(folder.metrics)), *steps_saved(folder)]
    return f" (step {max(steps):,})" if steps else ""


def _of(folder: RunFolder, which: str) -> str:
    """The step that these weights are of; empty if their file does not say."""
    step = read_about(folder.weights(which)).get("step", "")
    return f", of step {int(step):,}" if step.isdigit() else ""
