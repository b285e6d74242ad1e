"""Messages about runs that are still being trained, or were stopped before the end of their budget."""

from pathlib import Path

from transduce.checkpoint import RunFolder
from transduce.errors import RunError, TransduceError
from transduce.run_lock import is_training
from transduce.run_log import last_events
from transduce.tracking.listing import is_finished, steps_of


def refuse_untrained(run: str | Path) -> None:
    """Refuse a run that is being trained and has no weights yet."""
    folder = RunFolder(Path(run))
    if not _has_weights(folder) and is_training(folder):
        raise RunError(
            f"{run}: training is in progress{_step(folder)} and has saved no weights yet: wait for its first checkpoint"
        )


def progress_note(run: str | Path) -> str:
    """A line about a run whose training has not finished; empty for a finished one, and for a log that cannot be read."""
    folder = RunFolder(Path(run))
    try:
        if not folder.config.exists() or not _has_weights(folder) or is_finished(folder):
            return ""
        if is_training(folder):
            return f"{run}: training is in progress{_step(folder)}; these are its weights so far"
        return f"{run}: training was stopped{_step(folder)} before the end of its budget; `transduce train {run}` resumes it"
    except TransduceError:
        return ""


def _has_weights(folder: RunFolder) -> bool:
    return any(folder.weights(which).exists() for which in ("best", "last"))


def _step(folder: RunFolder) -> str:
    steps = steps_of(last_events(folder.metrics))
    return f" (step {max(steps):,})" if steps else ""
