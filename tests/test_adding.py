"""docs/adding-a-model.md: its file is a family that trains, resumes and translates, and names that are taken are refused."""

import re
import runpy
from pathlib import Path

import pytest
import torch

from tests.families import write_pairs
from transduce import config as settings
from transduce import model as models
from transduce.cli import main
from transduce.errors import SettingError
from transduce.model import Family, Tokens, check_family
from transduce.model.checks import PAD, SIZE, SOURCES, TARGETS, logits, shifted

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


def run(script: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, status: int = 0) -> None:
    """The file as a program."""
    for table in (settings.FAMILIES, models.FAMILIES):
        table.pop("tiny-gru", None)
    monkeypatch.setattr("sys.argv", [script.name, *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == status


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


def test_the_example_checks_itself(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(script, monkeypatch, "check")
    assert capsys.readouterr().out == "all checks passed\n"


def test_a_check_that_fails_is_the_exit_status(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace("self.hidden = self.hidden.index_select(1, rows)", "pass"), encoding="utf-8")
    run(script, monkeypatch, "check", status=1)


WRONG = {  # what the example does, what a wrong one does, and the lines that the check gives
    "decode sees the future": (
        "return self.dropout(self.decoder(x, memory)[0])",
        "return self.dropout(self.decoder(x, memory)[0] + x.mean(1, keepdim=True))",
        [
            "step: at target position 0 its logits are not those of project(decode(...)), which was trained",
            "encode or decode: padding changes the output of a sentence: ignore positions where real is False",
            "decode: a later target token changes an earlier position, so training sees what it must predict",
        ],
    ),
    "decode sees the next token": (
        "return self.dropout(self.decoder(x, memory)[0])",
        "return self.dropout(self.decoder(x, memory)[0] + x.roll(-1, 1) * target.real.roll(-1, 1)[..., None])",
        [
            "step: at target position 0 its logits are not those of project(decode(...)), which was trained",
            "decode: a later target token changes an earlier position, so training sees what it must predict",
        ],
    ),
    "step has a dimension too many": (
        "return self.project(hidden[:, 0])",
        "return self.project(hidden)",
        ["step: its result has the shape [3, 1, 11] instead of [3, 11]"],
    ),
    "select does nothing": (
        "self.hidden = self.hidden.index_select(1, rows)",
        "pass",
        ["state.select([2, 2, 0]): the next step is not that of these rows: select everything that has rows, including the memory"],
    ),
    "select drops rows only": (
        "self.hidden = self.hidden.index_select(1, rows)",
        "self.hidden = self.hidden.index_select(1, rows)[:, :3]",
        ["state.select([0, 0, 2, 2, 1]): the next step is not that of these rows: RuntimeError"],
    ),
    "a state without select": (
        "def select(self",
        "def choose(self",
        ["begin: the state is a TinyGruState without the method select(rows), with which search reorders beams"],
    ),
    "encode reads padding": (
        "lengths = source.real.sum(1).cpu()",
        "lengths = source.real.sum(1).cpu().fill_(source.width)",
        ["encode or decode: padding changes the output of a sentence: ignore positions where real is False"],
    ),
    "encode reads no order and no words": (
        "x = self.dropout(self.source_embedding(source.ids.long()))",
        "x = self.dropout(self.source_embedding(source.ids.long() * 0))",
        [
            *(f"encode: the source token at position {position} of 4 changes no output" for position in range(3)),
        ],
    ),
    "dropout in evaluation": (
        "self.dropout = Dropout(config.dropout)",
        "self.dropout = lambda x: nn.functional.dropout(x, 0.1)",
        ["decode: two passes differ in evaluation mode, where nothing may be random: use transduce.model.Dropout"],
    ),
    "no dropout": (
        "self.dropout = Dropout(config.dropout)",
        "self.dropout = nn.Identity()",
        ["model.dropout: it changes nothing in training: use transduce.model.Dropout(config.dropout)"],
    ),
    "a weight that nothing uses": (
        "self.dropout = Dropout(config.dropout)",
        "self.dropout = Dropout(config.dropout); self.unused = nn.Parameter(self.source_embedding.weight.detach())",
        ["loss: no gradient reaches unused"],
    ),
    "an error in begin": (
        "return TinyGruState(memory)",
        "return TinyGruState(memory + memory[:, :2])",
        ["begin (tiny_gru.py:51): RuntimeError: The size of tensor a"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_the_check_says_what_is_wrong_with_a_model(name: str, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong, expected = WRONG[name]
    text = script.read_text(encoding="utf-8")
    assert right in text
    script.write_text(text.replace(right, wrong), encoding="utf-8")
    names = runpy.run_path(str(script))
    monkeypatch.setitem(models.FAMILIES, "tiny-gru", Family(names["TinyGru"], names["flops"], names["activations"]))
    found = check_family(names["TinyGruConfig"](family="tiny-gru", d_model=16, layers=2))
    assert len(found) == len(expected), found
    for begin in expected:
        assert any(line.startswith(begin) for line in found), found
        assert all("\n" not in line for line in found)


def test_the_example_uses_its_dropout(script: Path) -> None:
    names = runpy.run_path(str(script))
    torch.manual_seed(1)
    model = names["TinyGru"](names["TinyGruConfig"](family="tiny-gru", d_model=16, dropout=0.5), SIZE, SIZE)
    assert not torch.equal(logits(model, SOURCES, TARGETS), logits(model, SOURCES, TARGETS))
    model.eval()
    assert torch.equal(logits(model, SOURCES, TARGETS), logits(model, SOURCES, TARGETS))


def test_the_attention_of_the_page_is_watched(script: Path) -> None:
    classes, use = re.findall(
        r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8").split("<!-- attention:")[1], re.S
    )
    names = runpy.run_path(str(script))
    exec(classes, names)
    model = names["AttentiveGru"](names["TinyGruConfig"](family="tiny-gru", d_model=16), SIZE, SIZE).eval()
    source, target = Tokens.padded(SOURCES, PAD), shifted(TARGETS)
    seen = {"model": model, "source": source, "target": target, "watch": models.watch}
    exec(use, seen)
    (weights,) = seen["maps"].cross
    assert weights.shape == (len(SOURCES), 1, target.width, source.width)
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(SOURCES), 1, target.width))
    assert not weights.masked_select(~source.real[:, None, None]).any()
    assert model.attend.tap is None


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(SettingError, match=r"model\.family = rnn: there is a family of this name"):
        models.register("rnn", settings.FAMILIES["rnn"], models.FAMILIES["rnn"])
