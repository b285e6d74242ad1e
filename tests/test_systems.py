"""What other systems lack is not needed: training and translating work without it, through the real command line.

Python runs `sitecustomize.py` before anything else; here it takes the facilities away.
"""

import os
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from transduce import cores
from transduce.cli import main

TAKE_AWAY = """
import os
gone = os.environ["TAKEN_AWAY"].split(",")
if "affinity" in gone:
    del os.sched_getaffinity, os.sched_setaffinity
if "fork" in gone:
    import multiprocessing.context
    multiprocessing.set_start_method("spawn")
    del os.fork, os.forkpty
    for method in ("fork", "forkserver"):
        del multiprocessing.context._concrete_contexts[method]
if "malloc" in gone:
    import ctypes
    load = ctypes.CDLL
    def other_library(name, *options, **more):
        if name is None:
            raise OSError("another C library")
        return load(name, *options, **more)
    ctypes.CDLL = other_library
import sys
for package in ("triton", "ctranslate2"):
    if package in gone:
        sys.modules[package] = None
"""
CHECK = """
import importlib.util, multiprocessing, os
print(*(name for name in ("sched_getaffinity", "fork") if hasattr(os, name)), multiprocessing.get_start_method())
print(*(name for name in ("triton", "ctranslate2") if importlib.util.find_spec(name)))
"""
SYSTEMS = {
    "macOS, or another C library": ["affinity", "fork", "malloc", "triton"],
    "no CTranslate2": ["ctranslate2"],
}
SETTINGS = """
model.d_model=32 model.d_ff=32 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1
train.steps=4 train.validate_every=2 train.checkpoint_every=2 train.tokens_per_batch=200 train.average=2
""".split()


@pytest.fixture
def python(tmp_path: Path) -> Iterator["Python"]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(TAKE_AWAY)
    return Python(tmp_path)


class Python:
    """A Python from which some things were taken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = os.pathsep.join([str(folder / "site"), str(Path(__file__).parents[1])])
        self.environment = {**os.environ, "PYTHONPATH": path, "TRANSDUCE_CACHE": str(folder / "cache")}

    def __call__(self, gone: list[str], *arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            env=self.environment | {"TAKEN_AWAY": ",".join(gone)},
            input=given,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def write_pairs(path: Path) -> None:
    letters = "abcdefgh"
    lines = [f"{' '.join(letters[n % 5 : n % 5 + 3])}\t{' '.join(letters[n % 4 : n % 4 + 2])}\n" for n in range(40)]
    path.write_text("".join(lines))


def test_what_is_taken_away_is_gone(python: Python) -> None:
    everything = [name for gone in SYSTEMS.values() for name in gone]
    assert python(everything, "-c", CHECK).split() == ["spawn"]


@pytest.mark.parametrize(
    "system", ["macOS, or another C library", pytest.param("no CTranslate2", marks=pytest.mark.slow)]
)
def test_training_and_translating_work_on_other_systems(system: str, python: Python) -> None:
    gone = SYSTEMS[system]
    write_pairs(python.folder / "pairs.tsv")
    python(gone, "-m", "transduce", "train", "run", "--train", "pairs.tsv", "--set", *SETTINGS)
    made = python(gone, "-m", "transduce", "translate", "run", "--device", "cpu", given="a b c\n\nd e\n")
    assert made.count("\n") == 3
    with_ct2 = bool(find_spec("ctranslate2")) and "ctranslate2" not in gone
    assert (python.folder / "run" / "ct2").exists() == with_ct2, "the engine that should translate did"


def clashes(folder: Path) -> list[str]:
    """Names that are one to a file system without capitals (macOS, Windows), or that composes accents otherwise."""
    seen: dict[tuple[Path, str], Path] = {}
    found = []
    for path in sorted(folder.rglob("*")):
        key = path.parent, unicodedata.normalize("NFD", path.name).casefold()
        if key in seen:
            found.append(f"{seen[key]} and {path.name}")
        seen[key] = path
    return found


def test_names_that_differ_in_capitals_only_are_found(tmp_path: Path) -> None:
    (tmp_path / "Best.safetensors").touch()
    (tmp_path / "best.safetensors").touch()
    if len(list(tmp_path.iterdir())) == 1:
        pytest.skip("this system's files have no capitals")
    assert len(clashes(tmp_path)) == 1


def test_no_two_files_are_one_where_capitals_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run folder with all that is written into it, its cache, and the exports this machine can make."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSDUCE_CACHE", "cache")
    write_pairs(Path("pairs.tsv"))
    Path("in").write_text("a b\n")
    assert main(["train", "run", "--train", "pairs.tsv", "--set", *SETTINGS, "train.threads=1"]) == 0
    if find_spec("transformers"):
        assert main(["export", "run", "as-hf", "--to", "hf", "--threads", "1"]) == 0
    if find_spec("ctranslate2"):
        assert main(["export", "run", "as-ct2", "--to", "ct2", "--threads", "1"]) == 0
        for quantization in ("int8", "float32"):
            assert main(["translate", "run", "--input", "in", "--device", "cpu", "--quantization", quantization]) == 0
    names = {path.name for path in tmp_path.rglob("*")}
    assert {"config.toml", "README.md", "best.safetensors", "averaged.safetensors"} <= names
    assert clashes(tmp_path) == []


@pytest.fixture
def quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the CPU limit of a container; there is none until a test writes it."""
    monkeypatch.setattr(cores, "CPU_QUOTA", tmp_path / "cpu.max")
    return tmp_path / "cpu.max"


@pytest.mark.parametrize("count", [3, None])
def test_cores_are_counted_on_every_system(count: int | None, quota: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert cores.available_cores() == (count or 1)


def test_cores_this_process_may_not_use_are_not_counted(quota: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 5}, raising=False)
    assert cores.available_cores() == 2


@pytest.mark.parametrize(
    ("limit", "expected"), [("200000 100000", 2), ("150000 100000", 2), ("50000 100000", 1), ("max 100000", 8), ("", 8)]
)
def test_a_container_has_the_cores_of_its_limit(
    limit: str, expected: int, quota: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    quota.write_text(f"{limit}\n")
    assert cores.available_cores() == expected


def test_one_place_counts_cores() -> None:
    package = Path(cores.__file__).parent
    asking = [path.name for path in package.rglob("*.py") if "sched_getaffinity" in path.read_text(encoding="utf-8")]
    assert asking == ["cores.py"]
