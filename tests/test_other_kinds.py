"""Resuming a run as something else: the line names what was typed, what the run is, and the next command."""

from pathlib import Path

import numpy as np
import pytest

import transduce
from transduce.cli import main

SMALL = {
    "model.d_model": 16, "model.d_ff": 32, "model.num_heads": 2, "train.device": "cpu", "train.steps": 1, "train.average": 0,
}  # fmt: skip
LAYERS = {"model.num_encoder_layers": 1, "model.num_decoder_layers": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one step: a translator with validation data, and a language model that holds some out."""
    path = tmp_path_factory.mktemp("other-kinds")
    words = np.random.default_rng(1).choice(["a", "b", "c", "d"], (60, 4))
    lines = "".join(f"{' '.join(line)}\n" for line in words)
    for name in ("source", "target", "text", "other"):
        (path / name).write_text(lines if name != "other" else lines + "a b\n")
    (path / "config.toml").write_text('[model]\nfamily = "rnn"\n')
    settings = SMALL | {"data.cache": str(path / "cache")}
    pairs = {"train": (path / "source", path / "target"), "valid": (path / "source", path / "target")}
    transduce.train(path / "pairs", **pairs, settings=settings | LAYERS, quiet=True)  # type: ignore[arg-type]
    transduce.train(path / "lm", text=path / "text", settings=settings | {"model.num_decoder_layers": 1}, quiet=True)
    return path


RESUME = "`transduce train {run}` resumes the run as it is"


@pytest.mark.parametrize(
    ("run", "given", "message"),
    [
        ("pairs", "--set model.family=rnn", "pairs: this run has model.family = transformer, not rnn. model.family cannot change"),
        ("pairs", "--config config.toml", "pairs: --config config.toml: this run has model.family = transformer, not rnn."),
        ("pairs", "--text text", "pairs: --text text: this run trains a model that translates. `transduce train pairs` resumes the run as "
         "it is; to train a language model, use a new folder: `transduce train NEW --text text`"),
        ("pairs", "--valid-text text", "pairs: --valid-text text: this run trains a model that translates."),
        ("pairs", "--set data.task=speech", "pairs: this run has data.task = symbols, not speech. data.task cannot change"),
        ("pairs", "--preset big", "pairs: --preset big: this run has model.d_model = 16, not 1024."),
        ("pairs", "--from lm", "pairs: --from lm: this run has train.start_from = nothing, not "),
        ("pairs", "--languages en de", "pairs: --languages en de: this run has data.languages = nothing, not en,de."),
        ("pairs", "--seed 7", "pairs: --seed: this run has train.seed = 1, not 7."),
        ("lm", "--train source target", "lm: --train source target: this run trains a model that continues text. `transduce train lm` resumes "
         "the run as it is; to train a model of pairs or recordings, use a new folder: `transduce train NEW --train source target`"),
        ("lm", "--train source target --valid source target", "lm: --train source target: this run trains a model that continues text."),
        ("lm", "--set model.family=transformer", "lm: this run has model.family = decoder, not transformer."),
        ("lm", "--set model.context=64", "lm: this run has model.context = 128, not 64. model.context cannot change"),
        ("lm", "--valid-text text", "lm: --valid-text text: this run validates on a part of its training data, which cannot change"),
    ],
)  # fmt: skip
def test_the_line_names_what_was_typed_and_the_next_command(
    folder: Path,
    run: str,
    given: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    assert main(["train", run, *given.split()]) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"transduce: {message}")
    assert RESUME.format(run=run) in last


@pytest.mark.parametrize(("run", "given"), [("pairs", "--train other other"), ("lm", "--text other")])
def test_other_data_is_named_by_its_option(
    folder: Path, run: str, given: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    option = given.split()[0]
    assert main(["train", run, *given.split()]) == 2
    assert (
        f"{run}: {given}: the training data has changed since this run started: leave out {option} to resume the run with its "
        "own data, or use a new folder" in capsys.readouterr().err
    )


@pytest.mark.parametrize("given", [["lm"], ["new", "--text", "text"]])
def test_a_preset_of_another_family_is_named(
    folder: Path, given: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert main(["train", *given, "--preset", "big"]) == 2
    assert (
        "--preset big: has settings that models of the family decoder do not have: leave it out"
        in capsys.readouterr().err
    )


def test_the_same_files_resume_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert main(["train", "lm", "--text", "text", "--steps", "2", "--quiet"]) == 0
    files = ["source", "target"]
    assert main(["train", "pairs", "--train", *files, "--valid", *files, "--steps", "2", "--quiet"]) == 0
