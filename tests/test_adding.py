"""docs/adding-a-model.md: its file is a family that trains, resumes and translates, and names that are taken are refused."""

import re
import runpy
from pathlib import Path

import pytest
import torch

from tests.families import SIZE, SOURCES, TARGETS, logits, write_pairs
from transduce import config as settings
from transduce import model as models
from transduce.errors import SettingError

PAGE = Path(__file__).parents[1] / "docs" / "adding-a-model.md"
SMALL = "model.d_model=16 train.device=cpu train.threads=1 train.tokens_per_batch=200 train.validate_lines=2 train.average=0"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the page shows; the families are as before at the end."""
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    for table in (settings.FAMILIES, models.FAMILIES):
        monkeypatch.setitem(table, "tiny-gru", table["transformer"])  # so that the entry is removed afterwards
    found = re.search(r"<!-- example.*?```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert found
    (tmp_path / "tiny_gru.py").write_text(found[1], encoding="utf-8")
    return tmp_path / "tiny_gru.py"


def run(script: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """The file as a program."""
    for table in (settings.FAMILIES, models.FAMILIES):
        table.pop("tiny-gru", None)
    monkeypatch.setattr("sys.argv", [script.name, *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0


def test_the_file_of_the_page_is_a_family(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = script.parent
    asked = ["--set", "model.family=tiny-gru", "--set", "model.layers=2"]
    small = [part for one in SMALL.split() for part in ("--set", one)]
    run(
        script,
        monkeypatch,
        "train",
        str(folder / "run"),
        "--train",
        write_pairs(folder),
        "--steps",
        "3",
        *small,
        *asked,
    )
    run(script, monkeypatch, "train", str(folder / "run"), "--steps", "5")
    (folder / "in").write_text("a b c\nd e\n", encoding="utf-8")
    capsys.readouterr()
    run(script, monkeypatch, "translate", str(folder / "run"), str(folder / "in"), "--quiet")
    assert capsys.readouterr().out.count("\n") == 2
    run(script, monkeypatch, "settings", "tiny-gru")
    assert "layers = 1" in capsys.readouterr().out


def test_the_example_uses_its_dropout(script: Path) -> None:
    names = runpy.run_path(str(script))
    torch.manual_seed(1)
    model = names["TinyGru"](names["TinyGruConfig"](family="tiny-gru", d_model=16, dropout=0.5), SIZE, SIZE)
    assert not torch.equal(logits(model, SOURCES, TARGETS), logits(model, SOURCES, TARGETS))
    model.eval()
    assert torch.equal(logits(model, SOURCES, TARGETS), logits(model, SOURCES, TARGETS))


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(SettingError, match=r"model\.family = rnn: there is a family of this name"):
        models.register("rnn", settings.FAMILIES["rnn"], models.FAMILIES["rnn"])
