"""The results of finished cells as JSON lines, so that a table can be measured in several sessions."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from transduce.config import assemble, settings_layer
from transduce.errors import DataError, SettingError
from transduce.paper.cells import Cell

Figures = dict[str, Any]


@dataclass
class Results:
    """The finished cells of a table: those of earlier sessions, and a file for those of this one."""

    path: Path
    lines: list[Figures] = field(default_factory=list)

    @staticmethod
    def read(path: Path, *others: Path) -> "Results":
        """Cells from all files; new ones are added to the first."""
        files = [one for one in dict.fromkeys((*others, path)) if one.exists()]
        return Results(path, [figures for file in files for figures in _read(file)])

    def find(self, **wanted: Any) -> list[Figures]:
        """The cells whose figures have these values; the newest for each key."""
        newest = {line["key"]: line for line in self.lines}
        return [one for one in newest.values() if all(one.get(name) == value for name, value in wanted.items())]

    def has(self, cell: Cell) -> bool:
        """Whether this cell was measured, with the settings and the budget that it has now."""
        return any(
            means_the_same(line["settings"], cell.settings)
            and (line["steps"] == cell.steps if cell.steps else line["budget_s"] == cell.seconds)
            for line in self.find(key=cell.key)
        )

    def add(self, figures: Figures) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.lines.append(figures)
        with open(self.path, "a+b") as file:
            _end_last_line(file)
            file.write(json.dumps(figures).encode() + b"\n")


def _read(file: Path) -> list[Figures]:
    """The cells of a file; a last line that was not written to its end is a cell that was not measured."""
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    cells = []
    for number, line in enumerate(lines, 1):
        try:
            cells += [json.loads(line)] if line else []
        except ValueError:
            if number < len(lines):
                raise DataError(
                    f"{file}:{number}: is no result of a cell: remove the line, and its cell is measured again"
                ) from None
    return cells


def _end_last_line(file: BinaryIO) -> None:
    """Remove a last line that was not written to its end: the next one would go on there."""
    file.seek(0)
    content = file.read()
    last = content[content.rfind(b"\n") + 1 :]
    try:
        file.write(b"\n" if last and json.loads(last) else b"")
    except ValueError:
        file.truncate(len(content) - len(last))


def means_the_same(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two lists of settings give the same configuration, however they are written."""
    try:
        return assemble(settings_layer(one)) == assemble(settings_layer(other))
    except SettingError:  # of another version
        return False


def mean_and_spread(values: list[float]) -> str:
    """The mean, and the lowest and the highest where there are several."""
    mean = f"{sum(values) / len(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.2f} to {max(values):.2f})"
