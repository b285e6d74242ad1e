"""The scripts in benchmarks/, which no test runs as a whole: what they import exists, and they read their peers' logs rightly."""

import ast
import importlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest

from transduce.config import check_ranges
from transduce.device import Device
from transduce.training import TrainingRequest
from transduce.training.request import requested_settings

Capture = pytest.CaptureFixture[str]
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(BENCHMARKS.rglob("*.py"))


def imports_of_the_package(script: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "transduce":
            yield from ((node.module or "", alias.name) for alias in node.names)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(BENCHMARKS)))
def test_a_benchmark_imports_what_there_is(script: Path) -> None:
    for module, name in imports_of_the_package(script):
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")  # a module of a package


def test_the_imports_of_benchmarks_are_found() -> None:
    found = {one for script in SCRIPTS for one in imports_of_the_package(script)}
    assert ("transduce.training.layout", "POSITIONS") in found
    assert len(found) > 50


COMMANDS = [
    script
    for script in SCRIPTS
    if re.search(r"ArgumentParser\(|^from cells", text := script.read_text(encoding="utf-8"), re.MULTILINE)
    and "__main__" in text
]


@pytest.mark.parametrize("script", COMMANDS, ids=lambda path: path.name)
def test_a_benchmark_explains_itself(script: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    before = set(sys.modules)
    with patch.dict(os.environ), pytest.raises(SystemExit) as left:  # some set variables before they import torch
        runpy.run_path(str(script), run_name="__main__")
    assert left.value.code == 0
    assert "--help" in capsys.readouterr().out
    for name in set(sys.modules) - before:
        if name in {path.stem for path in SCRIPTS}:
            sys.modules.pop(name)


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """benchmarks/facts.py, as if it lay in a folder that is no repository."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("facts")
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    yield module
    sys.modules.pop("facts")


def commit_of(facts: ModuleType) -> str:
    return json.loads(facts.write_result("name", "a command", [], figure=1).read_text(encoding="utf-8"))["commit"]


@pytest.mark.parametrize("path", [os.environ["PATH"], ""], ids=["git", "no git"])
def test_without_a_repository_a_variable_names_the_commit(
    facts: ModuleType, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("PATH", path)
    monkeypatch.delenv("TRANSDUCE_COMMIT", raising=False)
    assert commit_of(facts) == ""
    monkeypatch.setenv("TRANSDUCE_COMMIT", "0123abc")
    assert commit_of(facts) == "0123abc"


def test_in_a_repository_git_names_the_commit(facts: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    monkeypatch.setenv("TRANSDUCE_COMMIT", "0123abc")
    git = ["git", "-C", str(facts.HERE), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert commit_of(facts) == head
    (facts.HERE / "changed.py").touch()
    assert commit_of(facts) == f"{head}-dirty"


def test_the_logs_of_eole_and_opennmt_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines as Eole 0.6.4 prints them."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    rnn_peers = importlib.import_module("rnn_peers")
    step = "Step {}/    3; acc: 0.0; ppl: 101.2; xent: 9.23; lr: 1.00e-03; sents: 107; bsz: 1177/1769/107; {}/{} tok/s; {} sec;"
    lines = [step.format(n, 50 * n, 80 * n, 10 * n) for n in (1, 2, 3)]
    log = "\n".join(
        ["* number of parameters: 8848880", *lines, "Validation perplexity: 20.0855", "Validation accuracy: 1"]
    )
    pilot = rnn_peers.peer_training(log, 3, 7.0)
    assert pilot == rnn_peers.Training(8_848_880, 3, 3 * 1769.0, 20.0, [80, 160, 240], 7.0)
    assert pilot.fitting(200.0) == 20  # two updates took 20 seconds
    whole = rnn_peers.Training(8_848_880, 6, 3 * 1769.0 + 100, 50.0, [80, 160, 240], 9.0)
    turn = whole.after(pilot, 1.5)
    assert turn == rnn_peers.Turn(8_848_880, 6, 200.0, 50.0, 1.5)
    assert "eole" in rnn_peers.table({"eole": [turn]})
    sys.modules.pop("rnn_peers")


@pytest.mark.parametrize("peers", [["eole"], ["onmt"], ["eole", "onmt"]])
def test_the_row_of_recurrent_networks_has_every_peer(peers: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    training_speed = importlib.import_module("report.training_speed")
    names = {"eole": "Eole", "onmt": "OpenNMT-py"}
    turn = {"tokens_per_s": 100.0, "tokens_per_cpu_s": 60.0, "updates": 20, "valid_bleu": 2.0}
    other = {"tokens_per_s": 50.0, "tokens_per_cpu_s": 40.0, "updates": 10, "valid_bleu": 3.0}
    result = {
        "command": "", "hardware": {"cores": 2, "cpu": "CPU"}, "settings": {"seconds": 60.0},
        "results": {"ours": [turn, turn], **{peer: [other, other] for peer in peers}},
    }  # fmt: skip
    (row,) = training_speed.recurrent(result)
    for peer in peers:
        assert f"2.00 (2.00 to 2.00) times {names[peer]} per wall-clock second and 1.50 (1.50 to 1.50) times" in row
    scores = "; ".join(f"{names[peer]} 3.0 after 10 updates and 3.0 after 10 updates" for peer in peers)
    assert f"round by round: Transduce 2.0 after 20 updates and 2.0 after 20 updates; {scores} |" in row


def test_the_recipes_of_repeated_trainings_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that is refused would end the others."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    repeated = importlib.import_module("repeated_trainings")
    for recipe in repeated.RECIPES.values():
        settings = repeated.COMMON | recipe | {"train.steps": 1}
        check_ranges(requested_settings(TrainingRequest(settings=settings)).config)
    sys.modules.pop("repeated_trainings")


@pytest.mark.slow
def test_speech_models_are_measured_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Toy sizes: everything that the script does on a CPU, once."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    speech_speed = importlib.import_module("speech_speed")
    work = speech_speed.Work((1,), seconds=2, steps=1, rounds=1)
    rows = speech_speed.measure(1, speech_speed.TOY, work, Device("cpu", bf16=False))
    assert [row["system"] for row in rows] == ["ours, no CTC", "ours", "ours, convolution", speech_speed.OTHER]
    assert all(row["sound_s_per_s"] > 0 and row["real_time_factor"]["beam"] > 0 for row in rows)
    assert rows[-1]["speed_ratio"]["training"] == {"median": 1.0, "least": 1.0, "most": 1.0}
    assert all(row["system"] in speech_speed.table(rows, "core_ratio") for row in rows)
    for name in ("speech_speed", "family_speed", "train_speed", "facts"):
        sys.modules.pop(name, None)


def test_speech_models_of_the_benchmark_are_equally_large(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    speech_speed = importlib.import_module("speech_speed")
    shape, device = speech_speed.Shape(), Device("cpu", bf16=False)
    heard = speech_speed.Utterances(1, 1, shape.ids)
    sizes = [speech_speed.SYSTEMS[name](shape, heard, device).parameters for name in ("ours", speech_speed.OTHER)]
    assert max(sizes) / min(sizes) < 1.02
