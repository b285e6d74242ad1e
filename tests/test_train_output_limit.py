"""How long outputs may become: fitted to the training pairs, and bounded in validations."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import SMALL, Heard, _cache, finished, reversal, trainer_of

from transduce.checkpoint import RunFolder
from transduce.config import assignments, build, differences
from transduce.text import EOS
from transduce.training import TrainingRequest
from transduce.training import train as train_model
from transduce.training.output_limit import fit_output_limit
from transduce.training.validation import output_limits, validate
from transduce.translator import read_config
from transduce.translator.evaluation import TestSet


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
        "chosen for this data: search.max_extra 80, because targets are up to 60 tokens longer than their sources"
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
