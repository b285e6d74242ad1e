"""Resuming: a run that was stopped or killed ends with the weights of one that never was."""

import dataclasses
import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from small_runs import (
    SMALL,
    _cache,
    command,
    final_hash,
    final_weights,
    finished,
    log_of,
    reversal,
    run_training,
    unthinned,
)

import transduce
from transduce import checkpoint
from transduce.checkpoint import RunFolder
from transduce.cli import main
from transduce.config import TrainConfig
from transduce.errors import DataError, RunError, TrainingError
from transduce.training.checkpoint_manager import CheckpointManager
from transduce.training.clock import duration
from transduce.training.loop import Trainer
from transduce.training.progress import Progress, last_step
from transduce.training.run import described_times
from transduce.translator import read_config, write_config


@pytest.mark.numerics
def test_the_same_run_twice_is_the_same(finished: Path, reversal: dict[str, str], tmp_path: Path) -> None:
    run_training(tmp_path / "again", reversal)
    assert final_weights(tmp_path / "again") == final_weights(finished)
    assert log_of(tmp_path / "again") == log_of(finished)


def test_a_finished_run_is_left_as_it_is(finished: Path, reversal: dict[str, str]) -> None:
    before = {p: p.read_bytes() for p in finished.glob("*.safetensors")} | {0: log_of(finished)}  # type: ignore[dict-item]
    run_training(finished, reversal)
    assert before == {p: p.read_bytes() for p in finished.glob("*.safetensors")} | {0: log_of(finished)}


