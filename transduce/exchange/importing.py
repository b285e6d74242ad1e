"""`transduce import`: find out which kind of model it is and write it as a model folder."""

from dataclasses import dataclass
from pathlib import Path

from transduce.checkpoint import RunFolder
from transduce.errors import DamagedFile, DataError, RunError
from transduce.exchange.from_hf import is_hf, read_hf
from transduce.exchange.from_marian import find_archive, read_marian
from transduce.exchange.imported import Imported, write_imported


@dataclass(frozen=True)
class ImportSummary:
    """What was imported, for messages."""

    origin: str
    parameters: int
    notes: list[str]


def import_model(source: str | Path, run: str | Path) -> ImportSummary:
    """Import a Hugging Face Marian folder or a Marian archive as the model folder RUN."""
    source, folder = Path(source), RunFolder(Path(run))
    if folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
        raise RunError(f"{folder.path}: already exists; import into a new folder")
    if not source.exists():
        raise DataError(f"{source}: no such file or folder")
    found = _read(source)
    return ImportSummary(found.origin, write_imported(found, folder), found.notes)


def _read(source: Path) -> Imported:
    """Read the model; any exception that invalid files cause, wherever it occurs, becomes a `DamagedFile`."""
    try:
        if is_hf(source):
            return read_hf(source)
        if archive := find_archive(source):
            return read_marian(archive)
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}".split("\n")[0]
        raise DamagedFile(f"{source}: not a model that can be imported ({reason})") from None
    raise DataError(f"{source}: neither a Hugging Face folder (config.json) nor a Marian folder (model.npz)")
