"""The output folder of a batch: a file for each finished shard, named by its number and its hash.

A file gets its name when it is complete and on the disk. A listing of the folder therefore says what is done, and a hash
in a name cannot come apart from its file. Two attempts at a shard that wrote the same bytes have the same name; if they
wrote different bytes, which a GPU may do, the file with the lower hash is kept.
"""

import json
import os
import re
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.batch_translation.manifest import Manifest, sha256_of
from transduce.errors import RunError, TransduceError
from transduce.files import disk_errors, synchronize, write_durably

HASH_DIGITS = 16
_RANDOM = secrets.token_hex(4)  # containers may share names and process numbers
_NAME = re.compile(rf"shard-(\d{{6,}})\.([0-9a-f]{{{HASH_DIGITS}}})\.\w+")


def _explain(reason: str, full: bool) -> TransduceError:
    rest = "free some space and rerun the command" if full else "rerun the command when it can be written"
    return RunError(f"the output folder cannot be written: {reason.lower()}: {rest}; finished shards are kept")


def write_errors() -> Any:
    """Turn errors of a full or failing disk into an error that ends the command: other shards would fail as well."""
    return disk_errors(_explain)


@dataclass(frozen=True)
class BatchFolder:
    """The paths of an output folder."""

    path: Path

    @property
    def manifest_file(self) -> Path:
        return self.path / "manifest.json"

    def read_manifest(self) -> Manifest | None:
        """The manifest, or None in a folder without one."""
        try:
            return Manifest.from_json(self.manifest_file.read_text(encoding="utf-8"), self.manifest_file)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise RunError(f"{self.path}: is a file; give a folder for the translations") from None
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{self.manifest_file}: cannot be read ({getattr(error, 'strerror', error)})") from None

    def manifest(self) -> Manifest:
        """The manifest of a folder that must have one."""
        found = self.read_manifest()
        if found is None:
            raise RunError(f"{self.path}: not a batch (it has no manifest.json); `transduce batch` makes one")
        return found

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest; a folder with other files is refused."""
        if self.path.is_dir() and not self.manifest_file.exists() and any(self._foreign()):
            raise RunError(f"{self.path}: the folder is not empty and is not a batch; give a new folder")
        with write_errors():
            self.path.mkdir(parents=True, exist_ok=True)
        self._write(self.manifest_file, manifest.to_json())

    def _foreign(self) -> Iterator[Path]:
        return (path for path in self.path.iterdir() if not path.name.startswith("."))

    def finished(self) -> dict[int, Path]:
        """The file of each finished shard."""
        found: dict[int, Path] = {}
        for path in sorted(self.path.iterdir(), reverse=True):  # the lowest hash is last, and stays
            if match := _NAME.fullmatch(path.name):
                found[int(match[1])] = path
        return found

    def files(self) -> Iterator[Path]:
        """The files of the finished shards, in order."""
        return (path for _, path in sorted(self.finished().items()))

    def temporary(self, number: int, process: str) -> Path:
        """The file that this process writes for a shard that is not finished."""
        return self.path / f".shard-{number:06}.{process}"

    def finish(self, number: int, temporary: Path, ending: str) -> None:
        """Give a complete file its name, and remove what other attempts at the shard have left."""
        synchronize(temporary)
        os.replace(temporary, self.path / f"shard-{number:06}.{sha256_of(temporary)[:HASH_DIGITS]}.{ending}")
        synchronize(self.path)
        others = sorted(self.path.glob(f"shard-{number:06}.*"))[1:]
        for path in (*others, *self.path.glob(f".shard-{number:06}.*"), self.failure_file(number)):
            path.unlink(missing_ok=True)

    def is_finished(self, number: int) -> bool:
        return any(self.path.glob(f"shard-{number:06}.*"))

    def failure_file(self, number: int) -> Path:
        """The reason why a shard failed; it disappears when the shard is finished."""
        return self.path / f"failed-{number:06}.json"

    def write_failure(self, number: int, about: dict[str, Any]) -> None:
        self._write(self.failure_file(number), json.dumps(about, ensure_ascii=False) + "\n")

    def read_failure(self, number: int) -> dict[str, Any]:
        """The recorded reason, or an empty dictionary."""
        try:
            found = json.loads(self.failure_file(number).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, path: Path, text: str) -> None:
        temporary = path.with_name(f".{path.name}.{process_name()}")
        with write_errors():
            write_durably(temporary, text.encode())
            os.replace(temporary, path)
            synchronize(path.parent)


def process_name() -> str:
    """A name for this process that no other process has, on any machine."""
    return f"{socket.gethostname()}-{os.getpid()}-{_RANDOM}"


def hash_in_name(path: Path) -> str:
    """The hash that a finished file had when it was named."""
    match = _NAME.fullmatch(path.name)
    return match[2] if match else ""
