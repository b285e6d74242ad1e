"""The CPU cores of this process: how many it may use, and how idle threads wait for work. Fast to import.

Also what CUDA's libraries must find in the environment before they start.
"""

import os
import sys

# Idle OpenMP threads that spin for long take cores from threads that work; threads that sleep at once take longer to wake up
# than a small model's products take to compute. Spinning for a few microseconds was 1.6 times faster than either (docs/log.md).
IDLE_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"}

# cuDNN's recurrent layers give the same bits in every run only if cuBLAS has a workspace of a fixed size, which it reads when
# it starts. This one is as large as PyTorch's own on current GPUs.
REPEATABLE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def available_cores() -> int:
    """The number of cores that this process may use, where the system reports it (Linux); otherwise all cores."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_refusal(threads: int) -> str:
    """Why this number of CPU threads is refused, or an empty string; 0 means one thread per core.

    More threads than cores only wait for each other; thousands of them stall the machine or crash the process.
    """
    cores = available_cores()
    most = min(1_024, max(64, 4 * cores))
    if threads < 0:
        return f"threads = {threads}: must not be negative"
    if threads > most:
        return f"threads = {threads}: must be at most {most} (this process can use {cores} cores)"
    return ""


def tune_idle_threads() -> bool:
    """Set how idle OpenMP threads wait for work, unless the environment already does.

    OpenMP reads these variables once, when torch loads it, so call this before importing torch. Returns False, and changes
    nothing about threads, if torch is already imported. cuBLAS reads its variable later, when the GPU is first used.
    """
    for name, value in REPEATABLE.items():
        os.environ.setdefault(name, value)
    if "torch" in sys.modules:
        return False
    for name, value in IDLE_THREADS.items():
        os.environ.setdefault(name, value)
    return True
