"""The cache: complete folders, each named by the hash of everything it was made from.

An entry is written under a temporary name, synchronised to disk and renamed. So a build that was killed never looks complete,
and two processes can build the same entry at once. This module knows sizes and checksums of files, not their meaning.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from transduce import files
from transduce.errors import DataError
from transduce.files import read_plain

FORMAT = 2  # of the manifest; since 2 it has checksums
MANIFEST = "files.json"  # size and checksum of each file, written last
CHECKED_BYTES = 1 << 30  # larger entries are checked by their sizes only
LONGEST_PATH = 100_000  # bytes
_RUNS = "runs"  # a folder with a note for each run that has used the cache
_UNFINISHED = ".building-"
_ABANDONED_S = 3600  # an unfinished entry that was not written to for so long is removed


def cache_folder(setting: str) -> Path:
    """`data.cache`, else $TRANSDUCE_CACHE, else the user's cache folder."""
    chosen = setting or os.environ.get("TRANSDUCE_CACHE", "")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen).expanduser() if chosen else Path(home) / "transduce"


def entry_key(*parts: object) -> str:
    """A name for the entry that these parts determine."""
    return hashlib.sha256(repr((FORMAT, *parts)).encode()).hexdigest()[:32]


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


def open_or_write(folder: Path, name: str, write: Callable[[Path], None], notify: Callable[[str], None]) -> Path:
    """The complete entry `name`; it is written now if it is missing or damaged."""
    entry = folder / name
    with _disk_errors(folder):
        if entry.is_dir() and not is_whole(entry):
            notify(f"{entry}: incomplete or damaged: preparing it again")
            discard(entry)
        if not entry.is_dir():
            _write_and_rename(folder, entry, write)
    with suppress(OSError):
        os.utime(entry)  # when it was last used
    return entry


def remember_run(folder: Path, run: Path) -> None:
    """Note in the cache that a run uses it, so that cleaning the cache keeps what the run needs to resume."""
    path = str(run.resolve())
    note = folder / _RUNS / hashlib.sha256(path.encode()).hexdigest()[:32]
    with suppress(OSError):  # the run goes on without the note
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(path, encoding="utf-8")


def remembered_runs(folder: Path) -> list[Path]:
    """The folders of the runs that have used this cache; some may be gone."""
    notes = [read_plain(path, LONGEST_PATH) for path in sorted((folder / _RUNS).glob("*")) if path.is_file()]
    return [Path(note.decode(errors="replace")) for note in notes if note]


def entries(folder: Path) -> list[Path]:
    """Everything in the cache but the notes about runs."""
    return sorted(path for path in folder.iterdir() if path.name != _RUNS) if folder.is_dir() else []


def is_abandoned(path: Path) -> bool:
    """Whether this is what a killed build has left behind."""
    return path.name.startswith(_UNFINISHED) and time.time() - _last_written(path) > _ABANDONED_S


def was_used_lately(entry: Path) -> bool:
    """Whether a process opened the entry so recently that it may be about to use it."""
    try:
        return time.time() - entry.stat().st_mtime < _ABANDONED_S
    except OSError:  # it is gone, or being replaced
        return True


def unfinished(folder: Path) -> Path:
    """A new folder for a build; folders that killed builds left behind are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(_UNFINISHED + "*"):
        if is_abandoned(left):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder))


def manifest(entry: Path) -> str:
    """The sizes and checksums of the files of an entry, as text; empty if there is no such entry."""
    try:
        return (entry / MANIFEST).read_text()
    except OSError:
        return ""


def is_whole(entry: Path) -> bool:
    """Whether every file of the entry exists as it was written."""
    try:
        written: dict[str, dict[str, int]] = json.loads((entry / MANIFEST).read_text())
        found = {name: (entry / name).stat().st_size for name in written}
        if found != {name: file["size"] for name, file in written.items()}:
            return False
        return sum(found.values()) > CHECKED_BYTES or all(
            checksum(entry / name) == file["crc32"] for name, file in written.items()
        )
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return False


def checksum(path: Path) -> int:
    """CRC-32, against accidental damage only: a cryptographic hash takes three times as long (docs/log.md)."""
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            value = zlib.crc32(chunk, value)
    return value


def _disk_errors(folder: Path) -> AbstractContextManager[None]:
    """Errors of a full or failing disk as one line about the cache."""

    def explain(reason: str, full: bool) -> DataError:
        advice = "free some space or choose" if full else "choose"
        return DataError(
            f"{folder}: prepared data cannot be written: {reason.lower()}: {advice} another place with data.cache "
            "or $TRANSDUCE_CACHE"
        )

    return files.disk_errors(explain)


def _write_and_rename(folder: Path, entry: Path, write: Callable[[Path], None]) -> None:
    building = unfinished(folder)
    try:
        write(building)
        written = {p.name: {"size": p.stat().st_size, "crc32": checksum(p)} for p in sorted(building.iterdir())}
        files.write_durably(building / MANIFEST, json.dumps(written, indent=1).encode())
        files.synchronize(building)
        _rename(building, entry)
        files.synchronize(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _rename(building: Path, entry: Path) -> None:
    try:
        building.rename(entry)
    except OSError:
        if not is_whole(entry):  # otherwise another process has completed the same entry first
            raise


def discard(entry: Path) -> None:
    """Remove an entry; if this is interrupted, the rest of it is an abandoned build and no entry."""
    aside = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=entry.parent))
    try:
        entry.rename(aside / entry.name)
    except FileNotFoundError:  # another process was faster
        pass
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _last_written(folder: Path) -> float:
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return time.time()
