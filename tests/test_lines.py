"""Lines as they come through a pipe: every one whole, and none waits for the next."""

import os
import random
import threading
import time
from collections.abc import Iterator

import pytest

from transduce.cli.lines import Arriving


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)


@pytest.mark.parametrize("text", [b"", b"\n", b"one", b"one\ntwo\n", b"\n\nthree\r\nfour", b"x" * 200_000 + b"\ny\n"])
@pytest.mark.parametrize("seed", [1, 2])
def test_lines_are_whole_however_they_are_sent(pipe: tuple[int, int], text: bytes, seed: int) -> None:
    read, write = pipe

    def send() -> None:
        draw, at = random.Random(seed), 0
        while at < len(text):
            at += os.write(write, text[at : at + draw.randint(1, 3 if len(text) < 100 else 70_000)])
        os.close(write)

    thread = threading.Thread(target=send)
    thread.start()
    assert list(iter(Arriving(read).readline, b"")) == text.splitlines(keepends=True)
    thread.join()


def test_a_pause_is_noticed_and_an_end_is_none(pipe: tuple[int, int]) -> None:
    read, write = pipe
    assert Arriving.fits(read)
    lines = Arriving(read)
    assert lines.paused()
    os.write(write, b"one\ntwo\nthr")
    assert not lines.paused()
    assert [lines.readline(), lines.readline()] == [b"one\n", b"two\n"]
    assert lines.paused(), "half a line is none"
    os.write(write, b"ee")
    threading.Timer(0.02, os.close, [write]).start()
    time.sleep(0.1)
    assert not lines.paused()
    assert [lines.readline(), lines.readline()] == [b"three", b""]
    assert not lines.paused()


def test_files_are_read_as_files(tmp_path: os.PathLike[str]) -> None:
    with open(os.path.join(tmp_path, "file"), "wb") as file:
        assert not Arriving.fits(file.fileno())
