"""When a run ends: minutes, steps, epochs and early stopping."""

import dataclasses
import json
import math
import re
import shutil
import time
from pathlib import Path

import pytest
from small_runs import SMALL, Heard, _cache, command, finished, log_of, reversal, run_training, trainer_of

import transduce
from transduce import checkpoint
from transduce.checkpoint import RunFolder, read_about
from transduce.cli import main
from transduce.config import TrainConfig, assignments
from transduce.training import TrainingRequest, clock, loop, train
from transduce.training.clock import Clock
from transduce.training.loop import Trainer
from transduce.training.plan import Costs, Plan
from transduce.training.progress import Progress
from transduce.training.validation import ValidationResult, describe_validation


def test_early_stopping(reversal: dict[str, str], tmp_path: Path) -> None:
    result = run_training(
        tmp_path / "early", reversal, "train.learning_rate=1e-9", "train.patience=2", "train.steps=400"
    )
    assert result.steps < 60


def test_a_run_without_patience_says_what_trains_it_further(
    reversal: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A larger budget does not."""
    settings = ["train.learning_rate=1e-9", "train.patience=2", "train.validate_every=2"]
    steps = run_training(tmp_path / "early", reversal, *settings, "train.steps=30").steps
    assert main([*command(tmp_path / "early", reversal)[3:], *settings, "train.steps=40"]) == 0
    waited = f"already finished at step {steps}; to train further, set train.patience above 2, or to 0\n"
    assert waited in capfd.readouterr().err
    assert run_training(tmp_path / "early", reversal, *settings, "train.patience=0", "train.steps=32").steps == 32


PLANNED = ("train.steps=0", "train.validate_every=0", "train.checkpoint_every=0", "train.average=2")


def plans_of(run: Path) -> list[dict[str, float]]:
    return [line for line in log_of(run) if line["event"] == "plan"]  # type: ignore[misc]


def enough_minutes(data: dict[str, str], folder: Path) -> float:
    """Several times what a run of one step takes, which is long on a busy machine."""
    begun = time.perf_counter()
    run_training(folder / "one-step", data, "train.steps=1")
    return max(0.1, 5 * (time.perf_counter() - begun) / 60)


def test_minutes_are_the_time_of_the_whole_run(reversal: dict[str, str], tmp_path: Path) -> None:
    """Never much longer; how exactly they are met is measured by benchmarks/budgets.py."""
    minutes = enough_minutes(reversal, tmp_path)
    run, begun = tmp_path / "minutes", time.perf_counter()
    result = run_training(run, reversal, *PLANNED, f"train.minutes={minutes}")
    assert 0.5 < (time.perf_counter() - begun) / (60 * minutes) < 4
    plans = plans_of(run)
    assert len(plans) > 1  # made, and revised on the way; how often is in test_plan.py
    assert plans[-1]["last_step"] == pytest.approx(result.steps, rel=0.5)  # steps vary with what else the machine does
    assert [plan["left"] for plan in plans] == sorted((plan["left"] for plan in plans), reverse=True)
    saved = checkpoint.restore(checkpoint.checkpoint_path(RunFolder(run), result.steps)).progress
    assert saved["plan"]["last_step"] == result.steps
    assert run_training(run, reversal, *PLANNED, f"train.minutes={minutes}").steps == result.steps  # and is over


def test_a_plan_that_the_pace_contradicts_is_corrected_in_one_line(
    reversal: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "step_seconds", lambda trainer: 1.0)  # many times what it takes
    heard, minutes = Heard(), enough_minutes(reversal, tmp_path)
    settings = assignments([*SMALL, *PLANNED, f"train.minutes={minutes}"])
    train(
        tmp_path / "run",
        TrainingRequest(train=reversal["train"], valid=reversal["valid"], settings=settings),
        reporter=heard,
    )
    corrections = [line for line in heard.lines if re.match(r"plan: [\d,]+ steps instead of [\d,]+, because ", line)]
    assert len(corrections) == 1
    assert "a step takes 0." in corrections[0]


FEW, MANY = 10, 25  # lines of a validation, and of the final score; the validation data has 30


@pytest.fixture
def few_lines(reversal: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """A run whose minutes allow few lines per validation and more at the end, and what it said."""
    monkeypatch.setattr(clock, "lines_for", lambda minutes, seconds_per_line, most: FEW)
    monkeypatch.setattr(Clock, "affordable_lines", lambda self, most: min(MANY, most))
    heard, settings = Heard(), [*SMALL, *PLANNED, "train.steps=40", "train.minutes=30", "train.validate_lines=28"]
    files = {"train": ((reversal["train"],),), "valid": ((reversal["valid"],),)}
    train(tmp_path / "few", TrainingRequest(**files, settings=assignments(settings)), reporter=heard)
    return tmp_path / "few", heard.lines


def test_how_many_lines_a_validation_scores_is_said(
    few_lines: tuple[Path, list[str]], reversal: dict[str, str], tmp_path: Path
) -> None:
    run, said = few_lines
    chosen = "the best weights are chosen by loss"
    assert f"each validation scores {FEW} of 30 lines, to keep to 30 minutes; {chosen}" in said
    assert any(f" on {MANY} of 30 validation lines with greedy search (weights: " in line for line in said)
    events = {line["event"]: line for line in log_of(run)}
    assert (events["valid"]["lines"], events["valid"]["all_lines"]) == (FEW, 30)
    assert (events["final"]["lines"], events["final"]["decided_by"]) == (MANY, "loss")


@pytest.mark.parametrize(("lines", "anew"), [(FEW, False), (FEW + 2, True)])
def test_scores_of_other_lines_no_longer_count_and_a_message_says_so(
    few_lines: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch, lines: int, anew: bool
) -> None:
    monkeypatch.setattr(clock, "lines_for", lambda minutes, seconds_per_line, most: lines)
    (run, before), heard = few_lines, Heard()
    ranks: list[float] = []
    monkeypatch.setattr(ValidationResult, "is_better_than", lambda self, best: ranks.append(best) or True)
    train(run, TrainingRequest(settings=["train.steps=44", "train.minutes=31"]), reporter=heard)
    assert (ranks[0] == -math.inf) == anew
    assert any("the best weights are chosen anew" in line for line in heard.lines) == anew
    assert not any("chosen anew" in line for line in before)


def test_the_chosen_weights_are_scored_on_more_lines_at_the_end(
    few_lines: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = few_lines
    (status,) = transduce.runs(run)
    assert (status.lines, status.all_lines) == (MANY, 30)
    chosen = read_about(RunFolder(run).weights(status.weights))
    final = next(line for line in log_of(run) if line["event"] == "final")
    assert float(chosen["loss"]) == pytest.approx(final["loss"], abs=1e-6)
    assert (chosen["ranked_by"], chosen["ranked_lines"]) == ("loss", str(FEW))
    ranked = [line["loss"] for line in log_of(run) if line["event"] in ("valid", "averaged")]
    assert -float(chosen["rank"]) == pytest.approx(min(ranked), abs=1e-9)  # type: ignore[type-var]
    other = read_about(RunFolder(run).weights("best" if status.weights == "averaged" else "averaged"))
    assert other["lines"] == str(FEW)
    card = (run / "README.md").read_text()
    assert f"| {MANY} of 30 |" in card
    assert f"the best validation result on {FEW} of 30 lines, measured by the loss" in card
    assert main(["runs", str(run)]) == 0
    assert f"on {MANY} of 30 lines" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("setting", "scored"),
    [("train.validate_lines=1000", "all 30 lines"), ("train.validate_lines=12", "12 of 30 lines, as train.validate_lines says")],
)  # fmt: skip
def test_without_minutes_a_validation_scores_as_many_lines_as_its_setting_says(
    reversal: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str], setting: str, scored: str
) -> None:
    assert main([*command(tmp_path / "run", reversal, "train.steps=1", setting)[3:]]) == 0
    assert f"each validation scores {scored}; the best weights are chosen by " in capfd.readouterr().err
    assert "final" not in {line["event"] for line in log_of(tmp_path / "run")}


@pytest.mark.parametrize(("minutes", "shown"), [(1.0, "1 minute;"), (2.5, "2.5 minutes;")])
def test_one_minute_is_singular(finished: Path, minutes: float, shown: str) -> None:
    data = trainer_of(finished, f"train.minutes={minutes}").training_data
    assert f"to keep to {shown}" in describe_validation(data, data.valid_texts.first(5), 20)


def test_the_final_score_takes_what_is_left_of_the_minutes() -> None:
    plan = Plan(2.0, 0.0, 0, 1.0, 100, 10, False, lines=50)
    costs = Costs(step=0.1, validation=5.0, checkpoint=1.0, closing=2.0)
    now = time.perf_counter()
    left = {
        spent: Clock(_minutes(2), Progress(plan=plan), 10, costs, now - spent).affordable_lines(900)
        for spent in (0, 97, 150)
    }
    assert left[0] == 900
    assert left[97] == pytest.approx(200, abs=3)  # 20 s at a tenth of a second for each line
    assert left[150] == 0
    assert Clock(_minutes(0), Progress(), 10, costs, now).affordable_lines(900) == 0


def _minutes(minutes: float) -> TrainConfig:
    return TrainConfig(minutes=minutes)


def test_a_killed_run_keeps_its_plan(reversal: dict[str, str], tmp_path: Path) -> None:
    """The plan stands in the checkpoint: what another clock would say does not change it."""
    run, minutes = tmp_path / "killed", enough_minutes(reversal, tmp_path)

    def killed(trainer: Trainer) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_finish", killed)
        with pytest.raises(KeyboardInterrupt):
            run_training(run, reversal, *PLANNED, f"train.minutes={minutes}")
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
    settings = f"train.minutes={spent / 60 + enough_minutes(reversal, tmp_path)}"
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


def test_a_fraction_of_an_epoch_is_at_least_a_step(reversal: dict[str, str], tmp_path: Path) -> None:
    assert run_training(tmp_path / "epochs", reversal, "train.steps=0", "train.epochs=0.001").steps == 1


@pytest.mark.parametrize("epochs", [["--epochs", "0"], ["--set", "train.epochs=0"]])
def test_a_budget_of_0_is_no_limit(
    reversal: dict[str, str], tmp_path: Path, epochs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command(tmp_path / "run", reversal)[3:], *epochs, "--steps", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 3


def test_fewer_minutes_than_a_run_has_had_are_over(
    finished: Path, reversal: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "shorter"
    shutil.copytree(finished, run)
    assert main([*command(run, reversal)[3:], "train.steps=0", "train.minutes=0.001"]) == 0
    assert "already finished at step 24" in capfd.readouterr().err
