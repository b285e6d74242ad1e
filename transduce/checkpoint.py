"""The run folder: the files in it, and how they are written so that a file is complete or absent.

Every file is written under a temporary name, flushed to the disk and then renamed. Tensors are stored as safetensors with
a hash of their content and a hash of the header, so that reading detects modified and incomplete files; nothing is ever
unpickled.
Knows tensors by name only: no models, optimizers or data. Torch is imported only where a tensor is made, so that callers who
need arrays or paths do not wait for it.
"""

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from transduce import __version__, files, tensor_file
from transduce.errors import DamagedFile, RunError, TrainingError
from transduce.tensor_file import Header, Stored

if TYPE_CHECKING:
    from torch import Tensor

Tensors = dict[str, "Tensor"]
Arrays = dict[str, NDArray[np.generic]]
LARGEST_PROGRESS = 1_000_000  # bytes
FULL_STATES = 2  # checkpoints of a run that training can resume from: if the newest is damaged, the one before it


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run folder."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def data(self) -> Path:
        """Hashes of the training data."""
        return self.path / "data.json"

    @property
    def card(self) -> Path:
        return self.path / "README.md"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def ct2(self) -> Path:
        """The weights converted for CTranslate2, when first needed; safe to delete."""
        return self.path / "ct2"

    @property
    def shortlist(self) -> Path:
        """The target tokens that each source token is likely to need."""
        return self.path / "shortlist.txt"

    @property
    def shortlist_hash(self) -> Path:
        """The hash of the shortlist, in the format of `sha256sum --check`."""
        return self.path / "shortlist.sha256"

    @property
    def ngram(self) -> Path:
        """The n-gram model of a speech model, with its lexicon and weights."""
        return self.path / "ngram"

    @property
    def made(self) -> Path:
        """A synthetic corpus that another model generated for this run."""
        return self.path / "made"

    @property
    def lock(self) -> Path:
        """A lock file beside the folder, held by the process that trains the run."""
        path = self.path.resolve()
        return path.with_name(f".{path.name}.lock")

    def vocabulary(self, side: str) -> Path:
        """`side` is source or target, or joint for a shared vocabulary."""
        return self.path / {"joint": "vocabulary.spm"}.get(side, f"{side}.spm")

    def weights(self, which: str) -> Path:
        """`which` is best, last or averaged."""
        return self.path / f"{which}.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to resume as if it had never stopped."""

    weights: Tensors
    optimizer: Tensors
    progress: dict[str, Any]


# --- files -----------------------------------------------------------------------------------------------------


