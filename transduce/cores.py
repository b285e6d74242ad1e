"""How many cores this process may use, on any system. Imports nothing heavy."""

import os


def available_cores() -> int:
    """Those this process may run on, where the system tells (Linux); otherwise all of the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
