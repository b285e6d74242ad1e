"""Training as a whole: what a run leaves behind, and that it learns."""

import errno
import math
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import (
    SMALL,
    Heard,
    _cache,
    batch_of,
    command,
    finished,
    log_of,
    reversal,
    run_training,
    trainer_of,
    unthinned,
)

import transduce
from transduce import checkpoint
from transduce.checkpoint import RunFolder, read_about
from transduce.cli import main
from transduce.config import assignments
from transduce.errors import RunError, TrainingError
from transduce.metrics import Score, Scores
from transduce.training import SilentReporter, TrainingRequest, make_reporter
from transduce.training import train as train_model
from transduce.training.card import draw_curves, make_figure, training_losses
from transduce.training.card import render as render_curves
from transduce.training.clock import RunTime
from transduce.training.progress import Progress
from transduce.training.report import MetricsLogger, StepReport, _line, _share
from transduce.training.validation import SampleOutput, ValidationResult

pytestmark = pytest.mark.usefixtures("rendered_curves")


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
    assert card.startswith(f"# {finished.name}: symbol sequences\n")
    assert "(joint vocabulary)" in card
    assert "FLOPs" in card
    assert "| best |" in card
    assert read_about(RunFolder(finished).weights("best"))["signature"] in card.replace("\\|", "|")
    assert (finished / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_curves_that_cannot_be_written_do_not_end_a_finished_run(
    reversal: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.training.card.render", render_curves)

    def onto_a_folder(metrics: Path, picture: Path, dropout: bool) -> None:
        picture.mkdir()
        draw_curves(metrics, picture, dropout)

    monkeypatch.setattr("transduce.training.run.draw_curves", onto_a_folder)
    assert run_training(tmp_path / "run", reversal, "train.steps=4").steps == 4
    assert list((tmp_path / "run" / "curves.png").iterdir()) == []


def test_curves_are_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = tmp_path / "curves.png"
    picture.write_bytes(b"of an earlier command")

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("transduce.files.synchronize", full)
    with pytest.raises(TrainingError, match=r"curves.png: cannot be written \(No space left on device\)"):
        render_curves(make_figure([], dropout=False), picture)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"of an earlier command"]


def test_old_checkpoints_are_pruned(unthinned: Path) -> None:
    """While a run goes on: two full states, and the weights that averaging takes."""
    folder = RunFolder(unthinned)
    steps = checkpoint.steps_saved(folder)
    assert steps == [12, 18, 24]
    full = [s for s in steps if (checkpoint.checkpoint_path(folder, s) / "optimizer.safetensors").exists()]
    assert full == [18, 24]


def test_a_finished_run_keeps_one_checkpoint_and_says_how_to_free_it(reversal: dict[str, str], tmp_path: Path) -> None:
    run, heard = tmp_path / "run", Heard()
    files = {"train": [(reversal["train"],)], "valid": [(reversal["valid"],)]}
    train_model(run, TrainingRequest(settings=SMALL, **files), reporter=heard)
    assert checkpoint.steps_saved(RunFolder(run)) == [24]
    size = sum(path.stat().st_size for path in (run / "checkpoints" / "step-00000024").iterdir())
    weights = (run / "last.safetensors").stat().st_size
    assert checkpoint.freed_by_deleting(run / "checkpoints") == size - weights, "last.safetensors is the same file"
    said = f"you may delete {run / 'checkpoints'} ({(size - weights) / 1e6:,.1f} MB): it is only needed to train"
    assert any(line.startswith(said) for line in heard.lines)
    assert f"next: transduce translate {run} < input > output" in heard.lines
    assert f"   or: transduce evaluate {run} SOURCE REFERENCE" in heard.lines
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


@pytest.mark.parametrize("set_by", ["options", "the demonstration"])
def test_the_settings_of_a_run_are_printed_once_with_where_they_come_from(
    reversal: dict[str, str], tmp_path: Path, set_by: str
) -> None:
    heard = Heard()
    request = TrainingRequest(
        train=reversal["train"], valid=reversal["valid"], settings=[*SMALL, "train.steps=2"], set_by=set_by
    )
    train_model(tmp_path / "run", request, reporter=heard)
    said = "\n".join(heard.lines)
    assert "chosen for this data: task: symbol sequences, because " in said
    assert said.count("d_model 32") == 1
    assert re.search(r"^settings for [\d,]+ pairs: .*d_model 32,.* 2 steps, learning rate ", said, re.MULTILINE)
    origin = rf"^set by {set_by}: .*model\.d_model=32.*; all other settings have the values chosen for this data$"
    assert re.search(origin, said, re.MULTILINE)
    assert not re.search(r"d_model (?!32)", said)


def _said_of(run: Path, reversal: dict[str, str], *settings: str, **options: Any) -> str:
    """What a run of one step says."""
    heard, files = Heard(), {"train": reversal["train"], "valid": reversal["valid"]}
    request = TrainingRequest(**files, settings=["train.threads=1", "train.steps=1", *settings], **options)
    train_model(run, request, reporter=heard)
    return "\n".join(heard.lines)


def test_every_setting_that_the_user_gave_is_listed(reversal: dict[str, str], tmp_path: Path) -> None:
    """Also those on which the choice of others depends, and those that have the chosen value."""
    settings = [
        "model.family=rnn",
        "data.skip_blank_lines=true",
        "data.vocabulary_size=1000",
        "train.label_smoothing=0.1",
    ]
    said = _said_of(tmp_path / "run", reversal, *settings, "train.seed=1", "data.joint=true")
    (line,) = (line for line in said.splitlines() if line.startswith("set by options: "))
    listed = line.removeprefix("set by options: ").partition(";")[0].split(", ")
    assert {*settings, "train.seed=1", "train.threads=1", "train.steps=1", "data.joint=true"} == set(listed)


def test_settings_of_presets_and_files_are_listed_with_their_source(reversal: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[train]\nwarmup_steps = 7\n")
    said = _said_of(tmp_path / "run", reversal, preset="tiny", config=str(tmp_path / "own.toml"))
    assert re.search(r"^set by preset tiny: .*model\.d_model=", said, re.MULTILINE)
    assert "set by the configuration file: train.warmup_steps=7" in said


def test_files_languages_and_a_budget_alone_are_not_listed(reversal: dict[str, str], tmp_path: Path) -> None:
    heard = Heard()
    files = {"train": reversal["train"], "valid": reversal["valid"]}
    request = TrainingRequest(**files, settings=["train.steps=1"], languages=("en", "de"))
    train_model(tmp_path / "run", request, reporter=heard)
    assert not any("set by" in line for line in heard.lines)


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
    assert list(training_losses(steps, dropout=False)) == ["training"]
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
        assert shown == [f"    {'s' * 59}\u2026 -> output 0", "    reference: reference 0"]


@pytest.mark.parametrize(("features", "source"), [(True, "gehen V;PST"), (False, "gehen ;V;PST")])
def test_samples_have_features_as_they_are_in_the_data(
    features: bool, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = [SampleOutput("gehen ;V;PST", "gang", "ging")]
    validation = ValidationResult(1.0, Scores((Score("BLEU", 1.0, "", True),)), samples, with_features=features)
    make_reporter(quiet=False).validated("valid", 7, validation, better=True)
    assert capsys.readouterr().err.splitlines()[1:] == [f"    {source} -> gang", "    reference: ging"]


def test_samples_of_speech_have_the_name_of_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    samples = [SampleOutput("/data/a/long/folder/talk.flac#t=1.5,4&speaker=anna", "yes", "yes")]
    validation = ValidationResult(1.0, Scores((Score("WER", 1.0, "", True),)), samples, of_recordings=True)
    make_reporter(quiet=False).validated("valid", 7, validation, better=True)
    assert capsys.readouterr().err.splitlines()[1:] == ["    talk.flac -> yes", "    reference: yes"]


def test_a_run_on_features_shows_them_as_they_are_in_the_data(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    forms = tmp_path / "forms.tsv"
    forms.write_text("".join(f"{verb}\tV;PST\t{verb}te\n" for verb in ("sag", "frag", "leb", "lach")) * 5)
    files = ["--train", str(forms), "--valid", str(forms), "--columns", "source=1,features=2,target=3"]
    assert main(["train", str(tmp_path / "run"), *files, "--set", *SMALL, "train.steps=1"]) == 0
    said = capfd.readouterr().err
    assert " V;PST -> " in said
    assert " ;V;PST" not in said


REPORT = StepReport(step=120, last_step=3_300, epoch=1, loss=2.5, tokens_per_second=900.0, best="")


def test_progress_by_minutes_is_shown_as_time_and_by_steps_with_what_is_left() -> None:
    by_minutes = replace(REPORT, time=RunTime(passed=126.0, left=174.0, minutes=5.0))
    assert _line(by_minutes).startswith("2.1 of 5.0 minutes | step 120 | epoch 2 | loss 2.500 | ")
    assert _share(by_minutes) == (126.0, 300.0)
    assert _share(replace(REPORT, time=RunTime(126.0, 174.0))) == (120, 3_300)
    for left, shown in ((40.2, "40 s"), (170.0, "3 min"), (9_000.0, "2.5 h")):
        by_steps = replace(REPORT, time=RunTime(passed=126.0, left=left))
        assert _line(by_steps).startswith(f"step 120/3,300 | about {shown} left | epoch 2 | ")


@pytest.mark.parametrize("settings", [("train.steps=2",), ("train.steps=0", "train.minutes=0.05")])
def test_every_step_reports_its_time(reversal: dict[str, str], tmp_path: Path, settings: tuple[str, ...]) -> None:
    seen: list[StepReport] = []

    class Listening(SilentReporter):
        def step(self, report: StepReport) -> None:
            seen.append(report)

    files = {"train": ((reversal["train"],),), "valid": ((reversal["valid"],),)}
    request = TrainingRequest(**files, settings=assignments([*SMALL, *settings]))  # type: ignore[arg-type]
    train_model(tmp_path / "run", request, reporter=Listening())
    assert seen
    assert all(one.time and one.time.passed > 0 for one in seen)
    assert {one.time.minutes for one in seen if one.time} == {0.05 if "minutes" in settings[-1] else 0.0}


def test_the_log_is_complete(finished: Path) -> None:
    log = log_of(finished)
    assert [line["step"] for line in log if line["event"] == "train"] == list(range(3, 25, 3))
    assert [line["step"] for line in log if line["event"] == "valid"] == [8, 16, 24]
    assert [line["event"] for line in log[-2:]] == ["averaged", "finished"]
    assert list(finished.glob("tensorboard/events*"))


def test_learned_positions_translate_whatever_comes(reversal: dict[str, str], tmp_path: Path) -> None:
    learned = ["model.positions=learned", "model.max_positions=12", "data.max_length=12", "train.steps=3"]
    run_training(tmp_path / "learned", reversal, *learned)
    found = list(transduce.load(tmp_path / "learned").stream(["a b", "a b c d e f a b c d e f a b", "c"]))
    assert len(found) == 3
    assert found[1].cut == 3


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
