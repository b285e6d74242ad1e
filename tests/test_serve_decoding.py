"""Decoding in a process for each recording: the same sound, nothing that it can break or reach, and nothing left of it."""

import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("soundfile")

import soundfile

from transduce.audio.uploads import DAMAGED, UploadError, UploadLimits, decode
from transduce.server import decoding
from transduce.server.decoding import Decoder, DecoderNotStarted
from transduce.server.decoding_process import address_space

LIMITS = UploadLimits(10.0)
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system has no /proc")


def encoded(rate: int = 16_000, kind: str = "WAV", channels: int = 1) -> bytes:
    file = io.BytesIO()
    sound = np.random.default_rng(0).uniform(-0.5, 0.5, (rate, channels)).astype(np.float32)
    soundfile.write(file, sound, rate, format=kind)
    return file.getvalue()


WAV = encoded()


@pytest.fixture
def decoder() -> Any:
    made = Decoder(LIMITS, timeout_s=60.0)
    yield made
    made.close()


def test_the_sound_is_that_of_decoding_here(decoder: Decoder) -> None:
    for recording in (WAV, encoded(44_100, "FLAC", 2), encoded(48_000, "OGG"), encoded(192_000, "WAV", 8)):
        sound, expected = decoder(recording), decode(recording, LIMITS)
        assert sound.rate == expected.rate
        np.testing.assert_array_equal(sound.samples, expected.samples)


def test_refusals_are_those_of_decoding_here(decoder: Decoder) -> None:
    for recording in (b"", b"text" * 99, WAV[:500], encoded(16_000, "WAV", 33)):
        with pytest.raises(UploadError) as here:
            decode(recording, LIMITS)
        with pytest.raises(UploadError) as there:
            decoder(recording)
        assert (there.value.reason, str(there.value)) == (here.value.reason, str(here.value))
    assert decoder(WAV).rate == 16_000


def test_an_answer_counts_that_comes_before_all_is_sent() -> None:
    """Nothing follows the size of an empty recording, so the other process may have answered and ended."""
    ours, theirs = socket.socketpair()

    class Slow:
        def sendall(self, content: bytes) -> None:
            ours.sendall(content)
            with suppress(OSError):  # it is closed by the first call
                theirs.recv(8)
                theirs.sendall(b'{"reason": "empty", "problem": "it has no bytes"}\n')
                theirs.close()

        def makefile(self, mode: str) -> Any:
            return ours.makefile(mode)

    with ours, pytest.raises(UploadError, match="no bytes"):
        decoding._decoded(b"", Slow(), LIMITS)  # type: ignore[arg-type]


def test_a_process_that_has_ended_is_replaced(decoder: Decoder) -> None:
    decoder(WAV)
    first = decoder._running()
    first._process.kill()
    first._process.wait()
    assert decoder(WAV).rate == 16_000
    assert decoder._running() is not first


def test_the_process_finds_modules_where_this_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/elsewhere"])  # "" is the working directory, as in `python -c` and notebooks
    assert decoding._environment()["PYTHONPATH"].split(os.pathsep) == [str(Path.cwd()), "/elsewhere"]


def write_program(path: Path, faulty: str, before: str = "", longest: int = 9) -> Path:
    """The program, with other code for recordings of up to so many bytes."""
    path.write_text(
        f"""
import os, sys
from transduce.server import decoding_process

decodes = decoding_process.decode_recording
{before}

def decode_recording(used, limits):
    if int.from_bytes(sys.stdin.buffer.peek()[:8], "big") > {longest}:
        return decodes(used, limits)
    {faulty}
    sys.stdout.flush()
    sys.stdin.buffer.read()

decoding_process.decode_recording = decode_recording
decoding_process.main()
"""
    )
    return path


# What a process might answer that a recording has crashed or taken over.
FAULTY = {
    "crashes": "sys.stdin.buffer.read(9); os.abort()",
    "ends in the middle": 'print(\'{"samples": 16000, "rate": 16000}\\n1234\')',
    "never answers": "import time; time.sleep(600)",
    "writes without end": "while True: sys.stdout.write('x' * 9999)",
    "is no JSON": "print('{')",
    "is no object": "print('[]')",
    "nests without end": "print('[' * 998)",
    "promises weeks": 'print(\'{"samples": 1000000000000, "rate": 16000}\')',
    "promises less than nothing": 'print(\'{"samples": -5, "rate": 16000}\')',
    "has an odd rate": 'print(\'{"samples": 5, "rate": 1}\')',
    "has an odd reason": 'print(\'{"reason": [], "problem": "x"}\')',
    "has lines in its message": 'print(\'{"reason": "broken", "problem": "a\\\\nb"}\')',
}


