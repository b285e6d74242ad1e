"""What can go wrong while training: numbers that are none, full disks, too little memory."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest
import torch
from small_runs import _cache, command, reversal, run_training

import transduce
from transduce import checkpoint, tensor_file
from transduce.checkpoint import RunFolder, read_tensors
from transduce.cli import main
from transduce.errors import SettingError, TrainingError
from transduce.training import TrainingRequest
from transduce.training.early_checks import refuse_early
from transduce.training.run_plan import DiskFigures, check_disk


def test_not_a_number_stops_before_it_is_applied(reversal: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"step \d+: the (loss|gradient) is NaN or infinite\. .* Start a new run"):
        run_training(
            tmp_path / "nan", reversal, "train.learning_rate=1e30", "train.warmup_steps=0", "train.schedule=constant"
        )
    folder = RunFolder(tmp_path / "nan")
    for step in checkpoint.steps_saved(folder):
        weights = read_tensors(checkpoint.checkpoint_path(folder, step) / "weights.safetensors")
        assert all(tensor.isfinite().all() for tensor in weights.values())


def test_a_full_disk_is_one_line(reversal: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint at step 12 cannot be written; the one at step 6 is intact and the run goes on from it."""
    real = tensor_file.write

    def full(file: BinaryIO, tensors: Sequence[tensor_file.Stored], about: dict[str, str]) -> None:
        if about.get("step") == "12":
            file.write(b"half")
            raise OSError(28, "No space left on device")
        real(file, tensors, about)

    monkeypatch.setattr(tensor_file, "write", full)
    with pytest.raises(TrainingError, match=r"No space left on device.*earlier checkpoints are intact"):
        run_training(tmp_path / "full", reversal)
    assert checkpoint.steps_saved(RunFolder(tmp_path / "full")) == [6]
    assert not list((tmp_path / "full" / "checkpoints").glob(".*"))
    monkeypatch.undo()
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    assert run_training(tmp_path / "full", reversal).steps == 24