def test_the_times_of_training_and_of_the_command_are_both_named(
    finished: Path, reversal: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert described_times(42, 78) == "42 s of training (this command took 78 s)"
    assert described_times(1.234, 1.234) == f"{duration(1.234)} of training"
    assert main(command(finished, reversal)[3:]) == 0
    assert re.search(
        r"\nfinished 24 steps in \S+ s of training( \(this command took \S+ s\))?: ", capfd.readouterr().err
    )


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


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
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
    run_training(run, reversal)
    assert final_weights(run) == final_weights(finished)
    assert log_of(run) == log_of(finished)


def test_a_signal_before_the_first_step_saves_nothing_and_starts_over(
    finished: Path,
    reversal: dict[str, str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = tmp_path / "at-once"
    monkeypatch.setattr(Trainer, "try_largest", lambda trainer: os.kill(os.getpid(), signal.SIGINT))
    assert main(command(run, reversal)[3:]) == 128 + signal.SIGINT
    said = capfd.readouterr().err.splitlines()[-1]
    assert (
        said == "transduce: stopped before the first step, so nothing was saved; rerun the same command to start over"
    )
    assert not list(run.rglob("*.safetensors"))
    monkeypatch.undo()
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    run_training(run, reversal)
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


def test_a_kill_while_a_checkpoint_is_replaced_loses_nothing(
    finished: Path, reversal: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The only checkpoint had been renamed, and the new one was not in its place."""
    run = tmp_path / "killed"
    shutil.copytree(finished, run)
    (path,) = (run / "checkpoints").iterdir()
    path.rename(path.with_name(f".{path.name}.123.replaced"))
    assert checkpoint.leftovers(RunFolder(run)) == []  # `transduce clean` deletes these
    assert main([*command(run, reversal)[3:], "train.steps=25"]) == 0
    assert "resuming at step 24" in capfd.readouterr().err


def test_a_checkpoint_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, real = RunFolder(tmp_path), os.replace
    old = checkpoint.Checkpoint({"x": torch.zeros(1)}, {}, {"step": 1})
    path = checkpoint.save(folder, 1, old, {})

    def fail(source: Path, target: Path) -> None:
        if target == path and not str(source).endswith(".replaced"):
            raise OSError(5, "Input/output error")
        real(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(TrainingError, match="Input/output error"):
        checkpoint.save(folder, 1, checkpoint.Checkpoint({"x": torch.ones(1)}, {}, {"step": 1}), {})
    assert checkpoint.restore(path).weights["x"].item() == 0
    assert [one.name for one in folder.checkpoints.iterdir()] == [path.name]


def test_a_longer_budget_goes_on(finished: Path, reversal: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "longer"
    shutil.copytree(finished, run)
    result = run_training(run, reversal, "train.steps=30")
    assert result.steps == 30
    assert "steps = 30" in (run / "config.toml").read_text()


def test_a_budget_that_ends_the_run_at_once_is_named(
    reversal: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "shorter"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointManager, "finish", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_training(run, reversal, "train.steps=4")
    write_config(
        RunFolder(run),
        dataclasses.replace(
            read_config(RunFolder(run)), train=dataclasses.replace(read_config(RunFolder(run)).train, steps=30)
        ),
    )
    assert main([*command(run, reversal)[3:], "train.steps=2"]) == 0
    assert (
        "this run had a budget of 30 steps, of which 4 are used; with --steps 2 it ends now\n" in capfd.readouterr().err
    )


def _interrupt(manager: CheckpointManager) -> None:
    raise KeyboardInterrupt


def test_nothing_else_may_change(finished: Path, reversal: dict[str, str]) -> None:
    with pytest.raises(
        RunError,
        match=r"this run has model.d_model = 32, not 64. model.d_model cannot change when a run is resumed; "
        r"only these can: data\.train \(only the path of the same data\), .*train\.steps, train\.epochs, train\.minutes, .*train\.log_every",
    ):
        run_training(finished, reversal, "model.d_model=64")


def test_the_family_may_not_change_either(finished: Path, reversal: dict[str, str]) -> None:
    """Its settings have other names; the one that is named is the one that was asked for."""
    files = {"train": reversal["train"], "valid": reversal["valid"]}
    with pytest.raises(
        RunError, match=r"this run has model\.family = transformer, not rnn\. model\.family cannot change"
    ):
        transduce.train(finished, **files, settings=["model.family=rnn"], quiet=True)  # type: ignore[arg-type]


def test_changed_data_is_refused(finished: Path, reversal: dict[str, str], tmp_path: Path) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("a b\tb a\n")
    with pytest.raises(DataError, match="the training data has changed since this run started"):
        run_training(finished, {"train": str(other), "valid": reversal["valid"]})


def test_data_that_was_moved_can_be_given_again(reversal: dict[str, str], tmp_path: Path) -> None:
    moved = {
        side: str(shutil.copy(path, tmp_path / f"{side}.tsv"))
        for side, path in reversal.items()
        if side in ("train", "valid")
    }
    run_training(tmp_path / "run", moved, "train.steps=1")
    new = str(shutil.move(moved["train"], tmp_path / "moved.tsv"))
    told = r"train\.tsv: cannot be read: no such file; if you moved it, give its new place: --train NEW\.tsv \(the content must"
    with pytest.raises(DataError, match=told):
        transduce.train(tmp_path / "run", quiet=True)
    assert transduce.train(tmp_path / "run", train=[(new,)], settings=["train.steps=2"], quiet=True).steps == 2


def test_one_process_a_run(finished: Path, reversal: dict[str, str]) -> None:
    from transduce.run_lock import alone_in

    with alone_in(RunFolder(finished)), pytest.raises(RunError, match="another process is training this run; wait"):
        run_training(finished, reversal)


def test_a_run_folder_that_cannot_be_written_is_named(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "touch", fail)
    with pytest.raises(RunError, match=r": the run folder cannot be written: read-only file system$"):
        transduce.train(finished, quiet=True)


def test_progress_of_an_older_version_is_read() -> None:
    old = {"step": 7, "measured": 40, "measured_minutes": 2.0, "pause_every": 3, "seconds": 9.5, "layout": "padded"}
    progress = Progress.of(old)
    assert (progress.step, progress.spent) == (7, 9.5)
    assert last_step(TrainConfig(steps=0, minutes=2.0), [10], progress) == 40  # and a finished one is still finished


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
        "train.steps=8",
        f"data.cache={tmp_path}/cache",
    ]
    options = ["--train", reversal["train"], "--valid", reversal["valid"], "--quiet", "--set", *text]
    assert main(["train", str(tmp_path / "here"), *options]) == 0
    subprocess.run([sys.executable, "-m", "transduce", "train", str(tmp_path / "there"), *options], check=True)
    assert final_weights(tmp_path / "here") == final_weights(tmp_path / "there")


def test_sampled_segmentations_are_kept_as_long_as_a_checkpoint_needs_them(
    reversal: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch is a single step, so that eight of them lie between two checkpoints."""
    run, cache = tmp_path / "run", tmp_path / "cache"
    monkeypatch.setattr(CheckpointManager, "finish", lambda manager: None)
    text = [
        *SMALL,
        "data.task=translation",
        "data.subword_sampling=0.3",
        "data.vocabulary_size=60",
        "data.unknown=unk",
        "train.tokens_per_batch=10000",
        "train.checkpoint_every=8",
        "train.average=0",
        f"data.cache={cache}",
    ]
    options = ["--train", reversal["train"], "--valid", reversal["valid"], "--quiet", "--set", *text]
    assert main(["train", str(run), *options]) == 0
    before = final_hash(run)
    assert sorted(int(path.name.rpartition("-")[2]) for path in cache.glob("sampled-*")) == list(range(16, 24))
    shutil.rmtree(checkpoint.checkpoint_path(RunFolder(run), 24))
    subprocess.run([sys.executable, "-m", "transduce", "train", str(run), *options], check=True)
    assert final_hash(run) == before


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


def test_a_run_killed_while_it_wrote_its_first_files_begins_anew(reversal: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "vocabulary.spm").write_bytes(b"half")
    (run / ".config.toml.123").write_text("half")
    assert run_training(run, reversal, "train.steps=3").steps == 3


def test_another_metric_for_the_best_checkpoint_cannot_resume_a_run(finished: Path, reversal: dict[str, str]) -> None:
    with pytest.raises(RunError, match=r"train\.best_metric"):
        run_training(finished, reversal, "train.best_metric=loss", "train.steps=30")


def test_a_run_with_names_of_languages_is_resumed(reversal: dict[str, str], finished: Path, tmp_path: Path) -> None:
    """Older versions accepted names where codes belong."""
    run = RunFolder(shutil.copytree(finished, tmp_path / "named"))
    config = read_config(run)
    data = dataclasses.replace(config.data, languages=("german", "english"))
    write_config(run, dataclasses.replace(config, data=data))
    assert run_training(run.path, reversal, "train.steps=30").steps == 30
    assert transduce.load(run.path).config.data.languages == ("german", "english")


def test_a_run_that_began_with_a_tab_inside_a_text_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines had more columns than the first one, which a new run refuses."""
    lines = [f"{number} a\t{number} b" for number in range(40)]
    (tmp_path / "pairs.tsv").write_text("\n".join([*lines, "Ich\thabe\tTabs.\tI have tabs."]) + "\n")
    train = partial(transduce.train, tmp_path / "run", train=tmp_path / "pairs.tsv", quiet=True)
    settings = {"model.d_model": 16, "model.num_heads": 2, "data.source_units": "char", "data.target_units": "char"}
    with pytest.raises(DataError, match="4 columns where the first line has 2"):
        train(steps=2, settings=settings)
    with monkeypatch.context() as before:
        before.setattr("transduce.data.corpus.TableParser.read_first", lambda parser, first: False)
        train(steps=2, settings=settings)
    assert train(steps=4).steps == 4
