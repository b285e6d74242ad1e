"""Decoding in a process of its own: the same sound, nothing that a recording can break, and nothing that it can reach."""

import io
import json
import os
import subprocess
import sys
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


def test_a_process_that_has_ended_is_replaced(decoder: Decoder) -> None:
    decoder(WAV)
    first = decoder._running()
    first.kill()
    first._process.wait()
    assert decoder(WAV).rate == 16_000
    assert decoder._running() is not first


def test_the_process_finds_modules_where_this_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/elsewhere"])  # "" is the working directory, as in `python -c` and notebooks
    assert decoding._environment()["PYTHONPATH"].split(os.pathsep) == [str(Path.cwd()), "/elsewhere"]


# Programs that answer as a process might that a recording has crashed or taken over.
FAULTY = {
    "crashes": "import os; sys.stdin.buffer.read(9); os.abort()",
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
    decoder = Decoder(LIMITS, timeout_s=1.0)
    (tmp_path / "program.py").write_text(
        f"import sys\nprint('ready', flush=True)\n{program}\nsys.stdout.flush()\nsys.stdin.buffer.read()\n"
    )
    with monkeypatch.context() as faulty:
        faulty.setattr(decoding, "PROGRAM", tmp_path / "program.py")
        with pytest.raises(UploadError) as refused:
            decoder(WAV)
    assert (refused.value.reason, refused.value.problem) == ("broken", DAMAGED)
    decoder.timeout_s = 60.0
    assert decoder(WAV).rate == 16_000
    decoder.close()


@pytest.mark.parametrize("program", ["raise ImportError", "print('{}')", "import time; time.sleep(600)"])
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
import json, socket
from transduce.server.decoding_process import address_space, confine, decode_silence, limit_memory
decode_silence()
used = address_space()
confine()
found = {"address space": used}
for name, attempt in (
    ("read", lambda: open("/etc/hostname")),
    ("write", lambda: open("/tmp/transduce-test-of-decoding", "w")),
    ("connect", lambda: socket.socket()),
):
    try:
        attempt()
    except OSError as error:
        found[name] = error.strerror
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
