"""What can go wrong while training: numbers that are none, full disks, too little memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest
import torch
from small_runs import _cache, reversal, run_training

from transduce import checkpoint, tensor_file
from transduce.checkpoint import RunFolder, read_tensors
from transduce.errors import TrainingError


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


def test_a_disk_that_fails_is_not_called_full(tmp_path: Path) -> None:
    """A missing folder is no lack of room."""
    with pytest.raises(TrainingError, match=r"\(No such file or directory\); .* intact: fix the cause and rerun"):
        checkpoint.write_text(tmp_path / "gone" / "file", "text")
    with pytest.raises(TrainingError, match=r"file.safetensors: cannot be written .* are intact"):
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
