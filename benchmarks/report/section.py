"""A section of docs/results.md: functions that make rows, each declared with the result files it is called with."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"

Result = dict[str, Any]  # the content of a result file, and its name
MakeRows = Callable[[Result], Iterable[str]]


@dataclass
class Section:
    """A heading and a table, whose rows are in the order in which their functions are declared."""

    title: str
    declared: list[tuple[str, MakeRows]] = field(default_factory=list)

    def rows_from(self, *names: str) -> Callable[[MakeRows], MakeRows]:
        """Declare a function that makes rows: it is called with each of these result files that exists."""

        def declare(make_rows: MakeRows) -> MakeRows:
            self.declared += [(name, make_rows) for name in names]
            return make_rows

        return declare

    def __str__(self) -> str:
        rows = [row for name, make_rows in self.declared if (result := read(name)) for row in make_rows(result)]
        table = "\n".join(["| what | figure | where and how |", "| --- | --- | --- |", *rows])
        return f"## {self.title}\n\n{table}\n"


def read(name: str) -> Result:
    """A result file with its name; empty if there is no such file."""
    path = RESULTS / f"{name}.json"
    return {"name": name, **json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}


def row(what: str, figure: str, how: str) -> str:
    return f"| {what} | {figure} | {how.replace('|', chr(92) + '|')} |"


def where(result: Result) -> str:
    """The GPU, or else the cores."""
    gpu = result["hardware"].get("gpu")
    return f"one {gpu}" if gpu else cores(result)


def cores(result: Result) -> str:
    count = result["hardware"]["cores"]
    return f"{count} core{'s' * (count > 1)} ({result['hardware']['cpu'].strip()})"