def test_a_full_disk_without_a_checkpoint_claims_none(
    reversal: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: BinaryIO, tensors: Sequence[tensor_file.Stored], about: dict[str, str]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensor_file, "write", full)
    with pytest.raises(TrainingError, match=r"\(No space left on device\): free some space and rerun the command$"):
        run_training(tmp_path / "full", reversal)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the free space of the disk."""

    def set_free(bytes_free: int) -> None:
        usage = SimpleNamespace(total=10**12, used=0, free=bytes_free)
        monkeypatch.setattr("transduce.training.planning.shutil.disk_usage", lambda path: usage)

    return set_free


def test_a_disk_with_too_little_space_is_refused_before_the_first_step(
    reversal: dict[str, str], tmp_path: Path, free: Callable[[int], None]
) -> None:
    free(100_000)
    message = (
        r"^\S+/run: the disk has too little space: the first checkpoint and the best weights need \S+ MB, and 0.1 MB are free\. "
        r"Free some space, give a run folder on another disk, or train a smaller model \(model\.d_model\)$"
    )
    with pytest.raises(TrainingError, match=message):
        run_training(tmp_path / "run", reversal)
    assert not (tmp_path / "run").exists()
    free(10**9)
    assert run_training(tmp_path / "run", reversal, "model.d_ff=16").steps == 24  # with other settings, as advised
    free(0)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ".note").touch()
    with pytest.raises(TrainingError, match="too little space"):
        run_training(tmp_path / "mine", reversal)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == [".note"]


def test_a_disk_with_little_space_is_a_warning(
    reversal: dict[str, str], tmp_path: Path, free: Callable[[int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    free(600_000)
    assert main(command(tmp_path / "run", reversal)[3:]) == 0
    said = capfd.readouterr().err.splitlines()
    assert sum("warning: the disk may become full: this run needs up to " in line for line in said) == 1
    assert not any(line.startswith("plan: ") and "too little space" in line for line in said)
    free(10**9)
    assert main(command(tmp_path / "roomy", reversal)[3:]) == 0
    assert "the disk" not in capfd.readouterr().err


def test_a_resumed_run_counts_what_its_folder_takes_already() -> None:
    disk = DiskFigures(running=1_000, finished=500, free=400, cache=0, cache_folder="", used=700, first=300)
    assert (disk.missing, check_disk(disk, Path("run"))) == (0, "")
    assert replace(disk, used=500).missing == 100


def test_a_disk_that_fails_is_not_called_full(tmp_path: Path) -> None:
    """A missing folder is no lack of room."""
    with pytest.raises(TrainingError, match=r"\(No such file or directory\): fix the cause and rerun the command$"):
        checkpoint.write_text(tmp_path / "gone" / "file", "text")
    with pytest.raises(TrainingError, match=r"file.safetensors: cannot be written .*: fix the cause and rerun"):
        checkpoint.write_tensors(tmp_path / "gone" / "file.safetensors", {"x": torch.zeros(1)})


def test_too_large_a_batch_is_one_line(
    reversal: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")

    monkeypatch.setattr("transduce.training.update.batch_loss", exhausted)
    with pytest.raises(
        TrainingError, match=r"out of memory: the largest batch has \d+ positions\. .*positions_per_microbatch below"
    ):
        run_training(tmp_path / "large", reversal)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["train.shards=2", "model.norm_kind=batch"], "a model with running statistics cannot be trained with"),
        (["train.layout=pages", "model.family=rnn"], "models of the family rnn need train.layout=padded"),
    ],
)
def test_what_the_model_cannot_do_leaves_no_folder_behind(
    reversal: dict[str, str], tmp_path: Path, settings: list[str], message: str
) -> None:
    """A folder that holds a run keeps its settings, so that the advised ones would be refused."""
    files = {"train": reversal["train"], "valid": reversal["valid"], "quiet": True}
    with pytest.raises(SettingError, match=message):
        transduce.train(tmp_path / "run", settings=["train.steps=3", *settings], **files)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_a_file_name_that_no_setting_can_hold_is_refused_first(reversal: dict[str, str], tmp_path: Path) -> None:
    """A name that is not UTF-8 cannot be written to config.toml: the model could not be loaded."""
    named = Path(os.fsdecode(bytes(tmp_path / "bad") + b"\xff.tsv"))
    named.write_bytes(Path(reversal["train"]).read_bytes())
    with pytest.raises(
        SettingError, match=r"data\.train = .*bad\\udcff\.tsv: not valid UTF-8: rename the file or folder$"
    ):
        run_training(tmp_path / "run", reversal | {"train": str(named)})
    assert not (tmp_path / "run").exists()


def test_nor_can_a_setting_hold_the_folder_of_a_file(
    reversal: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(os.fsdecode(bytes(tmp_path / "folder") + b"\xff"))
    folder.mkdir()
    (folder / "train.tsv").write_bytes(Path(reversal["train"]).read_bytes())
    monkeypatch.chdir(folder)
    with pytest.raises(SettingError, match=r"data\.train = .*folder\\udcff/train\.tsv: not valid UTF-8"):
        run_training(tmp_path / "run", reversal | {"train": "train.tsv"})
    assert not (tmp_path / "run").exists()


WITHOUT_TORCH = """
import sys
from transduce.cli.main import main
code = main(sys.argv[1:])
assert "torch" not in sys.modules, "torch takes seconds to import"
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train new --train missing.de missing.en", "missing.de: cannot be read: no such file"),
        ("train new --train DATA --valid missing.tsv", "missing.tsv: cannot be read: no such file"),
        ("train new --train DATA --set train.lr=1", "unknown setting train.lr; did you mean train.learning_rate?"),
        ("train FULL --train DATA", "the folder is not empty and is not a run; give a new or empty folder"),
        (
            "train new --train DATA --set model.d_model=100 model.num_heads=3",
            "100 does not divide by model.num_heads = 3",
        ),
        (
            "train new --text DATA --set model.d_model=100 model.num_heads=3",
            "100 does not divide by model.num_heads = 3",
        ),
        ("plan --train DATA --set model.d_model=100 model.num_heads=3", "100 does not divide by model.num_heads = 3"),
        ("export MODEL FULL --to hf", "already exists; export to a new folder"),
        ("export nowhere new --to hf", "nowhere: no such folder"),
        ("distill nowhere new --train DATA", "nowhere: no such folder"),
        ("generate nowhere --prompt x", "nowhere: no such folder"),
        ("transcribe nowhere a.wav", "nowhere: no such folder"),
    ],
)
def test_mistakes_are_refused_before_torch_is_imported(
    reversal: dict[str, str], tmp_path: Path, arguments: str, message: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").touch()
    names = {"DATA": reversal["train"], "FULL": "full", "MODEL": str(Path(__file__).parent / "frozen" / "0.1.0")}
    command = [sys.executable, "-c", WITHOUT_TORCH, *(names.get(word, word) for word in arguments.split())]
    root = str(Path(__file__).parents[1])
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": root}, capture_output=True, text=True)
    assert message in done.stderr
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr


@pytest.mark.parametrize("processes", ["", "1", "auto"])
def test_a_variable_that_counts_no_processes_is_no_mistake(
    reversal: dict[str, str], tmp_path: Path, processes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", processes)
    refuse_early(tmp_path / "run", TrainingRequest(train=reversal["train"], valid=reversal["valid"]))


def test_settings_that_suit_some_data_are_not_refused_early(tmp_path: Path) -> None:
    """Three heads suit the model for a quarter of a million pairs, and not that for twenty thousand."""
    (tmp_path / "a.tsv").write_text("a\tb\n")
    some = ["model.num_heads=3"]
    refuse_early(tmp_path / "run", TrainingRequest(train=str(tmp_path / "a.tsv"), settings=some))
    with pytest.raises(SettingError, match="does not divide"):
        refuse_early(
            tmp_path / "run", TrainingRequest(train=str(tmp_path / "a.tsv"), settings=[*some, "model.d_model=128"])
        )
    rnn = [*some, "model.family=rnn"]
    with pytest.raises(SettingError, match=r"unknown setting model\.num_heads"):
        refuse_early("", TrainingRequest(train=str(tmp_path / "a.tsv"), settings=rnn))
