"""The run folder: what is in it, and how files get there without ever being half there.

Everything is written under a temporary name, flushed to the disk and renamed. Tensors are safetensors whose header
holds a hash of their bytes, so that a torn or altered file is known when it is read; nothing is ever unpickled.
Knows tensors by name only: no model, no optimizer, no data. Torch is imported where a tensor is made, so that those
who want arrays, or only the names of things, need not wait for it.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from transduce import __version__, files
from transduce.errors import DamagedFile, RunError, TrainingError

if TYPE_CHECKING:
    from torch import Tensor

Tensors = dict[str, "Tensor"]
Arrays = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class RunFolder:
    """The names of things in a run folder."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def data(self) -> Path:
        """Hashes of the data the run learned from."""
        return self.path / "data.json"

    @property
    def card(self) -> Path:
        return self.path / "README.md"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def ct2(self) -> Path:
        """The weights as CTranslate2 takes them: made from the others when first needed, and safe to remove."""
        return self.path / "ct2"

    @property
    def shortlist(self) -> Path:
        """Which target tokens each source token can need."""
        return self.path / "shortlist.txt"

    @property
    def made(self) -> Path:
        """A corpus that another model made for this run."""
        return self.path / "made"

    @property
    def lock(self) -> Path:
        """Beside the folder, held by the process that trains it."""
        path = self.path.resolve()
        return path.with_name(f".{path.name}.lock")

    def vocabulary(self, side: str) -> Path:
        """`side` is source or target, or joint for a vocabulary both share."""
        return self.path / {"joint": "vocabulary.spm"}.get(side, f"{side}.spm")

    def weights(self, which: str) -> Path:
        """`which` is best, last or averaged."""
        return self.path / f"{which}.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to go on as if it had never stopped."""

    weights: Tensors
    optimizer: Tensors
    progress: dict[str, Any]


# --- files -----------------------------------------------------------------------------------------------------


def write_tensors(path: Path, tensors: Tensors, about: Mapping[str, str] | None = None) -> None:
    """A safetensors file with its hash in the header, whole or not at all."""
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}
    header = {**(about or {}), "sha256": _digest(_of_tensors(tensors)), "format": "pt", "transduce": __version__}
    with _replacing(path) as temporary:
        save_file(tensors, temporary, header)


def read_tensors(path: Path) -> Tensors:
    """The tensors of a file whose hash fits them."""
    tensors, about = _read(path, "pt")
    _check_digest(path, about, _of_tensors(tensors))
    return tensors


def read_arrays(path: Path) -> Arrays:
    """The same as numpy's arrays, without torch."""
    arrays, about = _read(path, "numpy")
    _check_digest(path, about, _of_arrays(arrays))
    return arrays


def _read(path: Path, framework: str) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        with safe_open(path, framework) as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedFile(f"{path}: cannot be read as safetensors ({error})") from None


def read_about(path: Path) -> dict[str, str]:
    """What was written beside the tensors of a file: step, metric, score."""
    try:
        with safe_open(path, "numpy") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise DamagedFile(f"{path}: cannot be read as safetensors ({error})") from None


def write_text(path: Path, text: str) -> None:
    """A text file, whole or not at all."""
    with _replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_bytes(path: Path, content: bytes) -> None:
    """A file, whole or not at all."""
    with _replacing(path) as temporary:
        temporary.write_bytes(content)


@dataclass(frozen=True)
class _Hashed:
    """What the hash of a file knows of each of its tensors."""

    name: str
    kind: str  # as torch names it
    shape: list[int]
    content: memoryview


def _of_tensors(tensors: Tensors) -> list[_Hashed]:
    import torch

    return [
        _Hashed(name, str(tensor.dtype), list(tensor.shape), tensor.reshape(-1).view(torch.uint8).numpy().data)
        for name, tensor in tensors.items()
    ]


def _of_arrays(arrays: Arrays) -> list[_Hashed]:
    return [
        _Hashed(name, f"torch.{array.dtype}", list(array.shape), array.reshape(-1).view(np.uint8).data)
        for name, array in arrays.items()
    ]


def _digest(parts: list[_Hashed]) -> str:
    digest = hashlib.sha256()
    for part in sorted(parts, key=lambda one: one.name):
        digest.update(f"{part.name} {part.kind} {part.shape}\n".encode())
        digest.update(part.content)
    return digest.hexdigest()


