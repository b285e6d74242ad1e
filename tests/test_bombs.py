"""Small files that ask for much memory are refused before it is given: shapes are compared before anything is built."""

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from folders import edit_config

from transduce.checkpoint import RunFolder, read_tensors, write_tensors

FROZEN = Path(__file__).parent / "frozen" / "0.1.0"
Refused = Callable[..., str]
ALLOWED = 250_000_000  # bytes that a refusal may take, once everything is imported
# Commands in a process that has imported what they need. The limit on its addresses is for a fix that fails: it ends there.
MEASURED = """
import contextlib, io, json, resource, sys
import torch, ctranslate2, transduce.training, transduce.derived.averaging, transduce.exchange, transduce.translator.torch_engine
from transduce.cli import main

unit = 1 if sys.platform == "darwin" else 1024
try:
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 3_000_000_000, resource.RLIM_INFINITY))
except OSError:
    pass
for line in sys.stdin:
    before, said = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, io.StringIO()
    with contextlib.redirect_stderr(said):
        code = main(json.loads(line))
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit
    print(json.dumps({"code": code, "bytes": taken, "said": said.getvalue()}), flush=True)
"""


@pytest.fixture(scope="module")
def measured() -> Iterator["subprocess.Popen[str]"]:
    """One process for all commands: each must stay below what the earlier ones took, and a little more."""
    pytest.importorskip("ctranslate2")
    command = [sys.executable, "-c", MEASURED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.fixture
def refused(measured: "subprocess.Popen[str]") -> Refused:
    """What a command says when it refuses without taking memory."""

    def refused(*arguments: str) -> str:
        assert measured.stdin is not None
        assert measured.stdout is not None
        measured.stdin.write(json.dumps(arguments) + "\n")
        measured.stdin.flush()
        found = json.loads(measured.stdout.readline() or "{}")
        assert found, "the process ended"
        assert found["code"] == 2, found["said"]
        assert found["bytes"] < ALLOWED
        return str(found["said"].splitlines()[-1])

    return refused


@pytest.fixture
def swollen(tmp_path: Path) -> Path:
    """A small folder whose settings ask for a model of 11 billion parameters."""
    run = Path(shutil.copytree(FROZEN, tmp_path / "run"))
    for before, after in (
        ("d_model = 32", "d_model = 20000"),
        ("d_ff = 64", "d_ff = 90000"),
        ("encoder_layers = 1", "encoder_layers = 2"),
    ):
        edit_config(run, before, after)
    return run


@pytest.mark.parametrize("engine", ["torch", "ct2"])
def test_a_folder_whose_settings_are_larger_than_its_weights(refused: Refused, swollen: Path, engine: str) -> None:
    (swollen / "lines").write_text("a\n")
    command = ["translate", str(swollen), "--input", str(swollen / "lines"), "--engine", engine, "--threads", "1"]
    assert "but this model needs [" in refused(*command)


def test_such_a_folder_is_no_start_and_no_part_of_an_average(refused: Refused, swollen: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("ab\tA B\nba\tB A\nbab\tB A B\n")
    pairs = str(tmp_path / "pairs.tsv")
    said = refused(
        "train", str(tmp_path / "new"), "--from", str(swollen), "--train", pairs, "--valid", pairs, "--quiet"
    )
    assert "but this model needs [" in said
    assert "but this model needs [" in refused("average", str(swollen), str(swollen), "-o", str(tmp_path / "mean"))


def test_weights_that_are_larger_than_the_settings(refused: Refused, tmp_path: Path) -> None:
    """A file whose header fits itself, and not the model."""
    run = RunFolder(Path(shutil.copytree(FROZEN, tmp_path / "run")))
    write_tensors(run.weights("best"), read_tensors(run.weights("best")) | {"more": torch.zeros(100_000_000)})
    (tmp_path / "lines").write_text("a\n")
    command = ["translate", str(run.path), "--input", str(tmp_path / "lines"), "--engine", "torch", "--threads", "1"]
    assert "has more, which this model does not have" in refused(*command)


def test_an_archive_that_unpacks_to_much_more_than_it_is(refused: Refused, tmp_path: Path) -> None:
    """600 MB of zeros in half a megabyte."""
    zeros = bytes(10_000_000)
    with (
        zipfile.ZipFile(tmp_path / "model.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("big.npy", "w", force_zip64=True) as file,
    ):
        for _ in range(60):
            file.write(zeros)
    said = refused("import", str(tmp_path / "model.npz"), str(tmp_path / "run"))
    assert "that decompress to 600,000,000: weights do not compress that much" in said
