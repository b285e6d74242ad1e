"""A task that is learned in seconds, letters to be said backwards, and runs that are trained on it."""

import dataclasses
import json
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest

import transduce
from transduce.checkpoint import RunFolder, read_about
from transduce.config import assignments, build, from_toml, to_toml
from transduce.data.batches import Batch, make_batch
from transduce.device import choose_device
from transduce.model import Transformer
from transduce.training import Result, SilentReporter, TrainingRequest
from transduce.training.card import RunSummary
from transduce.training.checkpoint_manager import CheckpointManager
from transduce.training.loop import Trainer
from transduce.training.prepare import prepare
from transduce.training.request import requested_settings

SUMMARY = RunSummary([], 1, 1, 1, 1, 1, 1.0, 1, 1.0, "CPU")
TIMES = {"tokens_per_second", "seconds"}  # of the log: what may differ between two equal runs
SMALL = """
model.d_model=32 model.d_ff=64 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1
model.dropout=0.1 train.tokens_per_batch=120 train.positions_per_microbatch=64 train.steps=24
train.log_every=3 train.validate_every=8 train.checkpoint_every=6 train.average=3 train.threads=1
train.learning_rate=3e-3 train.warmup_steps=5
""".split()


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def reversal(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Digits to be said backwards: small enough to learn in seconds, and nothing a copy could solve."""
    folder = tmp_path_factory.mktemp("reversal")
    draw = random.Random(0)
    paths = {}
    for name, count in (("train", 400), ("valid", 30)):
        lines = []
        for _ in range(count):
            digits = [draw.choice("abcdef") for _ in range(draw.randint(2, 6))]
            lines.append(f"{' '.join(digits)}\t{' '.join(reversed(digits))}\n")
        paths[name] = str(folder / f"{name}.tsv")
        Path(paths[name]).write_text("".join(lines))
    return paths


def run_training(run: Path, data: dict[str, str], *settings: str, **options: object) -> Result:
    return transduce.train(  # type: ignore[arg-type]
        run, train=[(data["train"],)], valid=[(data["valid"],)], settings=[*SMALL, *settings], quiet=True, **options
    )


def command(run: Path, data: dict[str, str], *settings: str) -> list[str]:
    files = ["--train", data["train"], "--valid", data["valid"]]
    return [sys.executable, "-m", "transduce", "train", str(run), *files, "--set", *SMALL, *settings]


def final_weights(run: Path) -> dict[str, str]:
    return {which: read_about(RunFolder(run).weights(which))["sha256"] for which in ("best", "last", "averaged")}


def log_of(run: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().split("\n") if line]
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


@pytest.fixture(scope="module")
def finished(reversal: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted."""
    os.environ["TRANSDUCE_CACHE"] = str(tmp_path_factory.getbasetemp() / "cache")
    run = tmp_path_factory.mktemp("runs") / "straight"
    run_training(run, reversal)
    return run


@pytest.fixture(scope="module")
def unthinned(reversal: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the checkpoints that it had until its very end."""
    run = tmp_path_factory.mktemp("runs") / "unthinned"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointManager, "finish", lambda manager: None)
        run_training(run, reversal)
    return run


class Heard(SilentReporter):
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.extend(text.split("\n"))


def batch_of(trainer: Trainer, numbers: np.ndarray) -> Batch:
    vocabularies = trainer.training_data.vocabularies
    return make_batch(trainer.training_data.train, numbers, vocabularies.source.pad, vocabularies.target.pad)


def trainer_of(run: Path, *changes: str) -> Trainer:
    """The trainer of a finished run, with some settings changed in memory only."""
    folder = RunFolder(run)
    nothing = requested_settings(TrainingRequest())
    prepared = prepare(folder, nothing, print)
    training_data = prepared.training_data
    config = build(from_toml(to_toml(training_data.config), ""), assignments(changes))
    model = Transformer(config.model, training_data.vocabularies.source.size, training_data.vocabularies.target.size)
    return Trainer(
        folder, dataclasses.replace(training_data, config=config), model, choose_device("cpu"), SilentReporter()
    )


def final_hash(run: Path) -> str:
    return read_about(RunFolder(run).weights("last"))["sha256"]
