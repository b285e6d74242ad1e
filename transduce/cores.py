"""The CPU cores of this process: how many it may use, and how idle threads wait for work. Fast to import.

Also what CUDA's libraries must find in the environment before they start.
"""

import math
import os
import sys
from pathlib import Path

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # "QUOTA PERIOD" in a container with a limit, else "max PERIOD" or no file

# Idle OpenMP threads that spin for long take cores from threads that work; threads that sleep at once take longer to wake up
# than a small model's products take to compute. Spinning for a few microseconds was 1.6 times faster than either (docs/log.md).
IDLE_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"}

# cuDNN's recurrent layers give the same bits in every run only if cuBLAS has a workspace of a fixed size, which it reads when
# it starts. This one is as large as PyTorch's own on current GPUs.
REPEATABLE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def available_cores() -> int:
    """The number of cores that this process may use, where the system reports it (Linux); otherwise all cores.

    A container with a CPU limit still sees every core of its machine, and a thread for each would be slowed down.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _container_cores() or cores)


def _container_cores() -> int:
    """The CPU limit of the container in whole cores, rounded up; 0 if there is none."""
    try:
        quota, period = CPU_QUOTA.read_text().split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError):  # "max" is no number
        return 0


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
    fix_workspace()
    if "torch" in sys.modules:
        return False
    for name, value in IDLE_THREADS.items():
        os.environ.setdefault(name, value)
    return True


def fix_workspace() -> None:
    """Set the size of cuBLAS's workspace, unless the environment already does; call this before the GPU is first used."""
    for name, value in REPEATABLE.items():
        os.environ.setdefault(name, value)