def write_tensors(path: Path, tensors: Tensors, about: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file with its hashes, completely or not at all; equal input gives equal bytes."""
    stored = [_stored(name, tensor.detach().cpu().contiguous()) for name, tensor in tensors.items()]
    metadata = {**(about or {}), "sha256": _digest(stored), "format": "pt", "transduce": __version__}
    with _replacing(path) as temporary, temporary.open("wb") as file:
        tensor_file.write(file, stored, metadata)


def read_tensors(path: Path) -> Tensors:
    """The tensors of a file, after checking its hashes."""
    return {one.name: _tensor(one) for one in _read(path)}


def read_arrays(path: Path) -> Arrays:
    """The same as numpy arrays, without importing torch."""
    try:
        return {one.name: one.content.view(one.kind).reshape(one.shape) for one in _read(path)}
    except TypeError:
        raise DamagedFile(f"{path}: contains tensors of a type that numpy does not support") from None


def read_about(path: Path, needed: Sequence[str] = ()) -> dict[str, str]:
    """The metadata of a file, such as step, metric and score; a missing entry of `needed` is an error."""
    with _opened(path) as (_, header):
        if missing := [name for name in needed if name not in header.metadata]:
            raise DamagedFile(f"{path}: its header lacks {', '.join(missing)}")
        return dict(header.metadata)


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor of a file; reads only its header."""
    with _opened(path) as (_, header):
        return header.shapes


def read_foreign(path: Path) -> Tensors:
    """The tensors of a file that another program wrote, without our hashes and with any metadata."""
    with _opened(path, ours=False) as (file, header):
        return {one.name: _tensor(one) for one in tensor_file.read_tensors(file, header)}


def _read(path: Path) -> list[Stored]:
    with _opened(path) as (file, header):
        stored = list(tensor_file.read_tensors(file, header))
    if header.metadata.get("sha256") != _digest(stored):
        raise DamagedFile(f"{path}: modified or incomplete (its hash does not match its content)")
    return stored


@contextmanager
def _opened(path: Path, ours: bool = True) -> Iterator[tuple[BufferedReader, Header]]:
    """Open a file and check its header; errors become messages of one line."""
    try:
        with files.open_plain(path) as file:
            header = tensor_file.read_header(file)
            if ours:
                _check_metadata(header.metadata)
            yield file, header
    except OSError as error:
        raise _refusal(path, error) from None
    except ValueError as error:
        raise DamagedFile(f"{path}: cannot be read as safetensors ({error})") from None


def _refusal(path: Path, error: OSError) -> RunError | DamagedFile:
    """`DamagedFile` lets a run fall back to an older file; `RunError` does not, since this file may be fine."""
    kind = RunError if error.errno in files.NOT_THE_FILE else DamagedFile
    return kind(f"{path}: cannot be read ({error.strerror or error})")


_HASH, _NUMBER = r"[0-9a-f]{64}", r"-?(\d+(\.\d*)?(e[-+]?\d+)?|inf)|nan"
_METADATA = {
    "format": "pt",
    "transduce": r"\d+(\.\w+)*",
    "sha256": _HASH,
    "source_vocabulary": _HASH,
    "target_vocabulary": _HASH,
    "step": r"\d{1,18}",
    "lines": r"\d{1,18}",
    "all_lines": r"\d{1,18}",
    "ranked_lines": r"\d{1,18}",
    "score": _NUMBER,
    "loss": _NUMBER,
    "rank": _NUMBER,
    "metric": r"[^\0-\x1f\x7f]+",
    "ranked_by": r"[^\0-\x1f\x7f]+",
    "signature": r"[^\0-\x1f\x7f]*",
    "origin": r"[^\0-\x1f\x7f]*",
}


def _check_metadata(metadata: Mapping[str, str]) -> None:
    """Check the metadata; files of the first versions have no header hash, so only known entries are accepted there."""
    for name, value in metadata.items():
        if name not in _METADATA and tensor_file.HEADER_HASH not in metadata:
            raise ValueError(f"its header has an unknown entry {name!r}")
        if not re.fullmatch(_METADATA.get(name, ".*"), value, re.S):
            raise ValueError(f"its header has an invalid {name} = {value[:80]!r}")


def write_text(path: Path, text: str) -> None:
    """Write a text file, completely or not at all."""
    with _replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, completely or not at all."""
    with _replacing(path) as temporary:
        temporary.write_bytes(content)


def _stored(name: str, tensor: "Tensor") -> Stored:
    import torch

    content = tensor.reshape(-1).view(torch.uint8).numpy()
    return Stored(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), content)


def _tensor(stored: Stored) -> "Tensor":
    import torch

    kind = getattr(torch, stored.kind)
    if not stored.content.size:  # torch cannot view an empty tensor as another type
        return torch.empty(stored.shape, dtype=kind)
    return torch.from_numpy(stored.content).view(kind).reshape(stored.shape)


def _digest(stored: list[Stored]) -> str:
    digest = hashlib.sha256()
    for one in sorted(stored, key=lambda one: one.name):
        digest.update(f"{one.name} torch.{one.kind} {list(one.shape)}\n".encode())
        digest.update(one.content.data)
    return digest.hexdigest()


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path that replaces `path` once its content is safely on the disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with disk_errors(path):
            yield temporary
            files.synchronize(temporary)
            os.replace(temporary, path)
            files.synchronize(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def disk_errors(path: Path) -> AbstractContextManager[None]:
    """Turn errors of a full or failing disk into a `TrainingError`."""

    def explain(reason: str, full: bool) -> TrainingError:
        advice = f"{'free some space' if full else 'fix the cause'} and rerun the command"
        if any(steps_saved(RunFolder(folder)) for folder in path.parents):
            return TrainingError(
                f"{path}: cannot be written ({reason}); earlier checkpoints are intact: {advice} to resume"
            )
        return TrainingError(f"{path}: cannot be written ({reason}): {advice}")

    return files.disk_errors(explain)


# --- checkpoints -----------------------------------------------------------------------------------------------

_REPLACED = ".replaced"  # ends the name of a checkpoint while another one takes its place


def save(folder: RunFolder, step: int, checkpoint: Checkpoint, about: Mapping[str, str]) -> Path:
    """Write the checkpoint of a step; its folder appears complete or not at all."""
    path = checkpoint_path(folder, step)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    replaced = path.with_name(f"{temporary.name}{_REPLACED}")
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
        put_back(folder)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)
    return path


def put_back(folder: RunFolder) -> None:
    """Restore the old checkpoint if a process was killed after it renamed it and before the new one had its name."""
    for replaced, path in _half_replaced(folder):
        os.replace(replaced, path)


def _half_replaced(folder: RunFolder) -> list[tuple[Path, Path]]:
    """Such checkpoints: their paths now, and the paths that they had."""
    renamed = [(one, one.with_name(one.name.split(".")[1])) for one in folder.checkpoints.glob(f".step-*{_REPLACED}")]
    return [(replaced, path) for replaced, path in renamed if not path.exists()]


def restore(path: Path) -> Checkpoint:
    """Read a checkpoint; raises `DamagedFile` if a file of it is damaged."""
    return Checkpoint(
        weights=read_tensors(path / "weights.safetensors"),
        optimizer=read_tensors(path / "optimizer.safetensors"),
        progress=read_progress(path),
    )


def read_progress(path: Path) -> dict[str, Any]:
    """The progress of a checkpoint; raises `DamagedFile` if its file is damaged."""
    return _unsealed(path / "progress.json")


def steps_saved(folder: RunFolder) -> list[int]:
    """The steps that have a checkpoint folder, oldest first."""
    names = [path.name for path in folder.checkpoints.glob("step-*")]
    return sorted(int(name.removeprefix("step-")) for name in names if re.fullmatch(r"step-\d+", name))


def checkpoint_path(folder: RunFolder, step: int) -> Path:
    return folder.checkpoints / f"step-{step:08d}"


def prune(folder: RunFolder, keep_weights: set[int], full_states: int = FULL_STATES) -> None:
    """Keep the newest checkpoints, and of older ones only the weights that averaging needs."""
    remove_leftovers(folder)
    for step in steps_saved(folder)[:-full_states]:
        if step in keep_weights:
            (checkpoint_path(folder, step) / "optimizer.safetensors").unlink(missing_ok=True)
        else:
            remove(folder, step)


def remove(folder: RunFolder, step: int) -> None:
    """Delete a checkpoint; if this is interrupted, the rest of it is a leftover and no checkpoint."""
    aside = folder.checkpoints / f".step-{step:08d}.{os.getpid()}.removed"
    os.replace(checkpoint_path(folder, step), aside)
    shutil.rmtree(aside)


def leftovers(folder: RunFolder) -> list[Path]:
    """What a process that was killed while it wrote or deleted weights has left behind, except what `put_back` needs."""
    needed = [replaced for replaced, _ in _half_replaced(folder)]
    found = [*folder.checkpoints.glob(".step-*"), *folder.path.glob(".*.safetensors.*")]
    return [path for path in found if path not in needed]


def remove_leftovers(folder: RunFolder) -> None:
    """Delete the leftovers of a run that no process is training."""
    for path in leftovers(folder):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def freed_by_deleting(folder: Path) -> int:
    """The bytes that deleting this folder would free; files linked from elsewhere (see `link`) would stay."""
    sizes = []
    for path in folder.rglob("*"):
        with suppress(OSError):  # training may delete an old checkpoint at the same time
            file = path.lstat()
            sizes.append(file.st_size if stat.S_ISREG(file.st_mode) and file.st_nlink == 1 else 0)
    return sum(sizes)


def link(existing: Path, path: Path) -> None:
    """Make `path` a hard link to `existing`, or a copy if the file system has no links."""
    with _replacing(path) as temporary:
        try:
            os.link(existing, temporary)
        except OSError:
            shutil.copyfile(existing, temporary)


def average(paths: list[Path]) -> Tensors:
    """The mean of the tensors of several files (section 6.1), in double precision; integers are from the last file."""
    if not paths:
        raise RunError("there are no checkpoints to average")
    total = {name: _summed(tensor) for name, tensor in read_tensors(paths[0]).items()}
    for path in paths[1:]:
        for name, tensor in read_tensors(path).items():
            total[name] = total[name] + tensor if tensor.is_floating_point() else tensor
    return {name: (t / len(paths)).float() if t.is_floating_point() else t for name, t in total.items()}


def _summed(tensor: "Tensor") -> "Tensor":
    """A tensor as it is summed: in double precision, unless it is an integer, such as a counter."""
    return tensor.double() if tensor.is_floating_point() else tensor


def _sealed(progress: Mapping[str, Any]) -> str:
    text = json.dumps(progress, sort_keys=True)
    return json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "progress": text})


def _unsealed(path: Path) -> dict[str, Any]:
    try:
        sealed = json.loads(files.read_plain(path, LARGEST_PROGRESS))
        text = sealed["progress"]
        if hashlib.sha256(text.encode()).hexdigest() != sealed["sha256"]:
            raise DamagedFile(f"{path}: modified or incomplete (its hash does not match its content)")
        return dict(json.loads(text))
    except OSError as error:
        raise _refusal(path, error) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFile(f"{path}: cannot be read ({error})") from None
