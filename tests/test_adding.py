"""docs/adding-a-model.md: its file is a family that trains, resumes and translates, and names that are taken are refused."""

import re
import runpy
from pathlib import Path

import pytest

from tests.families import write_pairs
from transduce import config as settings
from transduce import model as models
from transduce.cli import main
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
    next_lines = capsys.readouterr().err.partition("\nnext: ")[2].splitlines()
    assert next_lines[0] == f"python {script} translate {folder / 'run'} < input > output"
    assert next_lines[1].strip().startswith(f"or: python {script} evaluate ")
    (folder / "in").write_text("a b c\nd e\n", encoding="utf-8")
    capsys.readouterr()
    run(script, monkeypatch, "translate", str(folder / "run"), str(folder / "in"), "--quiet")
    assert capsys.readouterr().out.count("\n") == 2
    run(script, monkeypatch, "settings", "tiny-gru")
    assert "layers = 1" in capsys.readouterr().out
    settings.FAMILIES.pop("tiny-gru")
    assert main(["translate", str(folder / "run"), str(folder / "in")]) == 2
    said = capsys.readouterr().err
    assert "model.family = tiny-gru: this family is not part of Transduce: run the file that registers it" in said


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(SettingError, match=r"model\.family = rnn: there is a family of this name"):
        models.register("rnn", settings.FAMILIES["rnn"], models.FAMILIES["rnn"])
