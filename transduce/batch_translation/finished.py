"""Verifies every file of a finished batch by its count and hash, and joins all files in order."""

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transduce.batch_translation.folder import HASH_DIGITS, BatchFolder, hash_in_name, process_name, write_errors
from transduce.batch_translation.manifest import Manifest, sha256_of
from transduce.errors import RunError, SettingError
from transduce.files import synchronize

COMPRESSORS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


@dataclass
class Verification:
    """What was found in an output folder."""

    shards: int
    lines: int = 0  # in intact files
    missing: dict[int, str] = field(default_factory=dict)  # shards without a file, with the reason if one is known
    damaged: list[str] = field(default_factory=list)  # files whose count or hash is wrong
    changed: list[str] = field(default_factory=list)  # inputs that are not what was translated

    @property
    def is_complete(self) -> bool:
        return not (self.missing or self.damaged or self.changed)


def verify(output: str | Path) -> Verification:
    """Count and hash every file again, and hash the inputs again. Nothing is modified."""
    folder = BatchFolder(Path(output))
    manifest = folder.manifest()
    form, files = manifest.format, folder.finished()
    found = Verification(len(manifest.shards))
    for shard in manifest.shards:
        path = files.get(shard.number)
        if path is None:
            found.missing[shard.number] = folder.read_failure(shard.number).get("reason", "")
        elif _is_damaged(path) or form.count(path) != shard.rows:
            found.damaged.append(str(path))
        else:
            found.lines += shard.rows
    found.changed = [
        one.path for one in manifest.inputs if not os.path.exists(one.path) or sha256_of(one.path) != one.sha256
    ]
    return found


def damaged_shards(output: str | Path) -> list[Path]:
    """The files of shards that are not what was written, by their hashes."""
    return [path for path in BatchFolder(Path(output)).files() if _is_damaged(path)]


def _is_damaged(path: Path) -> bool:
    return sha256_of(path)[:HASH_DIGITS] != hash_in_name(path)


def collect(output: str | Path, file: str | Path) -> int:
    """Join all shards in the order of the inputs, in one file, which may be compressed. Returns the number of lines."""
    folder, path = BatchFolder(Path(output)), Path(file)
    manifest = folder.manifest()
    parts = _all_parts(folder, manifest)
    opener = COMPRESSORS.get(path.suffix.lower())
    if opener and manifest.format.ending == "parquet":
        raise SettingError(f"{path}: parquet files have their own compression: use a name that ends in .parquet")
    temporary = path.with_name(f".{path.name}.{process_name()}")
    with write_errors():
        try:
            with opener(temporary, "wb") if opener else temporary.open("wb") as joined:
                manifest.format.join(_header(manifest), parts, joined)
            synchronize(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    return manifest.rows


def _all_parts(folder: BatchFolder, manifest: Manifest) -> list[Path]:
    files = folder.finished()
    missing = [shard.number for shard in manifest.shards if shard.number not in files]
    if missing:
        raise RunError(
            f"{folder.path}: {len(missing):,} of {len(manifest.shards):,} shards are not finished (the first is {missing[0]}): "
            "rerun `transduce batch` to translate them"
        )
    parts = [files[shard.number] for shard in manifest.shards]
    for path in parts:
        if _is_damaged(path):
            raise RunError(f"{path}: modified or damaged after it was written: delete it and rerun `transduce batch`")
    return parts


def _header(manifest: Manifest) -> str:
    """The header line of the inputs, which must be the same in all of them."""
    headers = {manifest.format.header(one.path) for one in manifest.inputs}
    if len(headers) > 1:
        raise RunError("the inputs have different header lines, so they cannot be joined: read the shards instead")
    return headers.pop()
