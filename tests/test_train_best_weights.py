"""Which weights are the best ones, by which metric, and what the averaged ones are."""

import dataclasses
import math
import shutil
from pathlib import Path

import pytest
import torch
from small_runs import SUMMARY, _cache, final_hash, final_weights, finished, log_of, reversal, run_training, unthinned

import transduce
from transduce import checkpoint
from transduce.checkpoint import RunFolder, read_about, read_tensors
from transduce.config import TrainConfig
from transduce.metrics import Score, Scores
from transduce.training.card import write_card
from transduce.training.progress import Progress
from transduce.training.ranking import decider, described
from transduce.training.report import Terminal
from transduce.training.validation import ValidationResult
from transduce.translator import better_weights, read_config


def test_averaged_is_the_mean_of_the_last_checkpoints(unthinned: Path) -> None:
    folder = RunFolder(unthinned)
    parts = [read_tensors(checkpoint.checkpoint_path(folder, s) / "weights.safetensors") for s in (12, 18, 24)]
    for name, tensor in read_tensors(folder.weights("averaged")).items():
        torch.testing.assert_close(tensor, torch.stack([part[name] for part in parts]).mean(0))


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


def test_among_equal_scores_the_smaller_loss_is_better() -> None:
    def rank(score: float, loss: float, higher: bool = True) -> float:
        return ValidationResult(loss, Scores((Score("BLEU", score, "", higher),)), []).rank

    assert rank(0, 5.5) > rank(0, 6.3) > rank(0, math.inf)
    assert rank(0.01, 9) > rank(0, 1)
    assert rank(20, 9, higher=False) > rank(20.01, 1, higher=False)


def test_where_few_lines_are_scored_the_loss_decides() -> None:
    """35 words told an untrained model and a trained one apart by chance."""
    scores = [Scores([Score("PER", value, "", higher_is_better=False)]) for value in (98.0, 106.9)]
    early = ValidationResult(loss=3.1, scores=scores[0], samples=[], lines=35, decider="loss")
    late = ValidationResult(loss=1.4, scores=scores[1], samples=[], lines=35, decider="loss")
    assert late.rank > early.rank
    assert dataclasses.replace(late, decider="metric").rank < dataclasses.replace(early, decider="metric").rank


def chosen(name: str, *validations: tuple[float, float], higher: bool = True, best: float = -math.inf) -> list[int]:
    """Which of these validations, each a score with its loss, are better than the best one before them."""
    made = [
        ValidationResult(loss, Scores((Score(name, score, "", higher),)), [], decider="loss at first")
        for score, loss in validations
    ]
    better = []
    for number, one in enumerate(made):
        if one.is_better_than(best):
            best = one.rank
            better.append(number)
    return better


def test_near_its_worst_value_a_metric_leaves_the_choice_to_the_loss() -> None:
    assert chosen("BLEU", (0.03, 6.1), (0.02, 4.2), (0.5, 4.4), (4.9, 3.9)) == [0, 1, 3]
    assert chosen("PER", (98.0, 3.1), (106.9, 1.4), (95.1, 1.5), higher=False) == [0, 1]
    assert chosen("exact match", (0.3, 2.0), (0.1, 1.0)) == [0, 1]


def test_from_five_points_on_the_metric_decides() -> None:
    assert chosen("BLEU", (4.9, 3.0), (5.0, 3.2), (4.9, 2.0), (7.0, 3.5), (6.9, 2.0)) == [0, 1, 3]
    assert chosen("PER", (95.1, 1.4), (95.0, 2.0), (99.0, 1.0), (60.0, 2.5), higher=False) == [0, 1, 3]


@pytest.mark.parametrize(("name", "higher", "low", "high"), [("BLEU", True, 0.03, 30.0), ("PER", False, 98.0, 20.0)])
def test_a_low_score_that_an_older_version_ranked_does_not_count(
    name: str, higher: bool, low: float, high: float
) -> None:
    """Otherwise a resumed run would wait for a score of 5 points, and its patience might end it before."""

    def older(score: float) -> float:
        return (score if higher else -score) - 1e-6 * 8.7

    assert chosen(name, (low, 4.2), (low, 4.1), (low, 4.3), higher=higher, best=older(low)) == [0, 1]
    assert chosen(name, (low, 4.2), higher=higher, best=older(high)) == []
    stored = {"step": 400, "best_rank": older(low), "best_score": f"{name} {low:.2f}", "waited": 3}
    assert chosen(name, (low, 4.2), higher=higher, best=Progress.of(stored).best_rank) == [0]


def test_a_run_says_when_the_metric_decides(capsys: pytest.CaptureFixture[str]) -> None:
    bleu, rate = Score("BLEU", 0.03, "", True), Score("PER", 98.0, "", False)
    assert described("loss at first", bleu) == "BLEU, and by loss until BLEU reaches 5"
    assert described("loss at first", rate) == "PER, and by loss until PER falls to 95"
    assert (described("metric", bleu), described("loss", bleu)) == ("BLEU", "loss")
    early = ValidationResult(6.1, Scores((bleu,)), [], decider="loss at first")
    assert (early.deciding, early.decided_by) == ("loss 6.1000", "loss")
    Terminal().validated("valid", 200, early, better=True)
    Terminal().validated("valid", 400, dataclasses.replace(early, decider="metric"), better=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("  (")[2] for line in lines] == ["best so far, by loss)", "best so far)"]


@pytest.mark.parametrize(
    ("metric", "decides"),
    [("token-error-rate", "token error rate"), ("loss", "loss"), ("exact-match", "exact match"), ("ter", "TER")],
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


@pytest.mark.parametrize(("points", "decides"), [(5.0, "loss"), (-1_000.0, "token error rate")])
def test_unless_a_metric_is_set_the_loss_decides_while_the_error_rate_is_above_95(
    reversal: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, points: float, decides: str
) -> None:
    """In these few steps the rate goes up and down above 95: the loss decides unless far worse rates are taken as good."""
    monkeypatch.setattr("transduce.training.ranking.POINTS", points)
    run = tmp_path / "run"
    for steps in (12, 24):
        run_training(run, reversal, f"train.steps={steps}", "train.validate_every=4", "data.task=symbols")
    valid = [line for line in log_of(run) if line["event"] == "valid"]
    assert {line["decided_by"] for line in valid} == {decides}
    about = read_about(RunFolder(run).weights("best"))
    values = {line["step"]: _ranked(line, decides) for line in valid}
    assert values[int(about["step"])] == max(values.values()), "also across a resume"
    assert about["ranked_by"] == decides
    near = "the loss, because its token error rate is near that of an untrained model"
    measured = near if decides == "loss" else "token error rate, the main metric of the task"
    assert f"measured by {measured} (`train.best_metric = auto`)" in (run / "README.md").read_text()


def _ranked(line: dict[str, object], decides: str) -> float:
    """The figure that decides, so that higher is better."""
    if decides == "loss":
        return -float(str(line["loss"]))
    scores = line["scores"]
    assert isinstance(scores, dict)
    score = scores[decides]
    return float(score["value"]) if score["higher_is_better"] else -float(score["value"])


def test_few_lines_leave_the_choice_to_the_loss_unless_a_metric_is_set() -> None:
    auto, bleu, loss = (TrainConfig(best_metric=name) for name in ("auto", "bleu", "loss"))  # type: ignore[arg-type]
    assert [decider(auto, lines, 1_000) for lines in (35, 500)] == ["loss", "loss at first"]
    assert [decider(bleu, lines, 1_000) for lines in (35, 500)] == ["metric", "metric"]
    assert decider(loss, 1_000, 1_000) == "loss"
