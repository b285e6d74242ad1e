"""What people give to `train`: files and settings in any plain form, from any folder, also after they moved."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import transduce
from transduce.checkpoint import RunFolder
from transduce.config import settings_layer
from transduce.errors import SettingError
from transduce.training import Result
from transduce.translator import read_config

TINY: dict[str, Any] = {
    "model": {"d_model": 16, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
    "train.steps": 2,
    "train.threads": 1,
    "train.tokens_per_batch": 100,
}
PAIRS = [(f"{a} {b} {c}", f"{c} {b} {a}") for a in "abcd" for b in "abcd" for c in "abcd"]


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of somebody's with data in it."""
    data = tmp_path / "project" / "data"
    data.mkdir(parents=True)
    for name, pairs in (("train", PAIRS), ("valid", PAIRS[::7])):
        (data / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
        for side, ending in enumerate(("src", "tgt")):
            (data / f"{name}.{ending}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    return tmp_path / "project"


def steps(result: Result) -> int:
    return result.steps


def test_relative_paths_are_found_from_any_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    files = {"train": ("data/train.src", "data/train.tgt"), "valid": "data/valid.tsv"}
    transduce.train("runs/first", **files, settings=TINY, quiet=True)  # type: ignore[arg-type]
    monkeypatch.chdir(project.parent)
    assert steps(transduce.train("project/runs/first", settings={"train.steps": 3}, quiet=True)) == 3
    # The very command of before, in its folder: nothing has changed.
    monkeypatch.chdir(project)
    again = transduce.train("runs/first", **files, settings=TINY | {"train.steps": 4}, quiet=True)  # type: ignore[arg-type]
    assert steps(again) == 4
    stored = read_config(RunFolder(project / "runs" / "first"))
    assert stored.data.valid == (str(project / "data" / "valid.tsv"),)


@pytest.mark.parametrize("old", [False, True], ids=["absolute paths", "relative paths of an old run"])
def test_a_run_that_moved_with_its_data_goes_on(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], old: bool
) -> None:
    monkeypatch.chdir(project)
    transduce.train("runs/first", train="data/train.tsv", valid="data/valid.tsv", settings=TINY, quiet=True)
    if old:
        config = project / "runs" / "first" / "config.toml"
        _, _, unsealed = config.read_text().partition("\n")  # the first line is a hash of the others
        config.write_text(unsealed.replace(f"{project}/", ""))
    elsewhere = shutil.move(str(project), str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path)
    assert steps(transduce.train(f"{elsewhere}/runs/first", settings={"train.steps": 3})) == 3
    said = capsys.readouterr().err
    assert f"the training data has moved: reading {elsewhere}/data/train.tsv" in said
    assert steps(transduce.train(f"{elsewhere}/runs/first", settings={"train.steps": 4})) == 4
    assert "data has moved" not in capsys.readouterr().err


def test_fine_tuning_is_resumed_from_another_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    files = {"train": "data/train.tsv", "valid": "data/valid.tsv"}
    transduce.train("runs/first", **files, settings=TINY, quiet=True)  # type: ignore[arg-type]
    train = {name: value for name, value in TINY.items() if name != "model"}
    transduce.train("runs/tuned", **files, start_from=Path("runs/first"), settings=train, quiet=True)  # type: ignore[arg-type]
    shutil.rmtree("runs/tuned/checkpoints")
    for weights in Path("runs/tuned").glob("*.safetensors"):
        weights.unlink()  # as if it had been killed before its first checkpoint
    monkeypatch.chdir("/")
    assert steps(transduce.train(project / "runs" / "tuned", quiet=True)) == 2


@pytest.mark.parametrize(
    "settings",
    [
        ["model.d_model=64", "train.steps=5", "data.weights=1,2"],
        {"model.d_model": 64, "train.steps": 5, "data.weights": ["1", "2"]},
        {"model": {"d_model": 64}, "train": {"steps": 5}, "data.weights": "1,2"},
    ],
)
def test_settings_in_any_form_are_the_same(settings: Any) -> None:
    layer = settings_layer(settings)
    assert layer["model"] == {"d_model": 64}
    assert layer["train"] == {"steps": 5}
    assert set(layer["data"]) == {"weights"}


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"d_model": 64}, "'d_model' names no setting"),
        ([("model.d_model", 64)], "write each as text, section.key=value, or give a dictionary"),
        ("nonsense", "write section.key=value"),
    ],
)
def test_settings_that_are_none_are_refused_plainly(settings: Any, complaint: str) -> None:
    with pytest.raises(SettingError, match=complaint):
        settings_layer(settings)


def test_python_takes_what_people_write(project: Path, tmp_path: Path) -> None:
    data = project / "data"
    pair = [str(data / "train.src"), str(data / "train.tgt")]
    result = transduce.train(
        tmp_path / "run", train=pair, valid=data / "valid.tsv", languages="xx yy", settings=TINY, quiet=True
    )
    assert result.steps == 2
    config = read_config(RunFolder(tmp_path / "run"))
    assert config.data.train == ("\t".join(pair),)
    assert config.data.languages == ("xx", "yy")
    assert config.model.d_model == 16
    with pytest.raises(SettingError, match=r"config must be the path of a TOML file"):
        transduce.train(tmp_path / "other", train=pair, config={"model": {"d_model": 64}})  # type: ignore[arg-type]


def test_a_budget_is_a_keyword(tmp_path: Path) -> None:
    """As `--steps` is an option; and what is no text is refused in plain words."""
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{n:b}\t{n:o}\n" for n in range(300)))
    small = {"model": {"d_model": 16, "d_ff": 16, "num_heads": 2}, "data.cache": str(tmp_path / "cache")}
    result = transduce.train(tmp_path / "run", train=data, settings=small, steps=2, quiet=True)
    assert result.steps == 2
    assert result.lines > 0
    model = transduce.load(tmp_path / "run", engine="torch")
    with pytest.raises(TypeError, match="pass a list of strings: None is not a string"):
        model.translate([None])  # type: ignore[list-item]
    assert model.evaluate(["1"], ["1"], metrics="bleu").scores.main.name == "BLEU"
