"""A model folder's CTranslate2 form, made once and kept inside it: `RUN/ct2/`. Needs no torch.

Its name holds a hash of everything it was made from, so new weights, settings or versions make a new one, and the old
one goes. Where the model folder cannot be written to it lives in a temporary folder for as long as it is needed.
"""

import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transduce.checkpoint import read_about, read_arrays
from transduce.errors import DamagedFile
from transduce.translator.ct2_spec import expected_shapes, make_spec
from transduce.translator.folder import ModelFolder, check_shapes

Quantization = Literal["int8", "bfloat16", "float32"]
Say = Callable[[str], None]
LAYOUT = 1  # of what is built here; counted up when the same weights would become other files


@dataclass(frozen=True)
class Ct2Model:
    """A folder that CTranslate2 loads; a temporary one is there for as long as this is."""

    path: Path


def stored_as(quantization: Quantization) -> str:
    """What is on the disk: numpy has no bfloat16, so those weights are rounded when they are loaded."""
    return "int8" if quantization == "int8" else "float32"


def open_model(opened: ModelFolder, which: str, quantization: Quantization, say: Say) -> Ct2Model:
    """The CTranslate2 form of these weights: the one kept in the folder, or a new one."""
    weights = opened.weights(which)
    kept = opened.folder.ct2 / f"{weights.stem}-{stored_as(quantization)}-{_key(opened, weights)[:16]}"
    if is_whole(kept):
        return Ct2Model(kept)
    try:
        return _keep(opened, weights, quantization, kept)
    except OSError as error:
        scratch = Path(tempfile.mkdtemp(prefix="transduce-ct2-"))
        model = Ct2Model(scratch)
        weakref.finalize(model, shutil.rmtree, scratch, ignore_errors=True)
        say(f"{opened.folder.ct2}: cannot be written ({error.strerror}); the ct2 model is in {scratch} meanwhile")
        _build(opened, weights, quantization, scratch)
        return model


def is_whole(path: Path) -> bool:
    """Whether every file there has the size it was written with."""
    try:
        sizes = json.loads((path / "sizes.json").read_text(encoding="utf-8"))
        return bool(sizes) and all((path / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _key(opened: ModelFolder, weights: Path) -> str:
    import ctranslate2

    vocabularies = opened.vocabularies
    made_from = [
        read_about(weights).get("sha256", ""),
        repr(opened.config.model),
        vocabularies.source.digest,
        vocabularies.target.digest,
        ctranslate2.__version__,
        str(LAYOUT),
        _shortlist_of(opened),
    ]
    return hashlib.sha256("\n".join(made_from).encode()).hexdigest()


def _shortlist_of(opened: ModelFolder) -> str:
    path = opened.folder.shortlist
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def _keep(opened: ModelFolder, weights: Path, quantization: Quantization, kept: Path) -> Ct2Model:
    """Build beside its name, then take the name: whole or not there, whoever else does the same."""
    kept.parent.mkdir(exist_ok=True)
    temporary = kept.with_name(f".{kept.name}.{os.getpid()}")
    try:
        temporary.mkdir(exist_ok=True)
        _build(opened, weights, quantization, temporary)
        shutil.rmtree(kept, ignore_errors=True)  # torn, or it would have been taken
        try:
            os.rename(temporary, kept)
        except OSError:
            if not is_whole(kept):  # else another process was faster
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for stale in kept.parent.glob(f"{weights.stem}-{stored_as(quantization)}-*"):
        if stale != kept:
            shutil.rmtree(stale, ignore_errors=True)
    return Ct2Model(kept)


def _build(opened: ModelFolder, weights: Path, quantization: Quantization, path: Path) -> None:
    arrays, vocabularies = read_arrays(weights), opened.vocabularies
    expected = expected_shapes(opened.config.model, vocabularies.source.size, vocabularies.target.size)
    check_shapes(expected, {name: array.shape for name, array in arrays.items()}, str(weights))
    spec = make_spec(arrays, opened.config.model, vocabularies)
    if opened.folder.shortlist.exists():
        spec.register_vocabulary_mapping(str(opened.folder.shortlist))
    spec.optimize(quantization=stored_as(quantization))
    spec.save(str(path))
    sizes = {file.name: file.stat().st_size for file in path.iterdir()}
    (path / "sizes.json").write_text(json.dumps(sizes), encoding="utf-8")


def damaged(model: Ct2Model, error: Exception) -> DamagedFile:
    return DamagedFile(f"{model.path}: CTranslate2 cannot load it ({error}); remove that folder to have it made again")
