"""Average the weights of several models that have the same shape and vocabularies."""

from collections.abc import Sequence
from pathlib import Path

import torch

from transduce.checkpoint import (
    RunFolder,
    Tensors,
    read_about,
    read_shapes,
    read_tensors,
    write_bytes,
    write_tensors,
    write_text,
)
from transduce.config import Config, differences
from transduce.errors import RunError, SettingError
from transduce.translator import ModelFolder, check_shapes, open_folder, write_config


def average(runs: Sequence[str | Path], folder: str | Path, weights: str = "auto") -> Path:
    """Write a model folder with the mean of these models' weights (section 6.1 averages checkpoints of one run)."""
    if len(runs) < 2:
        raise SettingError("give at least two models to average")
    target = RunFolder(Path(folder))
    if target.path.exists():
        raise RunError(f"{target.path}: already exists; give a new folder for the average")
    opened = [open_folder(run) for run in runs]
    for other in opened[1:]:
        _check_compatible(opened[0], other)
    files = [one.weights(weights) for one in opened]
    for one, file in zip(opened, files, strict=True):
        check_shapes(one.shapes(), read_shapes(file), str(file))
    mean = _mean([read_tensors(file) for file in files])
    _write(target, opened[0], mean, {key: value for key, value in read_about(files[0]).items() if "vocabulary" in key})
    write_text(target.card, _card(target.path, [str(one.folder.path.resolve().name) for one in opened]))
    return target.path


def _check_compatible(one: ModelFolder, other: ModelFolder) -> None:
    here, there = one.folder.path, other.folder.path
    if found := _differences(one.config, other.config):
        raise RunError(
            f"{there}: its model differs from that of {here} ({', '.join(found)}), so they cannot be averaged"
        )
    for side in ("source", "target"):
        if getattr(one.vocabularies, side).digest != getattr(other.vocabularies, side).digest:
            raise RunError(f"{there}: its {side} vocabulary differs from that of {here}, so they cannot be averaged")


def _differences(one: Config, other: Config) -> list[str]:
    """The differing model settings that affect the weights; dropout does not."""
    return [
        f"{name} {before} and {after}"
        for name, (before, after) in differences(one, other).items()
        if name.startswith("model.") and "dropout" not in name
    ]


def _mean(all_tensors: list[Tensors]) -> Tensors:
    """The mean, in double precision so that the order does not matter; integers are copied from the first model."""

    def mean_of(name: str, first: torch.Tensor) -> torch.Tensor:
        if not first.is_floating_point():
            return first
        return torch.stack([tensors[name].double() for tensors in all_tensors]).mean(0).to(first.dtype)

    return {name: mean_of(name, first) for name, first in all_tensors[0].items()}


def _write(target: RunFolder, like: ModelFolder, tensors: Tensors, about: dict[str, str]) -> None:
    target.path.mkdir(parents=True)
    both = like.vocabularies
    sides = [("joint", both.source)] if like.config.data.joint else [("source", both.source), ("target", both.target)]
    for side, vocabulary in sides:
        write_bytes(target.vocabulary(side), vocabulary.model)
    write_tensors(target.weights("best"), tensors, about)
    write_config(target, like.config)


def _card(path: Path, names: list[str]) -> str:
    return f"# {path.resolve().name}\n\nThe mean of the weights of {', '.join(names)}.\n"
