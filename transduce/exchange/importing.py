"""`transduce import SOURCE RUN`: a model from elsewhere becomes a model folder of ours."""

from dataclasses import dataclass
from pathlib import Path

from transduce.checkpoint import RunFolder
from transduce.errors import DataError, RunError
from transduce.exchange.from_hf import is_hf, read_hf
from transduce.exchange.from_marian import find_archive, read_marian
from transduce.exchange.imported import write_imported


@dataclass(frozen=True)
class Taken:
    """What was imported, for people."""

    origin: str
    parameters: int
    notes: list[str]


def import_model(source: str | Path, run: str | Path) -> Taken:
    """Read a Hugging Face Marian folder or a Marian archive, and write the model folder RUN."""
    source, folder = Path(source), RunFolder(Path(run))
    if folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
        raise RunError(f"{folder.path}: there is something there already; an imported model needs a new folder")
    if not source.exists():
        raise DataError(f"{source}: no such file or folder")
    if is_hf(source):
        found = read_hf(source)
    elif archive := find_archive(source):
        found = read_marian(archive)
    else:
        raise DataError(
            f"{source}: neither a Hugging Face folder (config.json) nor Marian's (model.npz): nothing to import"
        )
    return Taken(found.origin, write_imported(found, folder), found.notes)
