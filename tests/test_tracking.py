"""Lists of runs: every state, every kind of damage, what differs between two runs, and their curves."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from folders import edit_config, write_folder

import transduce
from transduce.checkpoint import RunFolder, read_about, read_tensors, write_tensors
from transduce.cli import main
from transduce.errors import DataError, RunError
from transduce.run_log import TAIL_BYTES, last_events, read_events
from transduce.tracking.listing import find_runs, status_of

SETTINGS = {
    "model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2, "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1, "train.validate_every": 3, "train.checkpoint_every": 3, "train.threads": 1,
    "train.log_every": 1, "search.max_extra": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs that differ in data, seed and steps."""
    folder = tmp_path_factory.mktemp("tracking")
    words = ["ab", "ba", "abba", "bab"]
    for name, count in (("a", 10), ("b", 11)):
        data = folder / f"{name}.tsv"
        data.write_text("".join(f"{word}\t{' '.join(word.upper())}\n" for word in words * count))
        settings = SETTINGS | {"train.seed": count, "data.cache": str(folder / "cache")}
        transduce.train(
            folder / "runs" / name, train=data, valid=folder / "a.tsv", settings=settings, steps=6, quiet=True
        )
    return folder / "runs"


@pytest.fixture
def copied(runs: Path, tmp_path: Path) -> RunFolder:
    """A copy of a run, to change."""
    subprocess.run(["cp", "-r", runs / "a", tmp_path / "run"], check=True)
    return RunFolder(tmp_path / "run")


def test_a_finished_run(runs: Path) -> None:
    first, second = transduce.runs(runs)
    assert (first.run, second.run) == (str(runs / "a"), str(runs / "b"))
    assert (first.state, first.steps, first.task) == ("finished", 6, "symbols")
    assert first.seconds is not None
    assert first.seconds > 0
    assert first.train == ((str(runs.parent / "a.tsv"),),)
    model = transduce.load(runs / "a", engine="torch").model
    assert first.parameters == sum(parameter.numel() for parameter in model.parameters())
    card = (runs / "a" / "README.md").read_text()
    assert f"{first.metric} {first.score:.2f}" in card
    assert first.signature
    assert first.signature.replace("|", "\\|") in card
    assert first.bytes <= sum(path.stat().st_size for path in (runs / "a").rglob("*") if path.is_file())


