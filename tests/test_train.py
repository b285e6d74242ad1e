"""Training as a whole: it learns, resumes to the bit, survives what happens to runs, and refuses what cannot work."""

import dataclasses
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
import torch

import transduce
from transduce import checkpoint, tensor_file
from transduce.checkpoint import RunFolder, read_about, read_tensors
from transduce.cli import main
from transduce.config import TrainConfig, assignments, build, differences, from_toml, to_toml
from transduce.data import Corpus, read_pairs
from transduce.data.batches import Batch, make_batch
from transduce.device import choose_device
from transduce.errors import DataError, RunError, SettingError, TrainingError
from transduce.metrics import Score, Scores
from transduce.model import Transformer
from transduce.text import EOS
from transduce.training import Result, SilentReporter, TrainingRequest, make_reporter
from transduce.training import train as train_model
from transduce.training.card import RunSummary, training_losses, write_card
from transduce.training.checkpoint_manager import CheckpointManager
from transduce.training.choices import NEW_FOR_EACH_RUN
from transduce.training.loop import Trainer
from transduce.training.output_limit import fit_output_limit
from transduce.training.prepare import prepare
from transduce.training.progress import Progress, last_step
from transduce.training.report import MetricsLogger, StepReport
from transduce.training.request import requested_settings
from transduce.training.validation import SampleOutput, ValidationResult, output_limits, ranks_by_loss, validate
from transduce.translator import better_weights, read_config, write_config
from transduce.translator.evaluation import TestSet

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


# --- what a run leaves -----------------------------------------------------------------------------------------


def test_the_same_run_leaves_the_same_bytes(finished: Path, reversal: dict[str, str], tmp_path: Path) -> None:
    """`sha256sum` shows that two runs are equal: of the weights it ends with, and of every checkpoint's tensors."""
    again = tmp_path / "again"
    subprocess.run(command(again, reversal), check=True, capture_output=True)
    files = sorted(path.relative_to(finished) for path in finished.rglob("*.safetensors"))
    assert len(files) > 4
    assert [path for path in files if (again / path).read_bytes() != (finished / path).read_bytes()] == []


