"""Damage to any file of a run folder is detected or has no effect: the method of benchmarks/flips.py, on fewer flips."""

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from transduce import checkpoint, tensor_file

pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'transduce[ct2]'")


def load_flips() -> ModuleType:
    path = Path(__file__).parents[1] / "benchmarks" / "flips.py"
    spec = importlib.util.spec_from_file_location("flips", path)
    assert spec
    assert spec.loader
    module = sys.modules["flips"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


flips = load_flips()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSDUCE_CACHE", "")  # restored afterwards: the runs set their own
        yield flips.make_base(tmp_path_factory.mktemp("flips"))


def silent(base: Any, run: Path, command: str, times: int, only: str = "") -> list[str]:
    """Every damage that changed the result without a word, or ended in a traceback."""
    expected, draw = flips.whole_result(base, run, command), random.Random(1)
    wrong = []
    for file in filter(lambda name: only in name, flips.files_of(run)):
        for _ in range(times):
            with flips.altered_copy(run, file, draw) as copy:
                found, said = flips.outcome(base.commands(copy)[command], expected)
            if found in ("different", "traceback"):
                wrong.append(f"{file}: {found}: {said}")
    return wrong


@pytest.mark.parametrize("command", ["translate, torch", "translate, ct2", "translate, shortlist", "evaluate"])
def test_no_flip_changes_a_translation_in_silence(base: Any, command: str) -> None:
    assert silent(base, base.finished, command, 2) == []


@pytest.mark.parametrize("file", ["model.bin", "config.toml"])
def test_many_flips_in_what_decides_an_output(base: Any, file: str) -> None:
    """Few flips miss what these would show: about one in ten changed a translation when nobody looked at hashes."""
    assert silent(base, base.finished, "translate, ct2", 25, only=file) == []


@pytest.mark.parametrize("file", ["step-00000020", "config.toml", "data.json", "metrics.jsonl", "last.", "vocabulary"])
def test_no_flip_changes_a_resumed_run_in_silence(base: Any, file: str) -> None:
    assert silent(base, base.stopped, "train", 2, only=file) == []


def test_damage_that_nobody_notices_is_counted(base: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The method finds what it is for: without the check of hashes, flips in the weights do change outputs."""

    def unchecked(path: Path) -> list[tensor_file.Stored]:
        with checkpoint._opened(path) as (file, header):
            return list(tensor_file.read_tensors(file, header))

    monkeypatch.setattr(checkpoint, "_read", unchecked)
    wrong = silent(base, base.finished, "translate, torch", 5, only=".safetensors")
    assert any("different" in line for line in wrong)
