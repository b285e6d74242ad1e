"""Keeping track of runs: what runs there are, where two of them differ, and which files no run needs any more."""

from transduce.tracking.cleaning import Cleaning, Removable, clean
from transduce.tracking.difference import RunDifference, draw_difference, run_difference
from transduce.tracking.in_progress import progress_note, refuse_untrained
from transduce.tracking.listing import RunState, RunStatus, find_runs, list_runs

__all__ = [
    "Cleaning",
    "Removable",
    "RunDifference",
    "RunState",
    "RunStatus",
    "clean",
    "draw_difference",
    "find_runs",
    "list_runs",
    "progress_note",
    "refuse_untrained",
    "run_difference",
]
