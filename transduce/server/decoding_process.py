"""The program of the decoding process: a recording in, its samples out, until standard input ends.

First, the process gives up what decoding does not need, so that it can open no file and no connection, and writes the line `ready`. A
recording arrives as its size in eight bytes, and its bytes. The answer is a line of JSON, either `{"samples": n, "rate": r}`, which n
floats follow, or `{"reason": ..., "problem": ...}`. Memory is limited for each recording. `transduce/server/decoding.py` starts it.
"""

import json
import resource
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from transduce.audio.soundfiles import soundfile
from transduce.audio.uploads import RATES, Sound, UploadError, UploadLimits, decode

READY = b"ready\n"
SLACK_BYTES = 1 << 28  # for what libsndfile needs besides the recording and its samples


def main() -> None:
    limits = UploadLimits(float(sys.argv[1]), tuple(sys.argv[2:]))
    decode_silence()  # so that everything is loaded that needs to open a file
    used = address_space()
    confine()
    send(READY)
    while header := sys.stdin.buffer.read(8):
        size = int.from_bytes(header, "big")
        if used:  # before the recording is read: it may be larger than the one that the last limit was for
            limit_memory(used + SLACK_BYTES + 2 * size + round(8 * limits.seconds * RATES[1]))
        answer(sys.stdin.buffer.read(size), limits)


def decode_silence() -> None:
    file = BytesIO()
    soundfile().write(file, np.zeros(8_000, np.float32), 8_000, format="WAV")
    decode(file.getvalue(), UploadLimits(10.0))


def address_space() -> int:
    """The bytes of addresses in use; 0 where the system does not say."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    return 0


def confine() -> None:
    """No new files or connections, nothing written, no core dump: even a recording that takes over libsndfile gets no further."""
    for what, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NOFILE, 3)):
        resource.setrlimit(what, (most, most))


def limit_memory(most: int) -> None:
    """Allow so many bytes of addresses, or as many as the limit allows that the server was started with (`ulimit -v`)."""
    _, highest = resource.getrlimit(resource.RLIMIT_AS)
    allowed = most if highest == resource.RLIM_INFINITY else min(most, highest)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, highest))


def answer(content: bytes, limits: UploadLimits) -> None:
    try:
        sound = decode(content, limits)
    except UploadError as error:
        send(as_line({"reason": error.reason, "problem": error.problem}))
    else:
        send_sound(sound)


def send_sound(sound: Sound) -> None:
    send(as_line({"samples": len(sound.samples), "rate": sound.rate}))
    send(sound.samples.data.cast("B"))


def as_line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def send(content: bytes | memoryview) -> None:
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
