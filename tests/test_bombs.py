"""Small files that ask for much memory are refused before it is given: shapes are compared before anything is built."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from folders import edit_config

from transduce.checkpoint import RunFolder, read_tensors, write_tensors

FROZEN = Path(__file__).parent / "frozen" / "0.1.0"
ALLOWED = 250_000_000  # bytes that a refusal may take, once everything is imported
# A command in a process that has imported what it needs. The limit on its addresses is for a fix that fails: it ends there.
MEASURED = """
import json, resource, sys
import torch, ctranslate2, transduce.training, transduce.averaging, transduce.exchange, transduce.translator.torch_engine
from transduce.cli import main

unit = 1 if sys.platform == "darwin" else 1024
try:
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 3_000_000_000, resource.RLIM_INFINITY))
except OSError:
    pass
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
code = main(sys.argv[1:])
print(json.dumps({"code": code, "bytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit}))
"""


def refused(*arguments: str) -> str:
    """What a command says when it refuses without taking memory."""
    pytest.importorskip("ctranslate2")
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, check=False, input="a\n"
    )
    assert "Traceback" not in done.stderr, done.stderr
    measured = json.loads(done.stdout.splitlines()[-1])
    assert measured["code"] == 2, done.stderr
    assert measured["bytes"] < ALLOWED
    return done.stderr.splitlines()[-1]


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
def test_a_folder_whose_settings_are_larger_than_its_weights(swollen: Path, engine: str) -> None:
    assert "but this model needs [" in refused("translate", str(swollen), "--engine", engine, "--threads", "1")


def test_such_a_folder_is_no_start_and_no_part_of_an_average(swollen: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("ab\tA B\nba\tB A\nbab\tB A B\n")
    pairs = str(tmp_path / "pairs.tsv")
    said = refused(
        "train", str(tmp_path / "new"), "--from", str(swollen), "--train", pairs, "--valid", pairs, "--quiet"
    )
    assert "but this model needs [" in said
    assert "but this model needs [" in refused("average", str(swollen), str(swollen), "-o", str(tmp_path / "mean"))


def test_weights_that_are_larger_than_the_settings(tmp_path: Path) -> None:
    """A file whose header fits itself, and not the model."""
    run = RunFolder(Path(shutil.copytree(FROZEN, tmp_path / "run")))
    write_tensors(run.weights("best"), read_tensors(run.weights("best")) | {"more": torch.zeros(100_000_000)})
    assert "has more, which this model does not have" in refused(
        "translate", str(run.path), "--engine", "torch", "--threads", "1"
    )


def test_an_archive_that_unpacks_to_much_more_than_it_is(tmp_path: Path) -> None:
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
