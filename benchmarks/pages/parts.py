"""The generated parts of a page, each between two marks, and their tables."""

from collections.abc import Iterable
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def replace_part(text: str, name: str, command: str, part: str) -> str:
    """The page with a new text between the marks of a generated part; the first mark says which command writes it."""
    begin, end = f"<!-- {name}: python benchmarks/{command} -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{part}\n\n{end}{after}"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(header)
    lines = [names, ["---"] * len(names), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