def _check_digest(path: Path, about: Mapping[str, str], parts: list[_Hashed]) -> None:
    if about.get("sha256") != _digest(parts):
        raise DamagedFile(f"{path}: altered or torn (its hash does not fit its content)")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` that takes its place once it is safely on the disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with disk_errors(path):
            yield temporary
            temporary.chmod(0o666 & ~_umask())  # as any file of the user's; safetensors makes it private
            files.synchronize(temporary)
            os.replace(temporary, path)
            files.synchronize(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def disk_errors(path: Path) -> AbstractContextManager[None]:
    """What a full or failing disk means to a run."""

    def explain(reason: str, full: bool) -> TrainingError:
        advice = "make room and run the same again" if full else "mend that and run the same again"
        return TrainingError(f"{path}: cannot be written ({reason}); what was saved before is intact: {advice}")

    return files.disk_errors(explain, SafetensorError)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# --- checkpoints -----------------------------------------------------------------------------------------------


def save(folder: RunFolder, step: int, checkpoint: Checkpoint, about: Mapping[str, str]) -> Path:
    """Write the checkpoint of a step; its directory appears complete or not at all."""
    path = folder.checkpoints / f"step-{step:08d}"
    temporary = folder.checkpoints / f".step-{step:08d}.{os.getpid()}"
    replaced = folder.checkpoints / f".step-{step:08d}.{os.getpid()}.replaced"
    try:
        with disk_errors(path):
            temporary.mkdir(parents=True, exist_ok=True)
            write_tensors(temporary / "weights.safetensors", checkpoint.weights, {**about, "step": str(step)})
            write_tensors(temporary / "optimizer.safetensors", checkpoint.optimizer)
            write_text(temporary / "progress.json", _sealed(checkpoint.progress))
            if path.exists():
                os.replace(path, replaced)
            os.replace(temporary, path)
            files.synchronize(folder.checkpoints)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)
    return path


def restore(path: Path) -> Checkpoint:
    """A checkpoint as it was saved, or `DamagedFile`."""
    return Checkpoint(
        weights=read_tensors(path / "weights.safetensors"),
        optimizer=read_tensors(path / "optimizer.safetensors"),
        progress=_unsealed(path / "progress.json"),
    )


def steps_saved(folder: RunFolder) -> list[int]:
    """The steps that have a checkpoint directory, oldest first."""
    names = [path.name for path in folder.checkpoints.glob("step-*")]
    return sorted(int(name.removeprefix("step-")) for name in names if re.fullmatch(r"step-\d+", name))


def checkpoint_path(folder: RunFolder, step: int) -> Path:
    return folder.checkpoints / f"step-{step:08d}"


def prune(folder: RunFolder, keep_weights: set[int], full_states: int = 2) -> None:
    """Keep the newest full states, and of the others the weights that averaging will want."""
    for leftover in folder.checkpoints.glob(".step-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    for unfinished in folder.path.glob(".*.safetensors.*"):
        unfinished.unlink(missing_ok=True)
    for step in steps_saved(folder)[:-full_states]:
        path = checkpoint_path(folder, step)
        if step in keep_weights:
            (path / "optimizer.safetensors").unlink(missing_ok=True)
        else:
            shutil.rmtree(path)


def freed_by_deleting(folder: Path) -> int:
    """The bytes that only this folder holds: a file with another name elsewhere (`link`) would stay."""
    files = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return sum(file.st_size for file in files if file.st_nlink == 1)


def link(existing: Path, path: Path) -> None:
    """`path` becomes another name of `existing`, or a copy where the file system has no links."""
    with _replacing(path) as temporary:
        try:
            os.link(existing, temporary)
        except OSError:
            shutil.copyfile(existing, temporary)


def average(paths: list[Path]) -> Tensors:
    """The mean of several files' tensors (section 6.1), summed in double precision."""
    if not paths:
        raise RunError("nothing to average")
    total = {name: tensor.double() for name, tensor in read_tensors(paths[0]).items()}
    for path in paths[1:]:
        for name, tensor in read_tensors(path).items():
            total[name] += tensor
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


def _sealed(progress: Mapping[str, Any]) -> str:
    text = json.dumps(progress, sort_keys=True)
    return json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "progress": text})


def _unsealed(path: Path) -> dict[str, Any]:
    try:
        sealed = json.loads(path.read_text(encoding="utf-8"))
        text = sealed["progress"]
        if hashlib.sha256(text.encode()).hexdigest() != sealed["sha256"]:
            raise DamagedFile(f"{path}: altered or torn (its hash does not fit its content)")
        return dict(json.loads(text))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFile(f"{path}: cannot be read ({error})") from None
