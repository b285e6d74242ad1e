"""Cleaning up: what no run needs goes, what any run needs stays, and an interrupted removal leaves nothing half there."""

import fcntl
import io
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import transduce
from transduce.checkpoint import RunFolder, checkpoint_path, steps_saved
from transduce.cli import main
from transduce.data import cache
from transduce.errors import RunError
from transduce.run_lock import is_training
from transduce.tracking import Cleaning, Removable, clean
from transduce.tracking.cleaning import examine

SETTINGS = {
    "model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2, "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1, "train.validate_every": 3, "train.checkpoint_every": 3, "train.threads": 1,
    "train.tokens_per_batch": 60, "data.subword_sampling": 0.1, "data.task": "translation", "data.source_units": "bpe",
    "data.target_units": "bpe", "data.vocabulary_size": 300, "search.max_extra": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cache and two finished runs, trained on different data but validated on the same."""
    folder = tmp_path_factory.mktemp("cleaning")
    os.environ["TRANSDUCE_CACHE"] = str(folder / "cache")
    for name, words in (("a", ["ab", "ba", "abba", "bab"]), ("b", ["cd", "dc", "cddc", "dcd"])):
        data = folder / f"{name}.tsv"
        data.write_text("".join(f"{word} x\t{word.upper()} y\n" for word in words * 10))
        transduce.train(
            folder / "runs" / name, train=data, valid=folder / "a.tsv", settings=SETTINGS, steps=6, quiet=True
        )
    del os.environ["TRANSDUCE_CACHE"]
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy to change, in which nothing was used lately; the runs have other paths than those in the cache's notes."""
    copy = tmp_path / "place"
    shutil.copytree(made, copy)
    monkeypatch.setenv("TRANSDUCE_CACHE", str(copy / "cache"))
    shutil.rmtree(copy / "cache" / "runs")
    age(copy / "cache")
    return copy


def age(folder: Path, hours: float = 2) -> None:
    then = time.time() - 3600 * hours
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then))


def agree(found: Cleaning) -> bool:
    return True


def test_nothing_of_a_run_that_can_be_resumed_is_removed(place: Path) -> None:
    names = {path.name.partition("-")[0] for path in cache.entries(place / "cache")}
    assert names == {"store", "sampled", "vocabulary"}
    found = clean(place / "runs", agree=agree)
    assert (found.removable, found.removed) == ([], [])
    assert found.caches[str(place / "cache")] > 1_000
    assert found.checkpoints > 1_000


def test_the_entries_are_those_that_resuming_opens(place: Path) -> None:
    """A resumed run builds nothing new: the names that cleaning keeps are the names that training asks for."""
    before = {path.name for path in cache.entries(place / "cache") if not path.name.startswith("sampled")}
    transduce.train(place / "runs" / "a", steps=7, quiet=True)
    assert {path.name for path in cache.entries(place / "cache") if not path.name.startswith("sampled")} == before


def test_what_only_a_deleted_run_needed_is_removed(place: Path) -> None:
    shutil.rmtree(place / "runs" / "b")
    before = set(cache.entries(place / "cache"))
    found = clean(place / "runs", agree=agree)
    kinds = sorted(Path(one.path).name.partition("-")[0] for one in found.removed)
    # b was trained on data of its own, and validated on the data of a with a vocabulary of its own.
    assert kinds.count("store") == 2
    assert {"sampled", "vocabulary"} <= set(kinds)
    assert set(cache.entries(place / "cache")) == before - {Path(one.path) for one in found.removed}
    assert clean(place / "runs", agree=agree).removable == []


