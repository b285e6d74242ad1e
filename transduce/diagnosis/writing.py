"""Clean copies of the training files, and a table of everything that was left out.

The folder appears when it is complete. Lines are copied as they are; compressed files are written uncompressed. Reads the files a
second time.
"""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from transduce.data import Corpus, open_bytes
from transduce.diagnosis.reading import Portion, PortionParser, PortionReader, Surplus
from transduce.diagnosis.removal import Removal
from transduce.diagnosis.rules import Rows
from transduce.diagnosis.structure import DIFFERENT_LENGTHS, MALFORMED_LINES
from transduce.errors import SettingError
from transduce.files import disk_errors, synchronize, synchronize_open

REMOVED = "removed.tsv"
_HEADER = b"file\tline\trule\tsource\ttarget\n"
_COMPRESSED = {".gz", ".xz", ".bz2"}
_ESCAPES = {b"\\": b"\\\\", b"\t": b"\\t", b"\r": b"\\r"}


@dataclass(frozen=True)
class Written:
    """How many pairs were kept, and how many were left out by which rule."""

    folder: Path
    kept: int
    removed: Mapping[str, int]

    def summary(self) -> str:
        """A one-line summary."""
        count = sum(self.removed.values())
        if not count:
            return f"{self.folder}: wrote all {self.kept:,} pairs; nothing was left out"
        return (
            f"{self.folder}: wrote {self.kept:,} of {self.kept + count:,} pairs; {self.folder / REMOVED} lists the "
            f"{count:,} that were left out, with the reasons"
        )


def check_folder(folder: str | Path) -> Path:
    """Refuse a folder that holds anything or cannot be written, before the corpus is read."""
    path = Path(folder)
    with _write_errors(path):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise SettingError(f"--write {folder}: it exists and is not an empty folder: give a new folder")
        existing = next(parent for parent in path.absolute().parents if parent.exists())
        tempfile.TemporaryDirectory(dir=existing).cleanup()
    return path


def _write_errors(folder: Path) -> AbstractContextManager[None]:
    return disk_errors(lambda reason, full: SettingError(f"--write {folder}: cannot be written: {reason.lower()}"))


def write_clean(
    corpus: Corpus, removed: Mapping[str, Rows], pairs: int, folder: Path, removal: Removal | None = None
) -> Written:
    """Write the files without the removed pairs; where several rules apply, the table names the first of them."""
    with _write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        counts = _write_to(scratch, folder, corpus, removed, pairs, removal or Removal())
    return Written(folder, pairs - sum(counts[rule] for rule in removed), dict(counts))


def _write_to(
    scratch: Path, folder: Path, corpus: Corpus, removed: Mapping[str, Rows], pairs: int, removal: Removal
) -> Counter[str]:
    """Write everything to a folder of a temporary name, and rename it when it is complete."""
    try:
        with closing(_Writer(corpus, removed, pairs, scratch, removal)) as writer:
            counts = writer.write()
        for path in scratch.iterdir():
            synchronize(path)
        scratch.chmod(0o755)
        os.replace(scratch, folder)
        synchronize(folder.parent)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return counts


def clean_names(corpus: Corpus) -> list[list[str]]:
    """The names of the clean files of each group; a name that occurs again gets a number."""
    seen: Counter[str] = Counter({REMOVED: 1})
    return [[_unused(_plain_name(path), seen) for path in group] for group in corpus.groups]


def _plain_name(path: str) -> str:
    name = Path(path)
    return name.stem if name.suffix.lower() in _COMPRESSED else name.name


def _unused(name: str, seen: Counter[str]) -> str:
    seen[name] += 1
    return name if seen[name] == 1 else f"{Path(name).stem}-{seen[name]}{Path(name).suffix}"


class _Writer:
    def __init__(self, corpus: Corpus, removed: Mapping[str, Rows], pairs: int, folder: Path, removal: Removal) -> None:
        self.corpus, self.rules, self.removal = corpus, list(removed), removal
        self.verdicts = np.zeros(pairs, np.uint8)  # 0: kept; otherwise the number of a rule
        for number in range(len(self.rules), 0, -1):
            self.verdicts[removed[self.rules[number - 1]]] = number
        self._files = ExitStack()
        names = clean_names(corpus)
        self.clean = [[self._open(folder / name) for name in group] for group in names]
        self.table = self._open(folder / REMOVED)
        self.counts: Counter[str] = Counter()

    def _open(self, path: Path) -> IO[bytes]:
        return self._files.enter_context(path.open("wb"))

    def close(self) -> None:
        self._files.close()

    def write(self) -> Counter[str]:
        self.table.write(_HEADER)
        reader, parse, first = PortionReader("train", self.corpus), PortionParser("train", self.corpus), 0
        for portion in reader:
            parsed = parse(portion)
            verdicts = self.verdicts[first : first + len(parsed.block)]
            first += len(parsed.block)
            bad = {
                parsed.block.place.lines[row]: self.rules[verdicts[row] - 1]
                for row in np.flatnonzero(verdicts).tolist()
            }
            malformed = parsed.malformed if self.removal.removes(MALFORMED_LINES) else ()
            self._write_portion(portion, bad | {one.line: MALFORMED_LINES for one in malformed})
        for surplus in reader.surplus:
            self._write_surplus(surplus)
        for file in [*(file for group in self.clean for file in group), self.table]:
            synchronize_open(file)
        return self.counts

    def _write_portion(self, portion: Portion, bad: Mapping[int, str]) -> None:
        files = self.clean[portion.group]
        if not bad:
            for file, data in zip(files, portion.files, strict=True):
                file.write(data)
            return
        sides = [data.split(b"\n")[:-1] for data in portion.files]
        for at in range(len(sides[0])):
            texts = [side[at] for side in sides]
            if rule := bad.get(portion.first_line + at):
                self._record(self.corpus.groups[portion.group][0], portion.first_line + at, rule, texts)
            else:
                for file, text in zip(files, texts, strict=True):
                    file.write(text + b"\n")

    def _record(self, file: str, line: int, rule: str, texts: Sequence[bytes]) -> None:
        self.counts[rule] += 1
        fields = [file.encode(errors="surrogateescape"), b"%d" % line, rule.encode(), *texts]
        self.table.write(b"\t".join(map(_escaped, fields)) + b"\n")

    def _write_surplus(self, surplus: Surplus) -> None:
        group, side = self.corpus.groups.index(surplus.files), surplus.files.index(surplus.longer)
        with open_bytes(surplus.longer) as file:
            for number, line in enumerate(islice(file, surplus.first_line - 1, None), surplus.first_line):
                if self.removal.removes(DIFFERENT_LENGTHS):
                    texts = [b""] * side + [line.rstrip(b"\n")]
                    self._record(surplus.longer, number, DIFFERENT_LENGTHS, texts)
                else:
                    self.clean[group][side].write(line)


def _escaped(field: bytes) -> bytes:
    for character, escape in _ESCAPES.items():
        field = field.replace(character, escape)
    return field
