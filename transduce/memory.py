"""The memory of this process: how much it uses and may use, and whether malloc keeps what is freed.

Knows Linux and glibc; elsewhere, figures that cannot be read are 0 or taken from `resource`.
"""

import ctypes
import os
import re
import resource
import sys
from pathlib import Path

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # from glibc's malloc.h


def keep_freed_memory() -> bool:
    """Make glibc reuse large blocks instead of returning them to the system; returns whether that was possible.

    By default, every large tensor is new memory whose pages the kernel clears on first access, which took a third of a
    small model's training step (docs/log.md). With this setting the process keeps the memory of its largest step.
    """
    highest = _mallopt(MMAP_THRESHOLD, 1 << 30) or _mallopt(MMAP_THRESHOLD, 1 << 25)  # older versions refuse more
    return highest and _mallopt(TRIM_THRESHOLD, (1 << 31) - 1)


def return_freed_memory() -> bool:
    """Make glibc return large blocks to the system, for long-running processes; returns whether that was possible.

    By default, glibc starts to keep large blocks after it has seen some, separately for every thread.
    """
    return _mallopt(MMAP_THRESHOLD, 1 << 18) and _mallopt(TRIM_THRESHOLD, 1 << 20) and _mallopt(ARENA_MAX, 2)


def peak_resident() -> int:
    """The largest resident size of this process so far, in bytes; see `restart_peak`."""
    if found := re.search(r"^VmHWM:\s+(\d+) kB", _text("/proc/self/status"), re.M):
        return int(found[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def restart_peak() -> None:
    """Return freed memory to the system, and measure the peak from now on; does nothing where the system cannot."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (AttributeError, OSError, TypeError):
        return


def memory_limit() -> int:
    """The memory that this process may use, in bytes: that of the machine, or less in a container; 0 if unknown."""
    machine = _number(re.search(r"^MemTotal:\s+(\d+) kB", _text("/proc/meminfo"), re.M)) * 1024
    if not machine and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    container = _number(re.match(r"(\d+)$", _text("/sys/fs/cgroup/memory.max").strip()))
    return min(machine, container) if machine and container else machine


def _number(found: "re.Match[str] | None") -> int:
    return int(found[1]) if found else 0


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _mallopt(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).mallopt(option, value))
    except (AttributeError, OSError, TypeError):  # another C library
        return False
