"""The public functions of `transduce`, on a frozen model folder: what the verbs of the command line call."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import transduce
from transduce.cores import IDLE_THREADS, REPEATABLE
from transduce.errors import MissingExtra, RunError, SettingError
from transduce.translator import Translator

FROZEN = Path(__file__).parent / "frozen" / "0.1.0"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(FROZEN, tmp_path_factory.mktemp("api") / "run")


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    return transduce.load(run, engine="torch", threads=1)


# --- models ----------------------------------------------------------------------------------------------------


def test_load_gives_the_translator_of_the_command_line(translator: Translator) -> None:
    assert type(translator) is Translator is transduce.Translator


def test_load_reads_the_weights_unless_it_is_lazy(run: Path, tmp_path: Path) -> None:
    empty = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("*.safetensors", "ct2"))
    translator = transduce.load(empty, lazy=True)
    with pytest.raises(RunError, match="no weights"):
        translator.translate(["the cat"])
    with pytest.raises(RunError, match="no weights"):
        transduce.load(empty)


def test_functions_take_a_folder_or_a_translator(run: Path, translator: Translator) -> None:
    lines = ["the cat", "seven dogs"]
    texts = transduce.translate(translator, lines, beam=2)
    assert texts == translator.translate(lines, beam=2)
    assert len(transduce.translate(run, lines)) == 2
    assert transduce.score(translator, lines, texts) == translator.score(lines, texts)
    found = transduce.evaluate(translator, lines, texts, beam=2, metrics="exact-match")
    assert found.outputs == texts


def test_an_n_best_list_gets_the_beam_it_needs(translator: Translator) -> None:
    [found] = translator.n_best(["the cat"], 6, beam=2)
    assert len(found.outputs) == 6
    assert translator.request(n_best=6).beam == 6
    assert translator.request(beam=2, n_best=6).beam == 6
    assert translator.request(beam=8, n_best=6).beam == 8
    assert translator.request(beam=2, n_best=6, sampling=True).beam == 2


@pytest.mark.parametrize("lines", ["the cat", ["the cat", 3], [("gehen", "V;PST")]])
def test_lines_are_lists_of_strings(translator: Translator, lines: list[str]) -> None:
    calls = [translator.translate, translator.sample, translator.evaluate, lambda some: translator.n_best(some, 2)]
    for call in [*calls, lambda some: translator.score(some, ["a"])]:
        with pytest.raises(TypeError, match="pass a list of strings"):
            call(lines)  # type: ignore[operator]
    if isinstance(lines, str):
        with pytest.raises(TypeError, match="pass a list of strings"):
            next(translator.stream(lines))


@pytest.mark.parametrize("ending", ["svg", "html"])
def test_attention_is_returned_and_written(translator: Translator, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"attention.{ending}"
    seen = transduce.attention(translator, "the cat", output=file)
    assert file.stat().st_size > 1_000
    assert seen.text == translator.translate(["the cat"])[0]
    assert transduce.attention(translator, "the cat", seen.text).target == seen.target
    with pytest.raises(SettingError, match="the sentence is empty"):
        transduce.attention(translator, " ")
    with pytest.raises(SettingError, match="must end in"):
        translator.attention("the cat", picture="a.bmp")


def test_a_server_without_its_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch, run: Path) -> None:
    monkeypatch.setattr("transduce.api.exchange.find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=r"pip install 'transduce\[serve\]'"):
        transduce.serve([str(run)])


@pytest.mark.parametrize("budget", [{"minutes": -0.5}, {"steps": -1}, {"epochs": -1.0}])
def test_a_budget_is_not_negative(tmp_path: Path, budget: dict[str, float]) -> None:
    with pytest.raises(SettingError, match="must not be negative"):
        transduce.train(tmp_path / "run", train="pairs.tsv", **budget)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_backtranslation_takes_an_open_file(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mono.txt").write_text("the cat\r\n\nseven dogs\n")
    options = transduce.LoadOptions(engine="torch", threads=1)
    with open(tmp_path / "mono.txt", newline="") as file:
        made = transduce.backtranslate(run, file, tmp_path / "made", options=options, quiet=True)
    assert made.given.read_text() == "the cat\nseven dogs\n"
    assert (made.lines, made.left_out) == (2, 1)


# --- threads ---------------------------------------------------------------------------------------------------


def environment_after(program: str, names: Iterable[str] = IDLE_THREADS, **given: str) -> dict[str, str]:
    """The variables of these names at the end of a Python program."""
    clean = {name: value for name, value in os.environ.items() if name not in names}
    show = (
        f"{program}\nimport os, json; print(json.dumps({{n: os.environ[n] for n in {list(names)} if n in os.environ}}))"
    )
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True, env=clean | given)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_idle_threads_are_tuned_by_the_first_call_and_not_by_the_import(run: Path) -> None:
    load = f"transduce.load({str(run)!r}, lazy=True)"
    assert environment_after("import transduce; transduce.load") == {}
    assert environment_after(f"import transduce; {load}") == IDLE_THREADS
    assert environment_after(f"import transduce; {load}", OMP_WAIT_POLICY="ACTIVE")["OMP_WAIT_POLICY"] == "ACTIVE"
    assert environment_after(f"import torch, transduce; {load}", [*IDLE_THREADS, *REPEATABLE]) == REPEATABLE