@pytest.mark.parametrize("program", FAULTY.values(), ids=FAULTY)
def test_a_process_that_fails_costs_its_own_recording_only(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = Decoder(LIMITS, timeout_s=60.0)
    with monkeypatch.context() as faulty:
        faulty.setattr(decoding, "PROGRAM", write_program(tmp_path / "program.py", program))
        assert decoder(WAV).rate == 16_000
        first, decoder.timeout_s = decoder._running(), 1.0
        with pytest.raises(UploadError) as refused:
            decoder(b"faulty")
    assert (refused.value.reason, refused.value.problem) == ("broken", DAMAGED)
    decoder.timeout_s = 60.0
    assert decoder(WAV).rate == 16_000
    assert decoder._running() is first
    decoder.close()


@pytest.mark.parametrize(
    "program",
    [
        "raise ImportError",
        "print('{}')",
        "import time; time.sleep(600)",
        "import os; print('ready', flush=True); os.read(0, 1)",  # it ends while a recording is decoded
    ],
)
def test_no_recording_is_blamed_for_a_process_that_does_not_start(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = Decoder(LIMITS, timeout_s=1.0)
    (tmp_path / "program.py").write_text(program)
    with monkeypatch.context() as faulty:
        faulty.setattr(decoding, "PROGRAM", tmp_path / "program.py")
        with pytest.raises(DecoderNotStarted):
            decoder(WAV)
    decoder.timeout_s = 60.0
    assert decoder(WAV).rate == 16_000
    decoder.close()


def test_the_process_can_open_nothing_and_take_no_more_memory_than_it_needs() -> None:
    program = """
import json, os, socket
from transduce.server.decoding_process import address_space, confine, decode_silence, limit_memory
decode_silence()
used, itself = address_space(), os.getpid()
confine()
found = {"address space": used}
for name, attempt in (
    ("read", lambda: open("/etc/hostname")),
    ("write", lambda: open("/tmp/transduce-test-of-decoding", "w")),
    ("connect", lambda: socket.socket()),
    ("fork", os.fork),
):
    try:
        attempt()
    except OSError as error:
        found[name] = error.strerror
    else:
        name == "fork" and os.getpid() != itself and os._exit(0)
if used:
    limit_memory(used + (1 << 28))
    try:
        bytes(1 << 30)
    except MemoryError:
        found["memory"] = "refused"
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert {found[name] for name in ("read", "write", "connect")} == {"Too many open files"}
    assert os.getuid() == 0 or "fork" in found, "root may have any number of processes"
    if found["address space"]:
        assert found["memory"] == "refused"


def test_a_recording_may_be_much_larger_than_the_one_before(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "from transduce.server import decoding_process\ndecoding_process.SLACK_BYTES = 1 << 25\ndecoding_process.main()"
    )
    (tmp_path / "program.py").write_text(program)
    monkeypatch.setattr(decoding, "PROGRAM", tmp_path / "program.py")
    size = 1 << 26
    large = WAV[:12] + b"junk" + size.to_bytes(4, "little") + bytes(size) + WAV[12:]
    assert decoder(WAV).rate == 16_000
    assert decoder(large).rate == 16_000


# --- nothing is shared, nothing is left --------------------------------------------------------------------------


def session(leader: int) -> set[int]:
    """The processes of a session, zombies too."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            fields = path.read_text().rpartition(")")[2].split()
            found |= {int(path.parent.name)} if int(fields[3]) == leader else set()
    return found


def open_files(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


LOOKS_AROUND = """
import numpy
seen = []

def is_open(number):
    try:
        return bool(os.fstat(number))
    except OSError:
        return False

def look_around():
    found = os.getpid(), sum(is_open(number) for number in range(99)), len(seen)
    seen.append(sys.stdin.buffer.read(9))
    decoding_process.send_sound(decoding_process.Sound(numpy.array(found, "f"), 16_000))
"""


def test_each_recording_has_a_process_that_knows_of_no_other(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a number of its own, three open files, and nothing in its memory that the process of another one has written there."""
    written = write_program(tmp_path / "program.py", "look_around()", LOOKS_AROUND)
    monkeypatch.setattr(decoding, "PROGRAM", written)
    found = [decoder(b"any").samples.tolist() for _ in range(3)]
    assert len({process for process, _, _ in found} | {decoder._running()._process.pid}) == 4
    assert [rest for _, *rest in found] == [[3, 0]] * 3


@needs_proc
def test_many_recordings_leave_no_processes_and_no_open_files(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "PROGRAM", write_program(tmp_path / "program.py", FAULTY["crashes"]))
    decoder(WAV)
    program = decoder._running()._process.pid
    before = open_files(os.getpid()), open_files(program)
    for number in range(60):
        with suppress(UploadError):
            decoder((WAV, WAV[:500], b"crash")[number % 3])
        assert session(program) == {program}
    assert (open_files(os.getpid()), open_files(program)) == before
    wait_until(lambda: not any(getattr(one, "function", None) is decoding._shut_down for one in threading.enumerate()))
    decoder.close()
    assert not session(program)
    assert open_files(os.getpid()) == before[0] - 1


@needs_proc
def test_a_server_that_is_killed_leaves_no_processes(tmp_path: Path) -> None:
    written = write_program(tmp_path / "program.py", "while True: pass")
    server = (
        "import sys, threading\nfrom pathlib import Path\nfrom transduce.server import decoding\n"
        f"decoding.PROGRAM = Path({str(written)!r})\n"
        "decoder = decoding.Decoder(decoding.UploadLimits(10.0), 60.0)\n"
        "program = decoder._running()\nprint(program._process.pid, flush=True)\ndecoder(b'any')\n"
    )
    with subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout
        program = int(killed.stdout.readline())
        wait_until(lambda: len(session(program)) == 2)
        killed.kill()
    wait_until(lambda: not session(program))


def wait_until(is_true: Callable[[], bool]) -> None:
    for _ in range(6_000):
        if is_true():
            return
        time.sleep(0.01)
    raise AssertionError("still not true after a minute")


def test_the_limit_on_memory_stays_within_that_of_the_server() -> None:
    if not address_space():  # the system does not say, so no limit is set
        return
    program = """
import resource
from transduce.server.decoding_process import limit_memory
resource.setrlimit(resource.RLIMIT_AS, (1 << 34, 1 << 34))
for most in (1 << 33, 1 << 35):
    limit_memory(most)
    print(resource.getrlimit(resource.RLIMIT_AS)[0])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [int(line) for line in done.stdout.split()] == [1 << 33, 1 << 34]
