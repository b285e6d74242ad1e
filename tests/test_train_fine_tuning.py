"""Fine-tuning: runs that start from the weights of another."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch
from small_runs import SMALL, Heard, _cache, final_hash, finished, reversal, run_training

import transduce
from transduce.checkpoint import RunFolder, read_tensors
from transduce.config import Time, cpu_machine, differences
from transduce.errors import SettingError
from transduce.training import TrainingRequest, choices
from transduce.training import train as train_model
from transduce.training.choices import NEW_FOR_EACH_RUN
from transduce.training.prepare import prepare
from transduce.training.request import requested_settings
from transduce.translator import read_config, write_config


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


def test_fine_tuning_in_little_time_keeps_adam(
    reversal: dict[str, str], finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new model gets Muon in so little time; it was not measured in fine-tuning."""
    monkeypatch.setattr(choices, "time_for", lambda *_: Time(cpu_machine(1_000), 5.0))  # on any machine
    files = {
        "train": reversal["train"],
        "valid": reversal["valid"],
        "settings": ["train.minutes=0.2", "train.device=cpu"],
    }
    found = {}
    for start in ("", str(finished)):
        requested = requested_settings(TrainingRequest(start_from=start, **files))  # type: ignore[arg-type]
        config = prepare(RunFolder(tmp_path / f"run{bool(start)}"), requested, lambda line: None).training_data.config
        found[bool(start)] = config.train.optimizer
    assert found == {False: "muon", True: "adam"}


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


def test_fine_tuning_says_nothing_about_a_recommended_shape(
    finished: Path, reversal: dict[str, str], tmp_path: Path
) -> None:
    heard, files = Heard(), {"train": [(reversal["train"],)], "valid": [(reversal["valid"],)]}
    settings = ["train.steps=1", "train.minutes=0.02", "train.threads=1"]
    train_model(tmp_path / "tuned", TrainingRequest(start_from=finished, settings=settings, **files), reporter=heard)
    assert not [line for line in heard.lines if "would be best" in line or "recommended" in line]


def test_what_does_not_fit_the_other_run_is_refused_by_name(
    finished: Path, reversal: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=r"model.d_model = 64: the model .* has 32, and a fine-tuned"):
        run_training(tmp_path / "tuned", reversal, "model.d_model=64", start_from=str(finished))
