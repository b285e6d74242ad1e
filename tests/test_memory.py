"""Freed memory kept or returned, each in a process of its own: malloc is asked for good."""

import platform
import subprocess
import sys

import pytest

SHRINKING = """
import sys
from transduce import memory
asked = getattr(memory, sys.argv[1])()
def resident(): return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
before = resident()
large = bytearray(20_000_000)  # freed, it would teach malloc to keep blocks of this size
del large
blocks = [bytearray(b"x" * 400_000) for _ in range(200)]
kept, last = blocks[::50], blocks[-1]
del blocks
print(asked, resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc" or sys.platform != "linux", reason="glibc's malloc on Linux")
@pytest.mark.parametrize(("asked", "least", "most"), [("return_freed_memory", -10, 20), ("keep_freed_memory", 50, 200)])
def test_freed_memory(asked: str, least: float, most: float) -> None:
    done = subprocess.run([sys.executable, "-c", SHRINKING, asked], capture_output=True, text=True, check=True)
    could, grown = done.stdout.split()
    assert could == "True"
    assert least < float(grown) < most
