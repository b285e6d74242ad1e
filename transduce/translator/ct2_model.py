"""The weights of a model folder in CTranslate2's format: converted once and kept in `RUN/ct2/`. Needs no torch.

The name of the converted model contains a hash of everything it was made from. New weights, settings or versions make a new one,
which replaces the old one. Its files are hashed whenever it is opened, because they are the weights that CPUs use; a damaged one
is built again from the weights of the model folder, which have a hash of their own. If the model folder cannot be written to,
the converted model is in a temporary folder and is removed at the end. Git ignores the folder.
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

from transduce.checkpoint import read_about, read_arrays, read_shapes
from transduce.errors import RunError
from transduce.files import LIMITS_MET, open_plain, read_plain
from transduce.translator.ct2_spec import expected_shapes, make_spec
from transduce.translator.folder import ModelFolder, check_shapes, shortlist_digest

Quantization = Literal["int8", "bfloat16", "float32"]
Say = Callable[[str], None]
LAYOUT = 2  # of what is built here; counted up when the same weights would become other files
MANIFEST = "hashes.json"  # what the folder was made from, and the hash of each of its files
LARGEST_MANIFEST = 100_000  # bytes


@dataclass(frozen=True)
class Ct2Model:
    """A folder that CTranslate2 loads; a temporary one is removed together with this object."""

    path: Path


def stored_as(quantization: Quantization) -> str:
    """The number format of the files: numpy has no bfloat16, so CTranslate2 rounds such weights when it loads them."""
    return "int8" if quantization == "int8" else "float32"


def open_model(opened: ModelFolder, which: str, quantization: Quantization, say: Say) -> Ct2Model:
    """The converted model of these weights: the one kept in the folder, or a new one."""
    weights = opened.weights(which)
    key = _key(opened, weights)
    kept = opened.folder.ct2 / f"{weights.stem}-{stored_as(quantization)}-{key[:16]}"
    if kept.is_dir():
        damage = find_damage(kept, key)
        if not damage:
            return Ct2Model(kept)
        say(f"{kept}: {damage}; building it again from {weights.name}")
    try:
        return _keep(opened, weights, quantization, kept, key)
    except OSError as error:
        scratch = Path(tempfile.mkdtemp(prefix="transduce-ct2-"))
        model = Ct2Model(scratch)
        weakref.finalize(model, shutil.rmtree, scratch, ignore_errors=True)
        say(
            f"{opened.folder.ct2}: cannot be written ({error.strerror}); the model for the ct2 engine is kept in {scratch} for now"
        )
        _build(opened, weights, quantization, scratch, key)
        return model


def find_damage(path: Path, key: str) -> str:
    """What is wrong with a kept folder; empty if every file is as it was written, and made from `key`."""
    try:
        return _compare(path, key)
    except OSError as error:
        if error.errno in LIMITS_MET:  # not for rights that are lacking: then another copy is built
            raise RunError(f"{path}: cannot be read ({error.strerror})") from None
        return f"cannot be read ({error.strerror})"


def _compare(path: Path, key: str) -> str:
    try:
        manifest = json.loads(read_plain(path / MANIFEST, LARGEST_MANIFEST))
        made_from, hashes = manifest["made_from"], dict(manifest["files"])
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return f"{MANIFEST} is missing or damaged"
    if made_from != key:
        return "it was converted from other weights or settings"
    if {file.name for file in path.iterdir()} != {MANIFEST, *hashes}:
        return "files are missing, or there are others"
    altered = [name for name in sorted(hashes) if _hash(path / name) != hashes[name]]
    return f"{altered[0]} is modified or incomplete (its hash does not match)" if altered else ""


def _hash(path: Path) -> str:
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _key(opened: ModelFolder, weights: Path) -> str:
    import ctranslate2

    vocabularies = opened.vocabularies
    made_from = [
        read_about(weights).get("sha256", ""),
        repr(opened.config.transformer),
        vocabularies.source.digest,
        vocabularies.target.digest,
        ctranslate2.__version__,
        str(LAYOUT),
        shortlist_digest(opened.folder),
    ]
    return hashlib.sha256("\n".join(made_from).encode()).hexdigest()


def _keep(opened: ModelFolder, weights: Path, quantization: Quantization, kept: Path, key: str) -> Ct2Model:
    """Build the model under a temporary name and rename it, so that it is complete or absent even if several processes build it."""
    kept.parent.mkdir(exist_ok=True)
    (kept.parent / ".gitignore").write_text("*\n")  # a model folder in a repository stays clean
    temporary = kept.with_name(f".{kept.name}.{os.getpid()}")
    try:
        temporary.mkdir(exist_ok=True)
        _build(opened, weights, quantization, temporary, key)
        shutil.rmtree(kept, ignore_errors=True)  # torn, or it would have been taken
        try:
            os.rename(temporary, kept)
        except OSError:
            if find_damage(kept, key):  # else another process was faster
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for stale in kept.parent.glob(f"{weights.stem}-{stored_as(quantization)}-*"):
        if stale != kept:
            shutil.rmtree(stale, ignore_errors=True)
    return Ct2Model(kept)


def _build(opened: ModelFolder, weights: Path, quantization: Quantization, path: Path, key: str) -> None:
    vocabularies = opened.vocabularies
    expected = expected_shapes(opened.config.transformer, vocabularies.source.size, vocabularies.target.size)
    check_shapes(expected, read_shapes(weights), str(weights))  # before anything is read that may not fit
    spec = make_spec(read_arrays(weights), opened.config.transformer, vocabularies)
    if opened.folder.shortlist.exists():
        spec.register_vocabulary_mapping(str(opened.folder.shortlist))
    spec.optimize(quantization=stored_as(quantization))
    spec.save(str(path))
    manifest = {"made_from": key, "files": {file.name: _hash(file) for file in sorted(path.iterdir())}}
    (path / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def not_loaded(model: Ct2Model, error: Exception) -> RunError:
    """Its files match their hashes, or it would have been built again."""
    return RunError(
        f"{model.path}: CTranslate2 cannot load it ({error}), although its files are complete: check the free memory and "
        "the limit of open files (ulimit -n)"
    )
