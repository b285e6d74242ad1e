"""Settings of glibc's malloc: whether freed memory is kept for reuse or returned to the system."""

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Have glibc reuse large blocks rather than return them to the system; whether it could be asked.

    By default every tensor of some size is new memory, whose pages the kernel clears at first touch: a third of a
    small model's training step (docs/log.md). The process then keeps the memory of its largest step.
    """
    highest = _ask(MMAP_THRESHOLD, 1 << 30) or _ask(MMAP_THRESHOLD, 1 << 25)  # older ones refuse more
    return highest and _ask(TRIM_THRESHOLD, (1 << 31) - 1)


def return_freed_memory() -> bool:
    """Have glibc return large blocks to the system, for a process that lives long; whether it could be asked.

    By default it learns from large blocks to keep them, for every thread apart.
    """
    return _ask(MMAP_THRESHOLD, 1 << 18) and _ask(TRIM_THRESHOLD, 1 << 20) and _ask(ARENA_MAX, 2)


def _ask(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).mallopt(option, value))
    except (AttributeError, OSError, TypeError):  # another C library
        return False
