"""Keeping track of runs: what runs there are, where two of them differ, and which files no run needs any more."""

from transduce.tracking.difference import RunDifference, draw_difference, run_difference
from transduce.tracking.listing import RunState, RunStatus, find_runs, list_runs

__all__ = ["RunDifference", "RunState", "RunStatus", "draw_difference", "find_runs", "list_runs", "run_difference"]