def test_a_stopped_run_and_one_that_is_running(copied: RunFolder) -> None:
    lines = copied.metrics.read_text().splitlines(keepends=True)
    assert json.loads(lines[-1])["event"] == "finished"
    copied.metrics.write_text("".join(lines[:-1]))
    copied.card.unlink()
    assert status_of(copied.path).state == "stopped"
    with open(copied.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert status_of(copied.path).state == "running"
    stopped = status_of(copied.path)
    assert (stopped.state, stopped.steps) == ("stopped", 6)
    assert stopped.seconds == pytest.approx(json.loads(lines[-1])["seconds"], abs=0.1)


def test_a_run_that_an_older_version_finished(copied: RunFolder) -> None:
    """Their logs have no last event; their model cards have the last step."""
    lines = copied.metrics.read_text().splitlines(keepends=True)
    copied.metrics.write_text("".join(lines[:-1]))
    assert status_of(copied.path).state == "finished"
    later = {"event": "train", "step": 7, "loss": 1.0}  # of a run that was resumed with a larger budget
    copied.metrics.write_text("".join([*lines[:-1], json.dumps(later) + "\n"]))
    assert status_of(copied.path).state == "stopped"


def test_a_larger_budget_unfinishes_a_run(copied: RunFolder, runs: Path) -> None:
    """The line that ends the log is after the last checkpoint, where the run is resumed."""
    transduce.train(copied.path, steps=8, quiet=True)
    events = [event["event"] for event in read_events(copied.metrics)]
    assert events.count("finished") == 1
    assert events[-1] == "finished"
    assert status_of(copied.path).steps == 8


def test_a_finished_run_that_is_resumed_and_killed_is_stopped(
    copied: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even before its first new step, when the model card still has the last step of the log."""

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("transduce.training.loop.Trainer.try_largest", killed)
    with pytest.raises(KeyboardInterrupt):
        transduce.train(copied.path, steps=8, quiet=True)
    assert read_events(copied.metrics)[-1] == {"event": "resumed", "step": 6}
    stopped = status_of(copied.path)
    assert (stopped.state, stopped.steps) == ("stopped", 6)
    monkeypatch.undo()
    transduce.train(copied.path, steps=8, quiet=True)
    assert status_of(copied.path).state == "finished"


def test_a_model_that_was_not_trained_here_is_finished(tmp_path: Path) -> None:
    [found] = transduce.runs(write_folder(tmp_path / "imported").parent)
    assert (found.state, found.steps, found.score) == ("finished", None, None)
    assert found.parameters


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("config.toml", b"[model", "config.toml: not valid TOML"),
        ("config.toml", None, "has no config.toml"),
        ("best.safetensors", b"\0" * 9, "best.safetensors: cannot be read as safetensors"),
        ("vocabulary.spm", b"another", "vocabulary.spm: modified, incomplete"),
        ("source.spm", None, "source.spm"),
        ("metrics.jsonl", b"{\n{}\n", "metrics.jsonl: the log cannot be read"),
    ],
)
def test_a_broken_run_is_listed_with_the_reason(
    file: str, content: bytes | None, reason: str, copied: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied.path / file
    if not path.exists():
        path = copied.vocabulary("joint" if copied.vocabulary("joint").exists() else "source")
        reason = reason.replace(file, path.name)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert main(["runs", str(copied.path.parent)]) == 0
    printed = capsys.readouterr().out
    assert f"{copied.path}: {reason}" in printed
    assert "broken" in printed


def test_a_fifo_does_not_stop_the_list(copied: RunFolder) -> None:
    copied.metrics.unlink()
    os.mkfifo(copied.metrics)
    assert "not a regular file" in status_of(copied.path).reason


def test_only_runs_are_found(runs: Path, tmp_path: Path) -> None:
    """Not the folders of other programs, hidden folders or what is inside a run; and links are followed once."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "config.toml").write_text("title = 'a web site'")
    (tmp_path / "hf").mkdir()
    for name in ("config.json", "source.spm", "target.spm", "model.safetensors"):
        (tmp_path / "hf" / name).touch()
    (tmp_path / ".hidden").symlink_to(runs)
    (tmp_path / "link").symlink_to(runs / "a")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert find_runs(tmp_path) == [tmp_path / "link"]


def test_the_table(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(runs)]) == 0
    header, first, _, *notes = capsys.readouterr().out.splitlines()
    assert header.split() == "run task data size steps minutes best score state disk".split()
    assert first.split()[:3] == [str(runs / "a"), "symbols", "a.tsv"]
    assert "[1]" in first
    assert notes[0].startswith("[1] ")
    assert main(["runs", str(runs), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["signature"] == notes[0].removeprefix("[1] ")


def _with_lines(run: RunFolder, lines: int) -> None:
    """Let the scores of a run be of so many validation lines."""
    for path in run.path.glob("*.safetensors"):
        about = read_about(path) | {"lines": str(lines), "all_lines": "40"}
        write_tensors(path, read_tensors(path), about)


def test_scores_of_different_lines_are_marked(
    runs: Path, copied: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    warning = "[1] scored on different lines: not comparable; use `transduce compare`"
    subprocess.run(["cp", "-r", runs / "b", copied.path.parent / "b"], check=True)
    _with_lines(copied, 30)
    for arguments in (["runs", str(copied.path.parent)], ["runs", "--diff", str(copied.path), str(runs / "b")]):
        assert main(arguments) == 0
        assert warning in capsys.readouterr().out.splitlines()
    assert main(["runs", str(runs)]) == 0
    assert "not comparable" not in capsys.readouterr().out


def test_files_of_the_same_name_are_told_apart() -> None:
    from transduce.cli.tracking import _names

    assert _names([("/data/train.en", "/data/train.de"), ("/more.tsv",)]) == "train.en train.de, more.tsv"
    assert _names([("/data/fr/train.tsv",), ("/data/de/train.tsv",)]) == "fr/train.tsv, de/train.tsv"


def test_names_are_printed_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(tmp_path / "[red]\x1b[2J")
    assert main(["runs", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "[red]\ufffd[2J" in printed
    assert "\x1b" not in printed


def test_nothing_to_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().err == f"transduce: no runs under {tmp_path}\n"
    assert main(["runs", str(tmp_path / "gone")]) == 2
    assert capsys.readouterr().err == f"transduce: {tmp_path / 'gone'}: no such folder\n"
    with pytest.raises(DataError, match="not a folder"):
        transduce.runs(__file__)


def test_a_difference(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "curves.png"
    assert main(["runs", "--diff", str(runs / "a"), str(runs / "b"), "-o", str(picture)]) == 0
    printed = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:] for line in printed.splitlines()}
    assert rows["train.seed"] == ["10", "11"]
    assert rows["train"] == ["data", "a.tsv", "b.tsv"]
    assert rows["valid"] == ["data", "the", "same", "the", "same"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["runs", "--diff", str(runs / "a"), str(runs / "a"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["settings"], found["data"]) == ({}, {"train": False, "valid": False})


def test_moved_data_are_the_same_data(runs: Path, copied: RunFolder) -> None:
    edit_config(copied.path, str(runs.parent / "a.tsv"), "/elsewhere/renamed.tsv")
    assert transduce.run_difference(runs / "a", copied.path).data == {"train": False, "valid": False}
    assert transduce.run_difference(runs / "a", copied.path).settings == {}


def test_curves_of_damaged_events_are_drawn_without_them(copied: RunFolder, runs: Path, tmp_path: Path) -> None:
    odd = [{"event": "train", "step": "x"}, {"event": "valid", "step": 2, "scores": [1]}, {"event": "train", "step": 3}]
    copied.metrics.write_text("".join(json.dumps(event) + "\n" for event in [*odd, {"event": "valid", "scores": {}}]))
    transduce.run_difference(copied.path, runs / "b", picture=tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").stat().st_size > 1_000


def test_mistakes_of_a_difference(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported = write_folder(tmp_path / "imported")
    with pytest.raises(RunError, match=r"not a run folder \(it has no config.toml\)"):
        transduce.run_difference(runs / "a", tmp_path)
    with pytest.raises(RunError, match="has no training log"):
        transduce.run_difference(runs / "a", imported, picture=tmp_path / "curves.png")
    assert main(["runs", "--diff", str(runs / "a"), str(imported), "-o", str(tmp_path / "curves.png")]) == 2
    shown = capsys.readouterr()
    assert "best score" in shown.out
    assert shown.err.startswith(f"transduce: {imported}: has no training log")
    assert main(["runs", str(runs), "-o", "curves.png"]) == 2
    assert "add --diff A B" in capsys.readouterr().err
    assert main(["runs", "--diff", str(runs / "a"), str(runs / "b"), "-o", "curves.txt"]) == 2
    assert "curves.txt" in capsys.readouterr().err


def test_the_end_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    assert last_events(log) == []
    log.write_text("".join(f'{{"step": {step}}}\n' for step in range(TAIL_BYTES // 4)))
    last = last_events(log)
    assert last == read_events(log)[-len(last) :]
    assert 100 < len(last) < TAIL_BYTES // 10


def test_listing_imports_no_torch(runs: Path) -> None:
    code = f"import sys, transduce; transduce.runs({str(runs)!r}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Recorder:
    """Stands in for the client of a tracking server: it takes every call and keeps the metrics."""

    def __init__(self) -> None:
        self.metrics: list[tuple[dict[str, float], int]] = []
        self.settings: dict[str, object] = {}

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None: ...

    def init(self, *, project: str, id: str, config: dict[str, object], resume: str) -> "Recorder":
        self.settings = config
        return self

    def start_run(self, *, run_name: str) -> "Recorder":
        return self

    def log_params(self, settings: dict[str, object]) -> None:
        self.settings = settings

    def log(self, figures: dict[str, float], step: int) -> None:
        self.metrics.append((figures, step))

    log_metrics = log

    def log_artifact(self, path: str) -> None:
        assert Path(path).is_file()


@pytest.mark.parametrize("client", ["wandb", "mlflow"])
def test_the_scripts_for_tracking_servers(client: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts of the how-to page report every step and score."""
    page = (Path(__file__).parents[1] / "docs/how-to/tracking-runs.md").read_text(encoding="utf-8")
    [script] = [block for block in page.split("```python\n")[1:] if f"import {client}" in block]
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, client, recorder)
    monkeypatch.setattr(sys, "argv", ["script", str(runs / "a")])
    exec(script.partition("```")[0], {})
    assert recorder.settings
    [[first, _]] = [one for one in recorder.metrics if "train/loss" in one[0] and one[1] == 6]
    assert first["train/cross_entropy"] > 0
    status = status_of(runs / "a")
    scores = [figures for figures, _ in recorder.metrics for name in figures if name.endswith(f"/{status.metric}")]
    assert len(scores) == 3  # two validations and the average