def test_runs_elsewhere_keep_what_they_need(place: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cache.remember_run(place / "cache", place / "runs" / "a")
    removable = {one.path for one in examine(tmp_path / "empty").removable}
    only_b = {one.path for one in examine_without(place, "b")}
    assert removable == only_b


def examine_without(place: Path, run: str) -> list[Removable]:
    shutil.rmtree(place / "runs" / run)
    return examine(place / "runs").removable


def test_training_leaves_a_note(made: Path) -> None:
    assert set(cache.remembered_runs(made / "cache")) == {made / "runs" / "a", made / "runs" / "b"}


def test_what_was_used_lately_stays(place: Path) -> None:
    shutil.rmtree(place / "runs" / "b")
    removable = examine(place / "runs").removable
    os.utime(removable[0].path)
    assert examine(place / "runs").removable == removable[1:]


def test_what_is_not_known_stays(place: Path) -> None:
    (place / "cache" / "another-programs").mkdir()
    age(place / "cache")
    assert clean(place / "runs", agree=agree).removable == []


def test_a_broken_run_keeps_sampled_segmentations(place: Path) -> None:
    """They could not be made again, and a run whose settings cannot be read may need them once it is repaired."""
    shutil.rmtree(place / "runs" / "b")
    (place / "runs" / "a" / "config.toml").write_text("[broken")
    names = [Path(one.path).name for one in examine(place / "runs").removable]
    assert [name for name in names if name.startswith("sampled")] == []


def test_leftovers_of_killed_processes(place: Path) -> None:
    run = RunFolder(place / "runs" / "a")
    torn = [run.checkpoints / ".step-00000009.123", place / "cache" / ".building-x"]
    for folder in torn:
        folder.mkdir()
        (folder / "weights.safetensors").write_bytes(b"x" * 10)
    (run.path / ".best.safetensors.123").write_bytes(b"x" * 10)
    age(place / "cache")
    found = clean(place / "runs", agree=agree)
    assert {(Path(one.path).name, one.kind, one.bytes) for one in found.removed} == {
        (".step-00000009.123", "unfinished weights", 10),
        (".best.safetensors.123", "unfinished weights", 10),
        (".building-x", "unfinished data", 10),
    }
    assert not any(path.exists() for path in torn)


def plant_checkpoint(run: RunFolder) -> Path:
    """An older checkpoint, as a run has it that was killed before it deleted it."""
    old = checkpoint_path(run, 3)
    shutil.copytree(checkpoint_path(run, 6), old)
    return old


def test_old_checkpoints_of_a_finished_run_only(place: Path) -> None:
    run = RunFolder(place / "runs" / "a")
    old = plant_checkpoint(run)
    lines = run.metrics.read_text().splitlines(keepends=True)
    run.metrics.write_text("".join(lines[:-1]))  # stopped: it may need both to average
    run.card.unlink()
    assert clean(place / "runs", agree=agree).removable == []
    run.metrics.write_text("".join(lines))
    assert [one.path for one in clean(place / "runs", agree=agree).removed] == [str(old)]
    assert steps_saved(run) == [6]


def test_a_run_in_use_is_left_alone(place: Path) -> None:
    run = RunFolder(place / "runs" / "a")
    plant_checkpoint(run)
    with open(run.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_training(run)
        assert [one for one in examine(place / "runs", checkpoints=True).removable if "runs/a" in one.path] == []

    def begin(found: Cleaning) -> bool:
        """The run begins while a person thinks about the question."""
        assert any("runs/a" in one.path for one in found.removable)
        begun.append(open(run.lock, "w"))  # noqa: SIM115 - held until the test ends
        fcntl.flock(begun[0], fcntl.LOCK_EX)
        return True

    begun: list[io.TextIOWrapper] = []
    assert clean(place / "runs", agree=begin).removed == []
    assert steps_saved(run) == [3, 6]
    begun[0].close()


def test_the_checkpoints_of_finished_runs_on_request(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = place / "runs" / "a"
    before = transduce.load(run, engine="torch").translate(["ab x"])
    assert main(["clean", str(place / "runs"), "--checkpoints", "--yes"]) == 0
    assert "removed" in capsys.readouterr().err
    assert steps_saved(RunFolder(run)) == []
    assert transduce.load(run, engine="torch").translate(["ab x"]) == before
    assert {one.state for one in transduce.runs(place / "runs")} == {"finished"}
    with pytest.raises(RunError, match="its checkpoints were deleted, so this run cannot be resumed"):
        transduce.train(run, steps=9, quiet=True)
    found = clean(place / "runs")  # now no run needs prepared data
    assert {one.kind for one in found.removable} == {"prepared data"}


def test_checkpoints_that_stay_are_explained(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder(place / "runs" / "a")
    lines = run.metrics.read_text().splitlines(keepends=True)
    run.metrics.write_text("".join(lines[:-1]))
    run.card.unlink()
    assert main(["clean", str(run.path), "--checkpoints"]) == 0
    assert f"checkpoints of {run.path} stay: it is not finished" in capsys.readouterr().out
    with open(run.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert examine(run.path).kept == {str(run.path): "it is being trained"}
    shutil.rmtree(run.checkpoints)
    assert main(["clean", str(run.path), "--checkpoints"]) == 0
    assert "there are no checkpoints" in capsys.readouterr().out


def test_an_interrupted_removal_leaves_no_half(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(place / "runs" / "a")
    old = plant_checkpoint(run)
    shutil.rmtree(place / "runs" / "b")

    def interrupted(path: Path, *_: object, **__: object) -> None:
        raise OSError("the power is gone")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupted)
        clean(place / "runs", agree=agree)
    assert not old.exists()
    assert steps_saved(run) == [6]
    entries = [path for path in cache.entries(place / "cache") if not path.name.startswith(".building-")]
    assert all(cache.is_whole(path) for path in entries)
    age(place / "cache")
    left = {one.kind for one in clean(place / "runs", agree=agree).removed}
    assert left == {"unfinished data", "unfinished weights"}


# --- the command -------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_removed_without_an_answer(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(place / "runs" / "b")
    assert main(["clean", str(place / "runs")]) == 0
    printed = capsys.readouterr()
    assert "prepared data" in printed.out
    assert "nothing was removed; --yes" in printed.err
    assert main(["clean", str(place / "runs"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["removable"]
    assert found["removed"] == []


@pytest.mark.parametrize(("answer", "removes"), [("y\n", True), ("\n", False), ("", False)])
def test_a_person_is_asked(answer: str, removes: bool, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(place / "runs" / "b")
    shown = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", shown)
    assert main(["clean", str(place / "runs")]) == 0
    assert "MB? [y/N]" in shown.getvalue()
    assert bool(examine(place / "runs").removable) != removes


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", str(tmp_path / "gone")]) == 2
    assert capsys.readouterr().err == f"transduce: {tmp_path / 'gone'}: no such folder\n"


def test_nothing_to_remove(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", str(place / "runs"), "--yes"]) == 0
    assert "there is nothing to remove" in capsys.readouterr().out
