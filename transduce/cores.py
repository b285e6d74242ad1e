"""How many cores this process may use, on any system, and how many threads make sense. Imports nothing heavy."""

import os


def available_cores() -> int:
    """The cores this process is allowed to run on, if the system tells (Linux does), else all cores of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_refusal(threads: int) -> str:
    """Why this many CPU threads are refused, or nothing; 0 stands for one per core.

    More threads than cores only wait for each other; thousands of them stop the machine, or end the process.
    """
    cores = available_cores()
    most = min(1_024, max(64, 4 * cores))
    if threads < 0:
        return f"threads = {threads}: must not be negative"
    if threads > most:
        return f"threads = {threads}: must be at most {most} here (this process can use {cores} cores)"
    return ""