def test_the_run_folder_has_what_it_should(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert {"config.toml", "metrics.jsonl", "curves.png", "README.md", "tensorboard", "checkpoints"} <= names
    assert {"best.safetensors", "last.safetensors", "averaged.safetensors"} <= names
    assert "vocabulary.spm" in names
    card = (finished / "README.md").read_text()
    assert "FLOPs" in card
    assert "| best |" in card
    assert read_about(RunFolder(finished).weights("best"))["signature"] in card.replace("\\|", "|")
    assert (finished / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_old_checkpoints_are_pruned(unthinned: Path) -> None:
    """While a run goes on: two full states, and the weights that averaging takes."""
    folder = RunFolder(unthinned)
    steps = checkpoint.steps_saved(folder)
    assert steps == [12, 18, 24]
    full = [s for s in steps if (checkpoint.checkpoint_path(folder, s) / "optimizer.safetensors").exists()]
    assert full == [18, 24]


class Heard(SilentReporter):
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.extend(text.split("\n"))


def test_a_finished_run_keeps_one_checkpoint_and_says_how_to_free_it(reversal: dict[str, str], tmp_path: Path) -> None:
    run, heard = tmp_path / "run", Heard()
    files = {"train": [(reversal["train"],)], "valid": [(reversal["valid"],)]}
    train_model(run, TrainingRequest(settings=SMALL, **files), reporter=heard)
    assert checkpoint.steps_saved(RunFolder(run)) == [24]
    size = sum(path.stat().st_size for path in (run / "checkpoints" / "step-00000024").iterdir())
    weights = (run / "last.safetensors").stat().st_size
    assert checkpoint.freed_by_deleting(run / "checkpoints") == size - weights, "last.safetensors is the same file"
    said = f"{run / 'checkpoints'} ({(size - weights) / 1e6:,.1f} MB) is needed only to train this run further"
    assert any(line.startswith(said) for line in heard.lines)
    goes_on = [*SMALL, "train.steps=30"]
    assert train_model(run, TrainingRequest(settings=goes_on, **files)).steps == 30


def test_a_run_without_its_checkpoints_translates_and_is_not_begun_anew(
    finished: Path, reversal: dict[str, str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run, ignore=shutil.ignore_patterns("checkpoints", "ct2"))
    assert transduce.load(run).translate(["a b c"]) == transduce.load(finished).translate(["a b c"])
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match=r"its checkpoints were deleted.*transduce train NEW_RUN --from"):
        run_training(run, reversal)
    assert (run / "metrics.jsonl").read_bytes() == before


def test_a_run_with_a_removed_feature_translates_but_cannot_be_resumed(
    finished: Path, reversal: dict[str, str], tmp_path: Path
) -> None:
    run = shutil.copytree(finished, tmp_path / "old", ignore=shutil.ignore_patterns("ct2"))
    written = (run / "config.toml").read_text().partition("\n")[2]
    (run / "config.toml").write_text(written.replace("[train]", "[train]\nsimcut = 3.0\nramp_epochs = 0"))
    assert transduce.load(run).translate(["a b c"]) == transduce.load(finished).translate(["a b c"])
    with pytest.raises(
        RunError, match=r"old: this run cannot be resumed: train\.simcut = 3\.0: this feature was removed"
    ):
        run_training(run, reversal, "train.steps=30")


def test_the_model_card_names_files_but_no_folders(finished: Path, reversal: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "tuned"
    both = [(reversal["train"],), (reversal["train"],)]
    transduce.train(
        run, train=both, valid=[(reversal["valid"],)], start_from=str(finished), quiet=True,
        settings=["train.steps=2", "train.threads=1", "data.weights=1,2", f"data.cache={tmp_path / 'cache'}"],
    )  # fmt: skip
    card = (run / "README.md").read_text()
    assert "| data.valid | valid.tsv |" in card
    assert f"| train.start_from | {finished.name} |" in card
    assert str(tmp_path) not in card
    assert str(Path(reversal["train"]).parent) not in card


def test_training_and_validation_loss_have_one_scale(finished: Path, reversal: dict[str, str], tmp_path: Path) -> None:
    """Weights that stand still, without dropout, on the same pairs: only label smoothing could make a difference."""
    run = tmp_path / "still"
    transduce.train(
        run, train=[(reversal["valid"],)], valid=[(reversal["valid"],)], start_from=str(finished), quiet=True,
        settings=["model.dropout=0", "train.label_smoothing=0.5", "train.learning_rate=1e-12", "train.epochs=1",
                  "train.steps=0", "train.tokens_per_batch=50", "train.log_every=1", "train.threads=1"],
    )  # fmt: skip
    log = log_of(run)
    expected = next(float(str(line["loss"])) for line in log if line["event"] == "valid")
    steps = [line for line in log if line["event"] == "train"]
    tokens = np.diff([0, *(int(str(line["target_tokens"])) for line in steps)])
    plain, smoothed = (
        float(np.average([float(str(line[name])) for line in steps], weights=tokens))
        for name in ("cross_entropy", "loss")
    )
    assert plain == pytest.approx(expected, rel=1e-4)
    assert smoothed != pytest.approx(expected, rel=1e-3)
    assert list(training_losses(steps)) == ["training (with dropout)"]
    old = [{key: value for key, value in line.items() if key != "cross_entropy"} for line in steps]
    assert list(training_losses(old)) == ["training (with label smoothing)"]


@pytest.mark.parametrize("verbose", [False, True])
def test_sample_outputs_take_one_short_line_unless_asked_for(verbose: bool, capsys: pytest.CaptureFixture[str]) -> None:
    samples = [SampleOutput("s" * 200, f"output {number}", f"reference {number}") for number in range(3)]
    validation = ValidationResult(1.0, Scores((Score("BLEU", 1.0, "", True),)), samples)
    make_reporter(quiet=False, verbose=verbose).validated("valid", 7, validation, better=True)
    figures, *shown = capsys.readouterr().err.splitlines()
    assert figures.startswith("step 7: ")
    if verbose:
        assert shown == [
            line
            for number in range(3)
            for line in (
                f"    source     {'s' * 200}",
                f"    output     output {number}",
                f"    reference  reference {number}",
            )
        ]
    else:
        assert shown == [f"    {'s' * 59}\u2026 -> output 0"]


def test_averaged_is_the_mean_of_the_last_checkpoints(unthinned: Path) -> None:
    folder = RunFolder(unthinned)
    parts = [read_tensors(checkpoint.checkpoint_path(folder, s) / "weights.safetensors") for s in (12, 18, 24)]
    for name, tensor in read_tensors(folder.weights("averaged")).items():
        torch.testing.assert_close(tensor, torch.stack([part[name] for part in parts]).mean(0))


def test_the_log_is_complete(finished: Path) -> None:
    log = log_of(finished)
    assert [line["step"] for line in log if line["event"] == "train"] == list(range(3, 25, 3))
    assert [line["step"] for line in log if line["event"] == "valid"] == [8, 16, 24]
    assert [line["event"] for line in log[-2:]] == ["averaged", "finished"]
    assert list(finished.glob("tensorboard/events*"))


@pytest.mark.parametrize(("averaged", "better"), [("-19.5", "averaged"), ("-20.5", "best")])
def test_weights_scored_under_an_older_name_are_compared_and_loaded(
    finished: Path, tmp_path: Path, averaged: str, better: str
) -> None:
    """Error rates had other names once; the rank in the header is what counts."""
    run = RunFolder(tmp_path / "run")
    shutil.copytree(finished, run.path)
    for which, metric, rank in (("best", "PER", "-20.0"), ("averaged", "token error rate", averaged)):
        path = run.weights(which)
        about = read_about(path) | {"metric": metric, "score": rank[1:], "rank": rank}
        checkpoint.write_tensors(path, read_tensors(path), about)
    assert better_weights(run) == better
    assert transduce.load(run.path).translate(["a b"])
    write_card(run, read_config(run), SUMMARY)
    assert "| PER 20.00 |" in run.card.read_text()


# --- how long outputs may become -------------------------------------------------------------------------------


def lengths(*differences: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of sources and targets that differ so."""
    sources = np.full(len(differences), 100, dtype=np.int32)
    return sources, sources + np.array(differences, dtype=np.int32)


def test_the_output_limit_is_fitted_to_the_training_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    config = build(assignments(["train.steps=1"]))
    assert fit_output_limit(config, *lengths(-30, 0, 40), as_requested=False, say=said.append) == config
    assert not said
    monkeypatch.setattr("transduce.training.output_limit.PAIRS_AT_ONCE", 7)
    longer = fit_output_limit(config, *lengths(*[60] * 30, -5, 3), as_requested=False, say=said.append)
    assert longer.search.max_extra == 80
    assert said == [
        "fitted to the data: search.max_extra 80, because targets are up to 60 tokens longer than their sources"
    ]
    few = [0] * 2_000 + [90]  # one in two thousand is an error of the corpus
    assert fit_output_limit(config, *lengths(*few), as_requested=False, say=said.append) == config
    assert fit_output_limit(config, *lengths(60), as_requested=True, say=said.append) == config
    assert said[-1].startswith("warning: outputs can be at most search.max_extra = 50 tokens longer than their inputs")


def test_long_targets_raise_the_limit_of_a_run_and_of_those_that_start_from_it(tmp_path: Path) -> None:
    pairs = [f"{'abcdef'[n % 6]} {'fedcba'[n % 5]}\t{' '.join(['x', 'y', 'z'] * 24)}\n" for n in range(40)]
    (tmp_path / "long.tsv").write_text("".join(pairs))
    data = {"train": str(tmp_path / "long.tsv"), "valid": str(tmp_path / "long.tsv")}
    short = [s for s in SMALL if not s.startswith("train.steps")] + ["train.steps=2"]
    files = {"train": [(data["train"],)], "valid": [(data["valid"],)]}
    train_model(tmp_path / "run", TrainingRequest(settings=short, **files))
    assert read_config(RunFolder(tmp_path / "run")).search.max_extra == 90  # 70 more, and a quarter
    heard = Heard()
    asked = TrainingRequest(settings=[*short, "search.max_extra=10"], **files)
    train_model(tmp_path / "asked", asked, reporter=heard)
    assert read_config(RunFolder(tmp_path / "asked")).search.max_extra == 10
    assert any("set search.max_extra=90, or outputs will be cut" in line for line in heard.lines)
    (tmp_path / "short.tsv").write_text("".join(pair.replace(" z", "") for pair in pairs[:9]))
    other = {"train": str(tmp_path / "short.tsv"), "valid": str(tmp_path / "short.tsv")}
    settings = ["train.steps=1", "train.threads=1"]
    train_model(tmp_path / "tuned", TrainingRequest(start_from=tmp_path / "run", settings=settings, **other))
    assert read_config(RunFolder(tmp_path / "tuned")).search.max_extra == 90


def test_a_validation_bounds_its_outputs_by_the_references(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An untrained model writes to the limit on every line: to twice the reference and ten tokens, not to input + 50."""
    trainer = trainer_of(finished)
    vocabulary = trainer.training_data.vocabularies.target
    texts = TestSet(["a b c", "a"], [["c b a"], ["a", "a a a a"]])
    assert output_limits(texts, vocabulary) == [2 * 4 + 10, 2 * 5 + 10]
    project = trainer.model.project
    never_ends = lambda hidden: project(hidden).index_fill(-1, torch.tensor([EOS]), -1e9)  # noqa: E731
    monkeypatch.setattr(trainer.model, "project", never_ends)
    validation = validate(trainer.translator, trainer.training_data.valid, texts)
    assert validation.outputs_at_limit == 2
    assert all(len(sample.output.split()) <= 19 for sample in validation.samples)


# --- resuming --------------------------------------------------------------------------------------------------


@pytest.mark.numerics
def test_the_same_run_twice_is_the_same(finished: Path, reversal: dict[str, str], tmp_path: Path) -> None:
    run_training(tmp_path / "again", reversal)
    assert final_weights(tmp_path / "again") == final_weights(finished)
    assert log_of(tmp_path / "again") == log_of(finished)


def test_a_finished_run_is_left_as_it_is(finished: Path, reversal: dict[str, str]) -> None:
    before = {p: p.read_bytes() for p in finished.glob("*.safetensors")} | {0: log_of(finished)}  # type: ignore[dict-item]
    run_training(finished, reversal)
    assert before == {p: p.read_bytes() for p in finished.glob("*.safetensors")} | {0: log_of(finished)}


@pytest.mark.numerics
def test_two_threads_resume_to_the_bit(reversal: dict[str, str], tmp_path: Path) -> None:
    """Each has a share of every batch and its own dropout; what they add up to is the same every time."""
    settings = ["train.threads=2", "model.attention_dropout=0.1"]
    run_training(tmp_path / "straight", reversal, *settings)
    kill_and_resume(tmp_path / "killed", reversal, *settings, kills=1, seed=1)
    assert final_weights(tmp_path / "killed") == final_weights(tmp_path / "straight")
    assert log_of(tmp_path / "killed") == log_of(tmp_path / "straight")


@pytest.mark.parametrize("when", [pytest.param(0.3, marks=pytest.mark.slow), 0.8])
def test_kill_9_changes_nothing(finished: Path, reversal: dict[str, str], tmp_path: Path, when: float) -> None:
    kill_and_resume(tmp_path / "killed", reversal, kills=1, seed=int(when * 10))
    assert final_weights(tmp_path / "killed") == final_weights(finished)
    assert log_of(tmp_path / "killed") == log_of(finished)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_twenty_kills_change_nothing(finished: Path, reversal: dict[str, str], tmp_path: Path) -> None:
    kill_and_resume(tmp_path / "killed", reversal, kills=20, seed=7)
    assert final_weights(tmp_path / "killed") == final_weights(finished)
    assert log_of(tmp_path / "killed") == log_of(finished)


def kill_and_resume(run: Path, data: dict[str, str], *settings: str, kills: int, seed: int) -> None:
    """Kill at random moments after the start of training, however far it got, then let it finish."""
    draw = random.Random(seed)
    for _ in range(kills):
        process = subprocess.Popen(command(run, data, *settings), stderr=subprocess.DEVNULL)
        seen = _log_size(run)
        deadline = time.time() + 60
        while _log_size(run) <= seen and process.poll() is None and time.time() < deadline:
            time.sleep(0.01)
        time.sleep(draw.random() * 0.6)
        process.kill()
        process.wait()
    subprocess.run(command(run, data, *settings), check=True, stderr=subprocess.DEVNULL)


def _log_size(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.stat().st_size if path.exists() else 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_and_resume_to_the_same(
    finished: Path, reversal: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "stopped"
    process = subprocess.Popen(command(run, reversal), stderr=subprocess.PIPE, text=True)
    while _log_size(run) == 0 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=90)
    if process.returncode == 0:
        pytest.skip("the run ended before the signal came")
    assert process.returncode == 128 + number
    assert "rerun the same command to resume" in said
    assert checkpoint.steps_saved(RunFolder(run))
    subprocess.run(command(run, reversal), check=True, stderr=subprocess.DEVNULL)
    assert final_weights(run) == final_weights(finished)
    assert log_of(run) == log_of(finished)


@pytest.mark.parametrize(
    ("before", "after"), [('"event"', '"evenu"'), ('"step": ', '"step": {'), ('"loss": ', '"loss": "'), ("{", "[[")]
)
def test_a_damaged_log_does_not_fail_a_run(
    finished: Path, reversal: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str], before: str, after: str
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text().replace(before, after, 1))
    assert main(command(run, reversal)[3:]) == 0
    assert "metrics.jsonl: the log cannot be" in capfd.readouterr().err
    assert final_weights(run) == final_weights(finished)


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors", "progress.json"])
@pytest.mark.parametrize("harm", ["torn", "altered"])
def test_a_damaged_checkpoint_is_noticed(
    unthinned: Path, reversal: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, harm: str
) -> None:
    """The one before it is used, said so, and the run ends where it should."""
    run = tmp_path / "damaged"
    shutil.copytree(unthinned, run)
    path = checkpoint.checkpoint_path(RunFolder(run), 24) / name
    content = bytearray(path.read_bytes())
    if harm == "torn":
        content = content[: len(content) // 2]
    else:
        content[-5] ^= 1
    path.write_bytes(content)
    assert main(command(run, reversal)[3:]) == 0
    assert "trying the previous checkpoint" in capfd.readouterr().err
    assert final_weights(run) == final_weights(unthinned)


def test_a_longer_budget_goes_on(finished: Path, reversal: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "longer"
    shutil.copytree(finished, run)
    result = run_training(run, reversal, "train.steps=30")
    assert result.steps == 30
    assert "steps = 30" in (run / "config.toml").read_text()


def test_nothing_else_may_change(finished: Path, reversal: dict[str, str]) -> None:
    with pytest.raises(
        RunError, match=r"this run has model.d_model = 32, not 64. model.d_model cannot change when a run is resumed"
    ):
        run_training(finished, reversal, "model.d_model=64")


def test_changed_data_is_refused(finished: Path, reversal: dict[str, str], tmp_path: Path) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("a b\tb a\n")
    with pytest.raises(DataError, match="the training data has changed since this run started"):
        run_training(finished, {"train": str(other), "valid": reversal["valid"]})


def test_one_process_a_run(finished: Path, reversal: dict[str, str]) -> None:
    from transduce.run_lock import alone_in

    with alone_in(RunFolder(finished)), pytest.raises(RunError, match="another process is training this run; wait"):
        run_training(finished, reversal)


# --- what happens to runs --------------------------------------------------------------------------------------


def test_not_a_number_stops_before_it_is_applied(reversal: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"step \d+: the (loss|gradient) is NaN or infinite\. .* Start a new run"):
        run_training(
            tmp_path / "nan", reversal, "train.learning_rate=1e30", "train.warmup_steps=0", "train.schedule=constant"
        )
    folder = RunFolder(tmp_path / "nan")
    for step in checkpoint.steps_saved(folder):
        weights = read_tensors(checkpoint.checkpoint_path(folder, step) / "weights.safetensors")
        assert all(tensor.isfinite().all() for tensor in weights.values())


def test_a_full_disk_is_one_line(reversal: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint at step 12 cannot be written; the one at step 6 is intact and the run goes on from it."""
    real = tensor_file.write

    def full(file: BinaryIO, tensors: Sequence[tensor_file.Stored], about: dict[str, str]) -> None:
        if about.get("step") == "12":
            file.write(b"half")
            raise OSError(28, "No space left on device")
        real(file, tensors, about)

    monkeypatch.setattr(tensor_file, "write", full)
    with pytest.raises(TrainingError, match=r"No space left on device.*earlier checkpoints are intact"):
        run_training(tmp_path / "full", reversal)
    assert checkpoint.steps_saved(RunFolder(tmp_path / "full")) == [6]
    assert not list((tmp_path / "full" / "checkpoints").glob(".*"))
    monkeypatch.undo()
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    assert run_training(tmp_path / "full", reversal).steps == 24


def test_a_disk_that_fails_is_not_called_full(tmp_path: Path) -> None:
    """A missing folder is no lack of room."""
    with pytest.raises(TrainingError, match=r"\(No such file or directory\); .* intact: fix the cause and rerun"):
        checkpoint.write_text(tmp_path / "gone" / "file", "text")
    with pytest.raises(TrainingError, match=r"file.safetensors: cannot be written .* are intact"):
        checkpoint.write_tensors(tmp_path / "gone" / "file.safetensors", {"x": torch.zeros(1)})


def test_too_large_a_batch_is_one_line(
    reversal: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")

    monkeypatch.setattr("transduce.training.update.batch_loss", exhausted)
    with pytest.raises(
        TrainingError, match=r"out of memory: the largest batch has \d+ positions\. .*positions_per_microbatch below"
    ):
        run_training(tmp_path / "large", reversal)


def test_early_stopping(reversal: dict[str, str], tmp_path: Path) -> None:
    result = run_training(
        tmp_path / "early", reversal, "train.learning_rate=1e-9", "train.patience=2", "train.steps=400"
    )
    assert result.steps < 60


PLANNED = ("train.steps=0", "train.validate_every=0", "train.checkpoint_every=0", "train.average=2")


def plans_of(run: Path) -> list[dict[str, float]]:
    return [line for line in log_of(run) if line["event"] == "plan"]  # type: ignore[misc]


def test_minutes_are_the_time_of_the_whole_run(reversal: dict[str, str], tmp_path: Path) -> None:
    """Never much longer; how exactly they are met is measured by benchmarks/budgets.py."""
    run, begun = tmp_path / "minutes", time.perf_counter()
    result = run_training(run, reversal, *PLANNED, "train.minutes=0.1")
    assert 3 < time.perf_counter() - begun < 25
    plans = plans_of(run)
    assert len(plans) > 4  # made, and revised on the way
    assert plans[-1]["last_step"] == pytest.approx(result.steps, rel=0.5)  # steps vary with what else the machine does
    assert [plan["left"] for plan in plans] == sorted((plan["left"] for plan in plans), reverse=True)
    saved = checkpoint.restore(checkpoint.checkpoint_path(RunFolder(run), result.steps)).progress
    assert saved["plan"]["last_step"] == result.steps
    assert run_training(run, reversal, *PLANNED, "train.minutes=0.1").steps == result.steps  # and is over


def test_a_killed_run_keeps_its_plan(reversal: dict[str, str], tmp_path: Path) -> None:
    """The plan stands in the checkpoint: what another clock would say does not change it."""
    run = tmp_path / "killed"

    def killed(trainer: Trainer) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_finish", killed)
        with pytest.raises(KeyboardInterrupt):
            run_training(run, reversal, *PLANNED, "train.minutes=0.06")
    folder = RunFolder(run)
    planned = checkpoint.restore(checkpoint.checkpoint_path(folder, checkpoint.steps_saved(folder)[-1])).progress
    trainer = trainer_of(run)
    assert dataclasses.asdict(trainer.progress.plan) == planned["plan"]  # type: ignore[call-overload]
    assert trainer.progress.spent == planned["spent"]


def test_more_minutes_do_not_throw_the_rate_back_to_its_peak(reversal: dict[str, str], tmp_path: Path) -> None:
    """Twice the time is half over: the learning rate goes on from about half its peak, as if it had been planned so."""
    run = tmp_path / "more"
    first = run_training(run, reversal, *PLANNED, "train.minutes=0.06", "train.log_every=1")
    spent = checkpoint.restore(checkpoint.checkpoint_path(RunFolder(run), first.steps)).progress["spent"]
    twice = f"train.minutes={2 * spent / 60 + 0.05}"  # however slow the machine was
    second = run_training(run, reversal, *PLANNED, twice, "train.log_every=1")
    assert second.steps > first.steps
    rates = [line["learning_rate"] for line in log_of(run) if line["event"] == "train"]
    assert max(rates[first.steps :]) < 0.8 * 3e-3  # type: ignore[type-var,operator]


def test_a_run_by_steps_goes_on_by_minutes(finished: Path, reversal: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "minutes"
    shutil.copytree(finished, run)
    spent = checkpoint.restore(checkpoint.checkpoint_path(RunFolder(run), 24)).progress["spent"]
    settings = f"train.minutes={spent / 60 + 0.1}"
    assert run_training(run, reversal, "train.steps=0", settings).steps > 24


def test_steps_that_end_before_the_minutes_keep_their_validations(reversal: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "both"
    settings = ("train.steps=60", "train.minutes=30", "train.validate_every=0", "train.checkpoint_every=0")
    run_training(run, reversal, *settings, "train.average=2")
    assert [line["step"] for line in log_of(run) if line["event"] == "valid"] == [20, 40, 60]
    assert (run / "averaged.safetensors").exists()


def test_how_often_is_twenty_times_where_it_is_left_open(reversal: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "open"
    run_training(run, reversal, "train.steps=41", "train.validate_every=0", "train.checkpoint_every=0")
    assert [line["step"] for line in log_of(run) if line["event"] == "valid"] == [20, 40, 41]


def test_progress_of_an_older_version_is_read() -> None:
    old = {"step": 7, "measured": 40, "measured_minutes": 2.0, "pause_every": 3, "seconds": 9.5, "layout": "padded"}
    progress = Progress.of(old)
    assert (progress.step, progress.spent) == (7, 9.5)
    assert last_step(TrainConfig(steps=0, minutes=2.0), [10], progress) == 40  # and a finished one is still finished


def test_a_fraction_of_an_epoch_is_at_least_a_step(reversal: dict[str, str], tmp_path: Path) -> None:
    assert run_training(tmp_path / "epochs", reversal, "train.steps=0", "train.epochs=0.001").steps == 1


def test_another_number_of_threads_is_said(
    finished: Path, reversal: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "threads"
    shutil.copytree(finished, run)
    assert main([*command(run, reversal)[3:], "train.threads=2", "train.steps=25"]) == 0
    assert (
        "the number of threads changed from 1 to 2 since this run was saved: its result will not be bit-identical"
        in capfd.readouterr().err
    )


def test_sampled_segmentation_resumes_to_the_same(reversal: dict[str, str], tmp_path: Path) -> None:
    """In another process, where sentencepiece's random numbers are others."""
    text = [
        *SMALL,
        "data.task=translation",
        "data.subword_sampling=0.3",
        "data.vocabulary_size=60",
        "data.unknown=unk",
        f"data.cache={tmp_path}/cache",
    ]
    options = ["--train", reversal["train"], "--valid", reversal["valid"], "--quiet", "--set", *text]
    runs = [tmp_path / "one", tmp_path / "other"]
    for run in runs:
        subprocess.run([sys.executable, "-m", "transduce", "train", str(run), *options], check=True)
    assert final_weights(runs[0]) == final_weights(runs[1])


def test_learned_positions_translate_whatever_comes(reversal: dict[str, str], tmp_path: Path) -> None:
    learned = ["model.positions=learned", "model.max_positions=12", "data.max_length=12", "train.steps=3"]
    run_training(tmp_path / "learned", reversal, *learned)
    found = list(transduce.load(tmp_path / "learned").stream(["a b", "a b c d e f a b c d e f a b", "c"]))
    assert len(found) == 3
    assert found[1].cut == 3


def test_the_moving_average_is_exported_and_the_trained_weights_are_resumed(
    reversal: dict[str, str], tmp_path: Path
) -> None:
    one, other, setting, constant = tmp_path / "one", tmp_path / "other", "train.ema=0.9", "train.schedule=constant"
    run_training(one, reversal, setting, constant)
    run_training(other, reversal, setting, constant, "train.steps=12")
    run_training(other, reversal, setting, constant, "train.steps=24")
    assert {**final_weights(one), "best": ""} == {**final_weights(other), "best": ""}  # step 12 was validated too
    states = [
        read_tensors(checkpoint.checkpoint_path(RunFolder(r), 24) / "optimizer.safetensors") for r in (one, other)
    ]
    assert {name: tensor.tolist() for name, tensor in states[0].items()} == {
        n: t.tolist() for n, t in states[1].items()
    }
    last = read_tensors(RunFolder(one).weights("last"))
    assert any(not torch.equal(last[name], states[0][f"trained.{name}"]) for name in last)


def test_the_moving_average_is_validated_and_training_continues_with_the_trained_weights(
    reversal: dict[str, str], tmp_path: Path
) -> None:
    """`best` and the last checkpoint are the same weights where the last validation was the best."""
    run = tmp_path / "run"
    run_training(run, reversal, "train.ema=0.9", "train.steps=8")
    best, last = (read_tensors(RunFolder(run).weights(which)) for which in ("best", "last"))
    assert all(torch.equal(best[name], last[name]) for name in best)
    run_training(tmp_path / "watched", reversal, "train.ema=0.9", "train.steps=8", "train.validate_every=1")
    assert final_hash(tmp_path / "watched") == final_hash(run)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_other_optimizers_resume_to_the_same(reversal: dict[str, str], tmp_path: Path, optimizer: str) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    settings = [f"train.optimizer={optimizer}", "train.weight_decay=0.01", "train.schedule=constant"]
    run_training(one, reversal, *settings)
    for steps in (7, 24):
        run_training(other, reversal, *settings, f"train.steps={steps}")
    assert final_hash(one) == final_hash(other)


def test_pages_learn_on_a_cpu_too_and_resume_to_the_same(reversal: dict[str, str], tmp_path: Path) -> None:
    """`train.layout`: several pairs a row, wherever; a run keeps its layout, whatever is asked later."""
    one, other = tmp_path / "one", tmp_path / "other"
    run_training(one, reversal, "train.layout=pages")
    for steps in (7, 24):
        run_training(other, reversal, "train.layout=pages", "train.schedule=constant", f"train.steps={steps}")
    straight = tmp_path / "straight"
    run_training(straight, reversal, "train.layout=pages", "train.schedule=constant")
    assert final_hash(straight) == final_hash(other)
    losses = [float(str(line["loss"])) for line in log_of(one) if line["event"] == "train"]
    assert losses[-1] < losses[0]
    with pytest.raises(RunError, match=r"this run has train.layout = pages, not padded"):
        run_training(one, reversal, "train.layout=padded")


@pytest.mark.numerics
def test_accumulation_equals_one_large_batch(finished: Path) -> None:
    """The gradient of a step is the same in one batch or cut into several."""
    trainer = trainer_of(finished, "model.dropout=0")
    pairs, numbers = trainer.training_data.train, np.arange(40)
    tokens = int(pairs.target_lengths[numbers].sum())

    def gradient(parts: list[np.ndarray]) -> tuple[float, list[torch.Tensor]]:
        trainer.update.forget()
        for part in parts:
            trainer.update.add(batch_of(trainer, part), tokens)
        return trainer.update.measured().loss, [
            p.grad.clone() for p in trainer.model.parameters() if p.grad is not None
        ]

    (whole_loss, whole), (cut_loss, cut) = gradient([numbers]), gradient([numbers[:7], numbers[7:31], numbers[31:]])
    assert cut_loss == pytest.approx(whole_loss, rel=1e-5)
    for one, other in zip(whole, cut, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


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


@pytest.mark.numerics
def test_clipping_bounds_the_step(finished: Path) -> None:
    trainer = trainer_of(finished, "train.clip_norm=0.001")
    trainer.update.add(batch_of(trainer, np.arange(40)), tokens=1)
    trainer.update.apply(learning_rate=0.0)
    assert trainer.update.measured().gradient_norm > 1  # reported as it was
    trainer.update.add(batch_of(trainer, np.arange(40)), tokens=1)
    torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), trainer.config.clip_norm)
    norms = [p.grad.norm() for p in trainer.model.parameters() if p.grad is not None]
    assert torch.stack(norms).norm() <= 0.00101


def test_without_validation_data_some_is_held_out(reversal: dict[str, str], tmp_path: Path) -> None:
    """No source is on both sides, nothing is lost, and a resumed run holds out the same."""
    run = tmp_path / "held"
    options = {"train": [(reversal["train"],)], "settings": [*SMALL, "train.steps=6"], "quiet": True}
    transduce.train(run, **options)  # type: ignore[arg-type]
    config = read_config(RunFolder(run))
    assert config.data.hold_out == 10
    corpus = Corpus(((reversal["train"],),), hold_out=10)
    kept, held = read_pairs(corpus), read_pairs(dataclasses.replace(corpus, part="held out"))
    assert 0 < len(held[0]) < 120
    assert len(kept[0]) + len(held[0]) == 400
    assert not set(kept[0]) & set(held[0])
    assert transduce.train(run, **{**options, "settings": [*SMALL, "train.steps=8"]}).steps == 8  # type: ignore[arg-type]


# --- corpora with weights --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpora(reversal: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The options for a corpus of 300 pairs, one whose pairs are all left out, and one of 100."""
    folder = tmp_path_factory.mktemp("corpora")
    lines = Path(reversal["train"]).read_text().splitlines(keepends=True)
    parts = {"much": lines[:300], "empty": ["\ta\n", "b\t \n"], "little": lines[300:]}
    for name, part in parts.items():
        (folder / f"{name}.tsv").write_text("".join(part))
    return [word for name in parts for word in ("--train", str(folder / f"{name}.tsv"))]


@pytest.mark.parametrize("sampled", [False, True], ids=["held out", "sampled"])
def test_weights_resume_to_the_same(
    reversal: dict[str, str], corpora: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], sampled: bool
) -> None:
    """Stopped in its second epoch and gone on with in another process; an epoch is about seven steps of 210 pairs."""
    settings = [*SMALL, "data.weights=0.2,1,1.5", "train.schedule=constant", f"data.cache={tmp_path}/cache"]
    if sampled:
        settings += [
            "data.subword_sampling=0.3",
            "data.task=translation",
            "data.vocabulary_size=60",
            "data.unknown=unk",
        ]
    files = [*corpora, *(["--valid", reversal["valid"]] if sampled else [])]

    def options(name: str, steps: int) -> list[str]:
        return ["train", str(tmp_path / name), *files, "--set", *settings, f"train.steps={steps}"]

    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    assert main(options("straight", 24)) == 0
    said = capfd.readouterr().err
    for steps in (10, 24):
        subprocess.run([sys.executable, "-m", "transduce", *options("stopped", steps)], check=True)
    assert "% of an epoch" in said
    assert f"corpus 2 ({Path(corpora[3]).name}): 0 pairs x 1 = 0.0 % of an epoch" in " ".join(said.split())
    last = [checkpoint.restore(checkpoint.checkpoint_path(RunFolder(folder), 24)) for folder in (straight, stopped)]
    assert last[0].progress["epoch"] >= 2
    assert all(torch.equal(tensor, last[1].weights[name]) for name, tensor in last[0].weights.items())
    assert "corpus 3" in (straight / "README.md").read_text()


def test_weights_say_what_an_epoch_is_made_of(reversal: dict[str, str], corpora: list[str], tmp_path: Path) -> None:
    """The shares are said, the steps follow them, and weights of one are as none."""
    said: list[str] = []

    def prepared(name: str, *settings: str) -> Trainer:
        files = {"train": corpora[1::2], "valid": reversal["valid"]}
        requested = requested_settings(TrainingRequest(settings=[*SMALL, *settings], **files))
        folder = RunFolder(tmp_path / name)
        training_data = prepare(folder, requested, said.append).training_data
        model = Transformer(
            training_data.config.model, training_data.vocabularies.source.size, training_data.vocabularies.target.size
        )
        return Trainer(folder, training_data, model, choose_device("cpu"), SilentReporter())

    plain, ones, mixed = (
        prepared("plain"),
        prepared("ones", "data.weights=1,1,1"),
        prepared("mixed", "data.weights=1,2,9"),
    )
    shares = [line.partition("): ")[2] for line in said if line.startswith("corpus ")]
    assert shares[3:6] == shares[:3]
    assert shares[6:] == [
        "300 pairs x 1 = 25.0 % of an epoch",
        "0 pairs x 2 = 0.0 % of an epoch",
        "100 pairs x 9 = 75.0 % of an epoch",
    ]
    assert (
        [p.tolist() for p in plain.windows.passes(3, 0)]
        == [p.tolist() for p in ones.windows.passes(3, 0)]
        == [list(range(400))]
    )
    assert mixed.steps_per_epoch == pytest.approx(3 * plain.steps_per_epoch, rel=0.1)


def test_weights_may_not_change(reversal: dict[str, str], corpora: list[str], tmp_path: Path) -> None:
    files = {"train": [(path,) for path in corpora[1::2]], "valid": [(reversal["valid"],)], "quiet": True}
    short = [*SMALL, "train.steps=3"]
    transduce.train(tmp_path / "run", **files, settings=[*short, "data.weights=1,1,2"])  # type: ignore[arg-type]
    assert read_config(RunFolder(tmp_path / "run")).data.weights == ("1", "1", "2")
    with pytest.raises(RunError, match=r"data.weights = \('1', '1', '2'\), not \('1', '1', '3'\)"):
        transduce.train(tmp_path / "run", **files, settings=[*short, "data.weights=1,1,3"])  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="3 for 1 corpora"):
        transduce.train(tmp_path / "run", train=files["train"][:1], quiet=True)  # type: ignore[index]


# --- fine-tuning -----------------------------------------------------------------------------------------------


def test_starting_from_another_run(finished: Path, reversal: dict[str, str], tmp_path: Path) -> None:
    settings = [s for s in SMALL if not s.startswith("model.")]
    result = transduce.train(
        tmp_path / "tuned", train=[(reversal["train"],)], valid=[(reversal["valid"],)], start_from=str(finished),
        settings=[*settings, "train.steps=1", "train.learning_rate=1e-9"], quiet=True,
    )  # fmt: skip
    assert result.steps == 1
    tuned = read_tensors(RunFolder(tmp_path / "tuned").weights("last"))
    start = transduce.load(finished).model
    for name, parameter in start.named_parameters():
        torch.testing.assert_close(tuned[name], parameter.detach(), atol=1e-6, rtol=0)
    assert (tmp_path / "tuned" / "vocabulary.spm").read_bytes() == (finished / "vocabulary.spm").read_bytes()


def test_fine_tuning_keeps_the_languages_unless_told_otherwise(
    reversal: dict[str, str], finished: Path, tmp_path: Path
) -> None:
    named = shutil.copytree(finished, tmp_path / "named")
    config = read_config(RunFolder(named))
    named_data = dataclasses.replace(config.data, languages=("xx", "yy"))
    write_config(RunFolder(named), dataclasses.replace(config, data=named_data))
    for languages, kept in (((), ("xx", "yy")), (("aa", "bb"), ("aa", "bb"))):
        files = {"train": reversal["train"], "valid": reversal["valid"]}
        requested = requested_settings(TrainingRequest(languages=languages, start_from=named, **files))
        prepared = prepare(RunFolder(tmp_path / "-".join(kept)), requested, lambda line: None)
        assert prepared.training_data.config.data.languages == kept


def test_among_equal_scores_the_smaller_loss_is_better() -> None:
    def rank(score: float, loss: float, higher: bool = True) -> float:
        return ValidationResult(loss, Scores((Score("BLEU", score, "", higher),)), []).rank

    assert rank(0, 5.5) > rank(0, 6.3) > rank(0, math.inf)
    assert rank(0.01, 9) > rank(0, 1)
    assert rank(20, 9, higher=False) > rank(20.01, 1, higher=False)


def test_fine_tuning_killed_before_its_first_checkpoint_still_starts_from_the_other_run(
    finished: Path, reversal: dict[str, str], tmp_path: Path
) -> None:
    settings = [s for s in SMALL if not s.startswith("model.")] + ["train.steps=1", "train.learning_rate=1e-9"]
    files = {"train": [(reversal["train"],)], "valid": [(reversal["valid"],)]}
    transduce.train(tmp_path / "tuned", **files, start_from=str(finished), settings=settings, quiet=True)  # type: ignore[arg-type]
    once = final_hash(tmp_path / "tuned")
    shutil.rmtree(tmp_path / "tuned" / "checkpoints")
    for weights in (tmp_path / "tuned").glob("*.safetensors"):
        weights.unlink()
    transduce.train(tmp_path / "tuned", quiet=True)
    assert final_hash(tmp_path / "tuned") == once


def final_hash(run: Path) -> str:
    return read_about(RunFolder(run).weights("last"))["sha256"]


def test_a_run_killed_while_it_wrote_its_first_files_begins_anew(reversal: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "vocabulary.spm").write_bytes(b"half")
    (run / ".config.toml.123").write_text("half")
    assert run_training(run, reversal, "train.steps=3").steps == 3


def test_fine_tuning_says_every_setting_it_changes(finished: Path, reversal: dict[str, str], tmp_path: Path) -> None:
    heard, files = Heard(), {"train": [(reversal["train"],)], "valid": [(reversal["valid"],)]}
    settings = ["train.steps=1", "train.threads=1", "model.dropout=0.25"]
    request = TrainingRequest(start_from=finished, settings=settings, **files)
    train_model(tmp_path / "tuned", request, reporter=heard)
    [line] = [line for line in heard.lines if line.startswith(f"settings that differ from {finished}: ")]
    told = dict(
        change.split(" ", 1) for change in line.removeprefix(f"settings that differ from {finished}: ").split(", ")
    )
    assert told["model.dropout"] == "0.1 -> 0.25"
    old, new = (read_config(RunFolder(run)) for run in (finished, tmp_path / "tuned"))
    changed = set(differences(old, new)) - NEW_FOR_EACH_RUN
    assert "train.learning_rate" in changed
    assert set(told) == changed


def test_what_does_not_fit_the_other_run_is_refused_by_name(
    finished: Path, reversal: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=r"model.d_model = 64: the model .* has 32, and a fine-tuned"):
        run_training(tmp_path / "tuned", reversal, "model.d_model=64", start_from=str(finished))


# --- it learns -------------------------------------------------------------------------------------------------


@pytest.mark.timeout(240)
def test_must_learn_to_reverse(reversal: dict[str, str], tmp_path: Path) -> None:
    """Through the real command line: a small model says sequences it has never seen backwards."""
    run = tmp_path / "learned"
    larger = "model.dropout=0 train.steps=600 train.validate_every=100 train.tokens_per_batch=500 train.positions_per_microbatch=0"
    assert main([*command(run, reversal)[3:], *larger.split(), "model.d_model=64", "model.d_ff=128", "--quiet"]) == 0
    model = transduce.load(run)
    lines = [line.split("\t") for line in Path(reversal["valid"]).read_text().split("\n") if line]
    evaluation = model.evaluate([line[0] for line in lines], [line[1] for line in lines])
    assert evaluation.scores.main.value < 5.0  # PER, percent


def test_r_drop_learns_too(reversal: dict[str, str], tmp_path: Path) -> None:
    """Through the real command line and with dropout: the validation loss, without R-Drop, falls well below chance."""
    run = tmp_path / "consistent"
    longer = "train.steps=120 train.validate_every=40 train.tokens_per_batch=500 train.positions_per_microbatch=0"
    assert main([*command(run, reversal)[3:], *longer.split(), "train.r_drop=5", "--quiet"]) == 0
    losses = [float(str(line["loss"])) for line in log_of(run) if line["event"] == "valid"]
    assert losses[-1] < 1.7 < math.log(7)  # six letters and the end
    assert losses[-1] < losses[0]


def test_where_few_lines_are_scored_the_loss_decides() -> None:
    """35 words told an untrained model and a trained one apart by chance."""
    scores = [Scores([Score("PER", value, "", higher_is_better=False)]) for value in (98.0, 106.9)]
    early = ValidationResult(loss=3.1, scores=scores[0], samples=[], lines=35, by_loss=True)
    late = ValidationResult(loss=1.4, scores=scores[1], samples=[], lines=35, by_loss=True)
    assert late.rank > early.rank
    assert dataclasses.replace(late, by_loss=False).rank < dataclasses.replace(early, by_loss=False).rank


@pytest.mark.parametrize(
    ("metric", "decides"),
    [("auto", "token error rate"), ("loss", "loss"), ("exact-match", "exact match"), ("ter", "TER")],
)
def test_the_setting_chooses_which_metric_decides_the_best_checkpoint(
    reversal: dict[str, str], tmp_path: Path, metric: str, decides: str
) -> None:
    run, setting = tmp_path / "run", f"train.best_metric={metric}"
    run_training(run, reversal, setting, "train.steps=12", "train.validate_every=4", "data.task=symbols")
    run_training(run, reversal, setting, "train.steps=24", "train.validate_every=4", "data.task=symbols")
    valid = [line for line in log_of(run) if line["event"] == "valid"]
    about = read_about(RunFolder(run).weights("best"))
    values = {line["step"]: _ranked(line, decides) for line in valid}
    best = max(values.values())
    assert values[int(about["step"])] == best, "also across a resume"
    card = (run / "README.md").read_text()
    assert f"(`train.best_metric = {metric}`)" in card
    assert "by the loss" in card if metric == "loss" else f"by {decides}" in card


def _ranked(line: dict[str, object], decides: str) -> float:
    """The figure that decides, so that higher is better."""
    if decides == "loss":
        return -float(str(line["loss"]))
    scores = line["scores"]
    assert isinstance(scores, dict)
    score = scores[decides]
    return float(score["value"]) if score["higher_is_better"] else -float(score["value"])


def test_another_metric_for_the_best_checkpoint_cannot_resume_a_run(finished: Path, reversal: dict[str, str]) -> None:
    with pytest.raises(RunError, match=r"train\.best_metric"):
        run_training(finished, reversal, "train.best_metric=loss", "train.steps=30")


def test_few_lines_leave_the_choice_to_the_loss_unless_a_metric_is_set() -> None:
    auto, bleu, loss = (TrainConfig(best_metric=name) for name in ("auto", "bleu", "loss"))  # type: ignore[arg-type]
    assert [ranks_by_loss(auto, lines, 1_000) for lines in (35, 500)] == [True, False]
    assert not ranks_by_loss(bleu, 35, 1_000)
    assert ranks_by_loss(loss, 1_000, 1_000)


def test_fewer_minutes_than_a_run_has_had_are_over(
    finished: Path, reversal: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "shorter"
    shutil.copytree(finished, run)
    assert main([*command(run, reversal)[3:], "train.steps=0", "train.minutes=0.001"]) == 0
    assert "already finished at step 24" in capfd.readouterr().err


def test_the_speed_shown_is_of_steps_that_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU queues many steps in a moment: 7 M tokens/s were shown where 1.1 M was true."""
    now, shown = [100.0], []

    class Listening(SilentReporter):
        def step(self, report: StepReport) -> None:
            shown.append(report.tokens_per_second)

    monkeypatch.setattr("transduce.training.report.time.perf_counter", lambda: now[0])
    (tmp_path / "run").mkdir()
    progress = Progress()
    logger = MetricsLogger(RunFolder(tmp_path / "run"), progress, Listening())
    for _ in range(50):
        now[0] += 0.02
        progress.step, progress.logged_tokens = progress.step + 1, progress.logged_tokens + 1_000
        logger.step(progress, 1_000, 1_000)
    logger.log(progress, 1e-3, 1.0)
    for _ in range(40):  # queued, not done
        now[0] += 1e-5
        logger.step(progress, 1_000, 1_000)
    logger.close()
    assert max(shown) == pytest.approx(50_000, rel=0.01)
