"""Model folders written by earlier versions must load and translate the same, byte for byte."""

import json
import shutil
from pathlib import Path

import pytest

import transduce
from transduce.checkpoint import read_tensors, write_tensors
from transduce.config import from_toml
from transduce.errors import DamagedFile, RunError

pytestmark = pytest.mark.numerics

FROZEN = sorted(path.parent for path in (Path(__file__).parent / "frozen").glob("*/expected.json"))


@pytest.mark.parametrize("engine", ["torch", "ct2"])
@pytest.mark.parametrize("folder", FROZEN, ids=lambda path: path.name)
def test_an_old_folder_translates_the_same(folder: Path, engine: str, tmp_path: Path) -> None:
    """Scores of a line's first three outputs lie 0.001 apart and more, which no processor's rounding bridges."""
    expected = json.loads((folder / "expected.json").read_text())
    copied = shutil.copytree(folder, tmp_path / "run")  # CTranslate2's form is kept in the folder
    loaded = transduce.load(copied, engine=engine, quantization="float32")
    found = loaded.n_best([line["source"] for line in expected], 2)
    for translation, line in zip(found, expected, strict=True):
        assert [output.text for output in translation.outputs] == line["texts"]
        assert translation.outputs[0].score == pytest.approx(line["score"], abs=1e-4)


def test_there_is_a_frozen_folder() -> None:
    assert FROZEN


def test_a_frozen_folder_has_settings_under_old_names() -> None:
    """Reading them is tested by every other test here."""
    stored = from_toml((FROZEN[0] / "config.toml").read_text(), "frozen")
    assert {"tokens_per_microbatch", "sampling", "features_column"} < {*stored["train"], *stored["data"]}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for file in FROZEN[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_a_folder_of_a_later_version_is_refused(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = copy / "best.safetensors"
    monkeypatch.setattr("transduce.checkpoint.__version__", "9.1.0")
    write_tensors(path, read_tensors(path))
    with pytest.raises(
        RunError, match=r"written by transduce 9\.1\.0, but this is .*: install version 9\.1\.0 or later"
    ):
        transduce.load(copy)


@pytest.mark.parametrize("name", ["best.safetensors", "source.spm", "config.toml"])
def test_a_torn_file_is_named(copy: Path, name: str) -> None:
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(content[: len(content) // 2])
    with pytest.raises((DamagedFile, transduce.errors.TransduceError), match=name):
        transduce.load(copy)


def test_altered_weights_are_noticed(copy: Path) -> None:
    content = bytearray((copy / "best.safetensors").read_bytes())
    content[-3] ^= 1
    (copy / "best.safetensors").write_bytes(content)
    with pytest.raises(DamagedFile, match="modified or incomplete"):
        transduce.load(copy)


def test_weights_that_do_not_fit_are_refused_by_name(copy: Path) -> None:
    text = (copy / "config.toml").read_text()
    (copy / "config.toml").write_text(text.replace("d_ff = 64", "d_ff = 128"))
    with pytest.raises(RunError, match=r"feed_forward.inner.bias has shape \[64\], but this model needs \[128\]"):
        transduce.load(copy)
