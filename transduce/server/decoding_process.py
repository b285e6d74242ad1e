"""The program of the decoding process: it starts a process of its own for each recording, which decodes that one and ends.

First, it loads what decoding needs, and writes the line `ready`. Its standard input is a socket, through which it receives other sockets.
For each it forks. When it then receives a byte, it ends the new process and writes the line `ended`. It reads no recording itself, so the
memory that it shares with the new processes has nothing of any client.

The new process has one socket, and gives up what decoding does not need: it can open no file and no connection. A recording arrives as
its size in eight bytes, and its bytes. The answer is a line of JSON, either `{"samples": n, "rate": r}`, which n floats follow, or
`{"reason": ..., "problem": ...}`. Its memory is limited. `transduce/server/decoding.py` starts this program.
"""

import gc
import json
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from transduce.audio.soundfiles import soundfile
from transduce.audio.uploads import RATES, Sound, UploadError, UploadLimits, decode

READY, ENDED = b"ready\n", b"ended\n"
SLACK_BYTES = 1 << 28  # for what libsndfile needs besides the recording and its samples
DESCRIPTORS = 1 << 10  # more than this program has open


def main() -> None:
    limits = UploadLimits(float(sys.argv[1]), tuple(sys.argv[2:]))
    decode_silence()  # so that everything is loaded that needs to open a file
    used = address_space()
    gc.freeze()  # so that collecting garbage copies no memory that the processes share
    control = socket.socket(fileno=0)
    send(READY)
    while received := receive_socket(control):
        process = fork(received, used, limits)
        control.recv(1)  # nothing, if the server has ended
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        send(ENDED)


def receive_socket(control: socket.socket) -> int:
    """The descriptor of a socket; 0 at the end."""
    _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    return descriptors[0] if descriptors else 0


def fork(received: int, used: int, limits: UploadLimits) -> int:
    """The number of a process that decodes the recording of this socket."""
    if process := os.fork():
        os.close(received)
        return process
    with suppress(BaseException):  # whatever it is, this process must not go on as the other one
        own_only(received)
        confine()
        decode_recording(used, limits)
    os._exit(0)


def own_only(received: int) -> None:
    """Standard input and output become the socket; every other descriptor is closed."""
    for number in (0, 1):
        os.dup2(received, number)
    os.closerange(3, DESCRIPTORS)


def decode_recording(used: int, limits: UploadLimits) -> None:
    size = int.from_bytes(sys.stdin.buffer.read(8), "big")
    if used:  # before the recording is read, which may be large
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
    """No new files, connections or processes, nothing written, no core dump: even a recording that takes over libsndfile gets no further."""
    nothing = (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC)
    for what, most in (*((one, 0) for one in nothing), (resource.RLIMIT_NOFILE, 3)):
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
