"""Settings of glibc's malloc: whether freed memory is kept for reuse or returned to the system."""

import ctypes

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


def _mallopt(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).mallopt(option, value))
    except (AttributeError, OSError, TypeError):  # another C library
        return False
