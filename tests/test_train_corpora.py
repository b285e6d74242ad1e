"""Several corpora with weights, and validation data that is held out."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_runs import SMALL, _cache, reversal

import transduce
from transduce import checkpoint
from transduce.checkpoint import RunFolder
from transduce.cli import main
from transduce.data import Corpus, read_pairs
from transduce.device import choose_device
from transduce.errors import RunError, SettingError
from transduce.model import Transformer
from transduce.training import SilentReporter, TrainingRequest
from transduce.training.loop import Trainer
from transduce.training.prepare import prepare
from transduce.training.request import requested_settings
from transduce.translator import read_config


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


@pytest.fixture(scope="module")
def corpora(reversal: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The options for a corpus of 300 pairs, one whose pairs are all left out, and one of 100."""
    folder = tmp_path_factory.mktemp("corpora")
    lines = Path(reversal["train"]).read_text().splitlines(keepends=True)
    parts = {"much": lines[:300], "empty": ["\ta\n", "b\t \n"], "little": lines[300:]}
    for name, part in parts.items():
        (folder / f"{name}.tsv").write_text("".join(part))
    return [word for name in parts for word in ("--train", str(folder / f"{name}.tsv"))]


SAMPLED = pytest.param(True, id="sampled", marks=pytest.mark.slow)


@pytest.mark.parametrize("sampled", [pytest.param(False, id="held out"), SAMPLED])
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
    subprocess.run([sys.executable, "-m", "transduce", *options("stopped", 10)], check=True)
    assert main(options("stopped", 24)) == 0
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
        [p.tolist() for p in plain.layout.windows.passes(3, 0)]
        == [p.tolist() for p in ones.layout.windows.passes(3, 0)]
        == [list(range(400))]
    )
    assert mixed.layout.steps_per_epoch == pytest.approx(3 * plain.layout.steps_per_epoch, rel=0.1)


def test_weights_may_not_change(reversal: dict[str, str], corpora: list[str], tmp_path: Path) -> None:
    files = {"train": [(path,) for path in corpora[1::2]], "valid": [(reversal["valid"],)], "quiet": True}
    short = [*SMALL, "train.steps=3"]
    transduce.train(tmp_path / "run", **files, settings=[*short, "data.weights=1,1,2"])  # type: ignore[arg-type]
    assert read_config(RunFolder(tmp_path / "run")).data.weights == ("1", "1", "2")
    with pytest.raises(RunError, match=r"data.weights = 1,1,2, not 1,1,3\."):
        transduce.train(tmp_path / "run", **files, settings=[*short, "data.weights=1,1,3"])  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="3 for 1 corpora"):
        transduce.train(tmp_path / "run", train=files["train"][:1], quiet=True)  # type: ignore[index]
