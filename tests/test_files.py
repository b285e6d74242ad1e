"""Files are read only where they are plain files: a FIFO, socket, device or folder in their place is refused at once."""

import os
import shutil
from pathlib import Path

import pytest

import transduce
from transduce.errors import TransduceError
from transduce.files import open_plain, read_plain

FROZEN = Path(__file__).parent / "frozen" / "0.1.0"
NEVER_WAITS = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")


def test_a_plain_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with open_plain(tmp_path / "file") as file:
        assert file.read() == b"content"
    assert read_plain(tmp_path / "link", most=7) == b"content"


@NEVER_WAITS
def test_what_is_no_plain_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        open_plain(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        open_plain("/dev/null")
    with pytest.raises(IsADirectoryError):
        open_plain(tmp_path)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with pytest.raises(OSError, match="larger than 6 bytes"):
        read_plain(tmp_path / "file", most=6)


@NEVER_WAITS
@pytest.mark.parametrize("name", ["config.toml", "source.spm", "target.spm"])
def test_a_fifo_in_a_model_folder_is_refused(name: str, tmp_path: Path) -> None:
    """Opened as a file is, it would wait for a writer forever, and a server with it."""
    run = shutil.copytree(FROZEN, tmp_path / "run")
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(TransduceError):
        transduce.load(run)
