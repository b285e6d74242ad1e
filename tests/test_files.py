"""Files are read only where they are plain files: a FIFO, socket, device or folder in their place is refused at once."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import transduce
from transduce.checkpoint import RunFolder
from transduce.errors import DamagedFile, SettingError, TransduceError
from transduce.files import check_place, open_plain, read_plain, write_result
from transduce.translator import read_config, write_config

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


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.files.os.access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(SettingError, match=r"file: cannot be written .*: give another place"):
        check_place(tmp_path / "file")
    (tmp_path / "file").touch()
    check_place(tmp_path / "file")


def test_a_result_is_written_whole_or_an_older_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("older")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_result(tmp_path / "link", "newer")
    assert ((tmp_path / "file").read_text(), (tmp_path / "file").stat().st_mode & 0o777) == ("newer", 0o640)

    def full(path: Path, content: bytes) -> None:
        path.write_bytes(content[:2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("transduce.files.write_durably", full)
    with pytest.raises(SettingError, match=r"file: cannot be written \(No space left on device\): free some space"):
        write_result(tmp_path / "file", "newest")
    assert (tmp_path / "file").read_text() == "newer"
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}


@NEVER_WAITS
def test_a_result_can_go_to_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    write_result(tmp_path / "fifo", "text")
    assert os.read(reader, 9) == b"text"
    os.close(reader)
    assert (tmp_path / "fifo").is_fifo()
    write_result("/dev/null", "text")


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with pytest.raises(OSError, match="larger than 6 bytes"):
        read_plain(tmp_path / "file", most=6)


@NEVER_WAITS
@pytest.mark.parametrize("name", ["config.toml", "source.spm", "target.spm", "best.safetensors"])
def test_a_fifo_in_a_model_folder_is_refused(name: str, tmp_path: Path) -> None:
    """Opened as a file is, it would wait for a writer forever, and a server with it."""
    run = shutil.copytree(FROZEN, tmp_path / "run")
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(TransduceError):
        transduce.load(run)


# --- config.toml -----------------------------------------------------------------------------------------------


def a_run(tmp_path: Path, **model: object) -> RunFolder:
    """A copy of the frozen folder whose settings are written by this version."""
    folder = RunFolder(Path(shutil.copytree(FROZEN, tmp_path / "run")))
    config = read_config(folder)
    write_config(folder, replace(config, model=replace(config.model, **model)))  # type: ignore[arg-type]
    return folder


@pytest.mark.parametrize(
    ("before", "after"),
    [("num_heads = 2", "num_heads = 1"), ("beam = ", "beam = 1"), ("alpha = ", "alpha = -"), ("seed = 1", "seed = 3")],
)
def test_altered_settings_are_refused(tmp_path: Path, before: str, after: str) -> None:
    """Each would translate or train otherwise, and none changes the shape of a weight."""
    folder = a_run(tmp_path)
    text = folder.config.read_text()
    assert before in text
    folder.config.write_text(text.replace(before, after, 1))
    with pytest.raises(DamagedFile, match=r"config\.toml: modified or incomplete .* delete its first line"):
        transduce.load(folder.path)


def test_a_torn_configuration_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    """Also between two settings, where the rest would be defaults."""
    folder = a_run(tmp_path)
    text = folder.config.read_text()
    for end in range(len(text.partition("\n")[0]) + 1, len(text) - 1, 7):
        folder.config.write_text(text[:end])
        with pytest.raises(DamagedFile):
            read_config(folder)


def test_who_edits_the_settings_deletes_the_first_line(tmp_path: Path) -> None:
    folder = a_run(tmp_path)
    text = folder.config.read_text().partition("\n")[2]
    folder.config.write_text(text.replace("beam = ", "beam = 1", 1))
    assert read_config(folder).search.beam >= 10


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "[model]\nd_model = " + "1" * 5_000])
def test_toml_that_python_cannot_read_is_one_line(tmp_path: Path, text: str) -> None:
    folder = a_run(tmp_path)
    folder.config.write_text(text)
    with pytest.raises(TransduceError, match=r"config\.toml: not valid TOML"):
        transduce.load(folder.path)
