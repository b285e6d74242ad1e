"""benchmarks/records.py: tasks have the form that their recipes ask for, recipes are compared on validation data, cells resume, and votes elect."""

import argparse
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from transduce.paper.cells import Cell, Task, is_available, read_lines
from transduce.paper.results import Figures, Results

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
try:
    import records
    from cells import record_tasks, session, votes
    from cells.records import ENGLISH_WORDS, IN_CMUDICT, RECORDS, Record, best_recipe, find_cell, missing, record_of
    from pages import records as records_page
    from pages.parts import DOCS as PAGES
finally:
    sys.path.pop(0)

TINY = "model.d_model=16 model.d_ff=16 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1"
WORDS = {"abc": "A B C", "cab": "C A B", "bac": "B A C", "한": "H AN"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Tiny files in the places of the public ones."""
    folder = tmp_path / "data"
    files = {split: "".join(f"{word}\t{sounds}\n" for word, sounds in WORDS.items()) for split in record_tasks.SPLITS}
    for track, languages in record_tasks.PRONOUNCED.items():
        for language in languages:
            for split, text in files.items():
                write(folder / "sigmorphon2021-g2p" / track / language / f"{split}.tsv", text)
    for name in ("train-high", "valid", "test"):
        write(folder / "conll2017-inflection" / "german" / f"{name}.tsv", "gehen\tging\tV;PST\nsehen\tsah\tV;PST\n" * 4)
    for split in record_tasks.SPLITS:
        write(folder / "cmudict" / f"{split}.tsv", "a\tAH0\na\tEY1\nab\tAE1 B\n")
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def make(name: str, data: Path, form: record_tasks.Form | None = None) -> Task:
    return record_tasks.make_task(name, form or record_tasks.Form(), data, data.parent / "files")


# --- tasks ----------------------------------------------------------------------------------------------------------


def test_inflection_has_features_as_symbols(data: Path) -> None:
    task = make("inflection german", data, record_tasks.Form(both_ways=True))
    assert read_lines(task.test.source)[0] == "gehen ;V;PST"
    assert read_lines(task.test.target)[0] == "ging"
    train = read_lines(Path(task.train[0][0]))
    assert (train[0], train[8]) == ("gehen\tging\tV;PST", "ging\tgehen\tLEMMA;V;PST")
    assert task.score(["ging", "x"], ["ging", "sah"]).value == 50.0


def test_pronunciation_is_tagged_where_languages_are_learned_together(data: Path) -> None:
    apart, together = make("g2p low ice", data), make("g2p low", data)
    assert read_lines(apart.test.source) == list(WORDS)
    assert len(together.train) == len(together.valid_groups) == 10
    assert read_lines(together.test.source)[0] == ">>ady<< abc"
    assert record_tasks.language_of(">>ady<< abc") == "ady"
    assert record_tasks.language_of("abc") == ""
    assert together.score(["A B C", "x"], ["A B C", "A"]).value == 50.0


def test_forms_change_the_training_data(data: Path) -> None:
    joined = make("g2p low ice", data, record_tasks.Form(joined=3))
    lines = read_lines(Path(joined.train[0][0]))
    assert len(lines) == 4 * len(WORDS)
    assert all(" | " in line.split("\t")[1] for line in lines[len(WORDS) :])
    decomposed = make("g2p medium kor", data, record_tasks.Form(decomposed=True))
    assert [len(word) for word in read_lines(decomposed.test.source)] == [3, 3, 3, 3]
    assert len(make("g2p low", data, record_tasks.Form(with_medium=True)).train) == 20
    with_cmudict = make("g2p high eng_us", data, record_tasks.Form(with_cmudict=True))
    assert "data.tags=eng_us,cmudict" in with_cmudict.settings
    assert read_lines(with_cmudict.test.source)[0] == ">>eng_us<< abc"


# --- recipes and cells ----------------------------------------------------------------------------------------------


def test_every_recipe_is_a_setting_of_this_version(data: Path) -> None:
    keys = [c.key for r in RECORDS for recipe in r.recipes for p in ("tuning", "test") for c in r.cells(recipe, p)]
    assert len(set(keys)) == len(keys)
    for record in RECORDS:
        for recipe in record.recipes:
            (first, *_) = record.cells(recipe, "test")
            task = () if record.name in ("multi30k", "inflection") else make(first.task, data, recipe.form).settings
            assert is_available((*task, *first.settings)), recipe.name
            assert find_cell(RECORDS, first.key) == first
            assert record_of(first.task) is record


def chosen(out: Path, data: Path, *arguments: str) -> argparse.Namespace:
    given = {
        "data": data,
        "out": out,
        "only": [],
        "set": TINY.split(),
        "lines": None,
        "scale": 1e-4,
        "recipe": "",
        "side_by_side": 2,
    }
    return argparse.Namespace(**given, until=1e12)


def line_of(cell: Cell, valid: float, higher: bool) -> Figures:
    name = cell.task.removeprefix(record_of(cell.task).name).strip()
    figures = {"key": cell.key, "task": cell.task, "system": cell.system, "purpose": cell.purpose, "seed": cell.seed}
    figures |= {"date": "2026-11-17"}
    figures |= {"settings": list(cell.settings), "steps": cell.steps}
    scores = {"valid": valid, "valid_by_language": {name: valid}, "test_by_language": {name: valid}, "score": valid}
    return (
        figures
        | scores
        | {"higher_is_better": higher, "command_s": 1.0, "hardware": "h", "whole_s": 40.0, "at_once": 2}
    )


def test_the_best_recipe_on_validation_data_is_tested(tmp_path: Path, data: Path) -> None:
    record, results = RECORDS[0], Results(tmp_path / "records.jsonl")
    asked = chosen(tmp_path, data)
    tuning = missing(record, results, asked)
    assert {cell.purpose for cell in tuning} == {"tuning"}
    assert len(tuning) == len(record.recipes) * len(record.tried_on)
    assert best_recipe(record, results) is None
    for cell in tuning:
        results.lines.append(
            line_of(
                session.scaled(cell, asked.scale, asked.set),
                90.0 + (cell.system == record.recipes[1].name),
                higher=True,
            )
        )
    assert best_recipe(record, results) == record.recipes[1]
    tests = missing(record, results, asked)
    assert len(tests) == len(record.languages) * record.seeds
    assert {(cell.purpose, cell.system, cell.tested) for cell in tests} == {("test", record.recipes[1].name, True)}
    assert missing(record, results, replace_recipe(asked, record.recipes[0].name))[0].system == record.recipes[0].name
    assert records.expected_s(record, results, at_once=2) == 45.0
    results.lines += [line_of(cell, 96.0, higher=True) for cell in tests]
    page = records_page.replaced((PAGES / "records.md").read_text(encoding="utf-8"), results)
    assert f"| 96.00 (96.00 to 96.00), {record.seeds} seeds |" in page
    assert f"| {record.recipes[1].name} | 91.00 |" in page
    assert f"| {record.recipes[1].name} | 1 to {record.seeds} | all {len(record.languages)} | 96.00" in page


def test_every_recipe_that_was_tested_is_shown() -> None:
    """Also one that a later recipe replaced, and seeds that have only some of the languages."""
    results = session.read_results("records")
    page = (PAGES / "records.md").read_text(encoding="utf-8")
    for line in results.find(purpose="test"):
        groups = records_page.tested_groups(record_of(line["task"]), results)
        (found,) = [one for one in groups if line in one.lines]
        assert f"| {line['date']} | {found.recipe} |" in page
    low = records_page.tested_groups(record_of("g2p low"), results)
    assert [(one.recipe, len(one.seeds)) for one in low] == [
        ("together, rotary, Muon", 10),
        ("together, concatenated, rotary, Muon", 10),
    ]
    assert "yes, by the vote" in records_page.summary(record_of("g2p low"), results)
    assert "no, by one model" in records_page.summary(record_of("g2p medium"), results)


def replace_recipe(asked: argparse.Namespace, name: str) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(asked), "recipe": name})


def test_a_recipe_that_a_record_does_not_have_is_refused(tmp_path: Path, data: Path) -> None:
    asked = replace_recipe(chosen(tmp_path, data), "apart")
    with pytest.raises(
        SystemExit, match="--recipe apart: g2p low has no such recipe, only: together, together, rotary"
    ):
        missing(record_of("g2p low"), Results(tmp_path / "records.jsonl"), asked)


def test_of_error_rates_the_lowest_is_the_best(tmp_path: Path, data: Path) -> None:
    record, results = record_of("g2p high"), Results(tmp_path / "records.jsonl")
    for cell in missing(record, results, chosen(tmp_path, data)):
        results.lines.append(line_of(cell, 30.0 - (cell.system == record.recipes[-1].name), higher=False))
    assert best_recipe(record, results) == record.recipes[-1]


def test_a_vote_adds_probabilities() -> None:
    members = [[[("a", math.log(0.6)), ("b", math.log(0.4))]], [[("b", math.log(0.5)), ("c", math.log(0.3))]]]
    assert votes.vote(members) == ["b"]
    assert votes.vote(members[:1]) == ["a"]
    assert votes.vote([[[]], [[]]]) == [""]


@pytest.mark.slow
def test_a_cell_is_trained_in_a_process_and_voted_on(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    small = replace(record_of("g2p medium"), languages=("dut",), seeds=1)
    asked = replace_recipe(chosen(tmp_path / "out", data), "apart")
    results = Results.read(tmp_path / "out" / "records.jsonl")
    monkeypatch.setattr(session, "RESULTS", tmp_path / "none")
    assert records.run(small, results, asked), capsys.readouterr().out
    assert [(line["seed"], line["at_once"]) for line in results.lines] == [(1, 2)]
    assert records.run(small, results, asked)  # nothing is left to do
    first, second = (votes.candidates_of(asked.out, cell.key) for cell in two_seeds(small))
    second.write_bytes(first.read_bytes())
    records.add_votes(replace(small, seeds=2), results, asked)
    assert results.lines[-1]["members"] == 2
    assert results.lines[-1]["test_by_language"].keys() == {"dut"}
    kept = json.loads(votes.candidates_of(asked.out, results.lines[0]["key"]).read_text(encoding="utf-8"))
    assert len(kept["test"]) == len(WORDS)


def two_seeds(record: Record) -> list[Cell]:
    return list(replace(record, seeds=2).cells(record.recipes[0], "test"))


def test_no_cell_is_begun_that_would_not_end_in_time(tmp_path: Path, data: Path) -> None:
    late = argparse.Namespace(**{**vars(chosen(tmp_path, data)), "until": 0.0})
    assert not records.run(record_of("g2p high"), Results(tmp_path / "records.jsonl"), late)
    assert not (tmp_path / "logs").exists()


def test_how_many_english_words_cmudict_has(shared_data: Path) -> None:
    known = {row[0] for row in record_tasks.read_rows(shared_data / "cmudict" / "train.tsv")}
    for split, count in IN_CMUDICT.items():
        rows = record_tasks.read_rows(shared_data / "sigmorphon2021-g2p" / "high" / "eng_us" / f"{split}.tsv")
        assert (len(rows), sum(row[0] in known for row in rows)) == (ENGLISH_WORDS, count)


def test_the_table_says_what_a_reader_must_know_of_a_recipe() -> None:
    results = session.read_results("records")
    shown = records_page.summary(record_of("g2p high"), results)
    assert "256, with CMUdict, whose training file has 2,074 of the 4,168 test words (see Method)" in shown


def test_the_page_is_generated() -> None:
    written = (PAGES / "records.md").read_text(encoding="utf-8")
    assert written == records_page.replaced(written, session.read_results("records"))
