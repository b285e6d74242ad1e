"""Shortlists: learned from attention, and what the ct2 engine makes of them."""

import shutil
from pathlib import Path

import pytest

from transduce.cli import main
from transduce.derived.shortlisting import COMMON, LISTED, make_shortlist
from transduce.errors import DamagedFile, DataError, RunError, SettingError
from transduce.translator import LoadOptions, Translator

pytest.importorskip("ctranslate2", reason="pip install 'transduce[ct2]'")

pytestmark = pytest.mark.numerics

FROZEN = Path(__file__).parent / "frozen" / "0.1.0"
WORDS = "hello winter bridge transform attention water stone mother lantern planet garden silver orange".split()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FROZEN, tmp_path / "run"))


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    outputs = Translator.load(FROZEN, LoadOptions(engine="torch", threads=1)).translate(WORDS)
    rows = "".join(f"{word}\t{output}\n" for word, output in zip(WORDS, outputs, strict=True))
    (tmp_path / "pairs.tsv").write_text(rows)
    return str(tmp_path / "pairs.tsv")


def test_a_shortlist_lists_what_looked_at_each_letter(run: Path, pairs: str) -> None:
    said: list[str] = []
    path = make_shortlist(run, [(pairs,)], say=said.append)
    assert said == [f"aligned {len(WORDS)} pairs"]
    first, *rest = (line.split("\t") for line in path.read_text().removesuffix("\n").split("\n"))
    assert first[0] == ""
    assert "</s>" in first[1].split()
    assert len(first[1].split()) <= COMMON + 1
    table = {letter: listed.split() for letter, listed in rest}
    assert {letter.strip("▁") for letter in table} <= {*"".join(WORDS), ""}
    assert all(len(listed) <= LISTED for listed in table.values())
    assert any("M" in name for name in table["m"]), "what is written m sounds like it"


def test_outputs_are_of_listed_tokens_and_nearly_the_same(
    run: Path, pairs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("\n".join(WORDS) + "\n")
    command = ["translate", str(run), "--input", str(tmp_path / "in"), "--threads", "1", "--shortlist"]
    assert main(command) == 2
    assert "shortlist.txt: no such file; `transduce shortlist" in capsys.readouterr().err
    assert main(["shortlist", str(run), "--train", pairs, "--threads", "1"]) == 0
    assert "--shortlist" in capsys.readouterr().err
    assert main(command) == 0
    with_list = capsys.readouterr().out.splitlines()
    plain = Translator.load(run, LoadOptions(engine="ct2", threads=1)).translate(WORDS)
    assert sum(a == b for a, b in zip(with_list, plain, strict=True)) >= 9
    named = {name for line in (run / "shortlist.txt").read_text().split("\n") for name in line.split("\t")[-1].split()}
    assert {f"▁{sound}" for line in with_list for sound in line.split()} <= named


def test_a_new_shortlist_makes_a_new_ct2_model(run: Path, pairs: str) -> None:
    Translator.load(run, LoadOptions(engine="ct2", threads=1)).translate(["a"])
    before = {path.name for path in (run / "ct2").glob("best-*")}
    make_shortlist(run, [(pairs,)], say=lambda text: None)
    Translator.load(run, LoadOptions(engine="ct2", threads=1, shortlist=True)).translate(["a"])
    after = {path.name for path in (run / "ct2").glob("best-*")}
    assert len(before) == len(after) == 1
    assert before != after


def test_an_altered_shortlist_is_refused(run: Path, pairs: str) -> None:
    """It decides which tokens can be written at all."""
    path = make_shortlist(run, [(pairs,)], say=lambda text: None)
    text = path.read_text()
    path.write_text(text.replace("▁M", "▁N", 1))
    with pytest.raises(
        DamagedFile, match=r"shortlist\.txt: modified or incomplete .*`transduce shortlist .*` creates it again"
    ):
        Translator.load(run, LoadOptions(engine="ct2", threads=1, shortlist=True)).ready()
    path.write_text(text)
    Translator.load(run, LoadOptions(engine="ct2", threads=1, shortlist=True)).ready()


def test_what_a_shortlist_is_not_for_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="a shortlist needs the ct2 engine"):
        LoadOptions(engine="torch", shortlist=True)
    with pytest.raises(RunError, match=r"shortlist\.txt: no such file"):
        Translator.load(run, LoadOptions(shortlist=True))
    (tmp_path / "empty.tsv").write_text(" \tx\n")
    with pytest.raises(DataError, match="has no pair to learn"):
        make_shortlist(run, [(str(tmp_path / "empty.tsv"),)])
    (run / "shortlist.txt").write_text("\t</s>\n")
    translator = Translator.load(run, LoadOptions(shortlist=True, threads=1))
    with pytest.raises(SettingError, match="use engine torch without a shortlist"):
        list(translator.stream(["a"], terms=[["Z"]]))
