"""The CPU cores of this process: how many it may use, and how idle threads wait for work. Imports nothing heavy."""

import os
import sys

# Idle OpenMP threads that spin for long take the cores from threads that work; threads that sleep at once need longer to
# wake up than a small model's products take. Spinning for a few microseconds was 1.6 times faster than either (docs/log.md).
IDLE_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"}


def available_cores() -> int:
    """The number of cores this process may run on where the system says so (Linux), else that of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_refusal(threads: int) -> str:
    """Why this many CPU threads are refused, or an empty string; 0 means one for each core.

    More threads than cores only wait for each other; thousands of them stall the machine or end the process.
    """
    cores = available_cores()
    most = min(1_024, max(64, 4 * cores))
    if threads < 0:
        return f"threads = {threads}: must not be negative"
    if threads > most:
        return f"threads = {threads}: must be at most {most} here (this process can use {cores} cores)"
    return ""


def tune_idle_threads() -> bool:
    """Set how idle OpenMP threads wait for work, unless the environment says so already.

    OpenMP reads these variables once, when torch loads it, so this must be called before torch is imported. Returns whether
    it was; otherwise nothing is changed.
    """
    if "torch" in sys.modules:
        return False
    for name, value in IDLE_THREADS.items():
        os.environ.setdefault(name, value)
    return True
