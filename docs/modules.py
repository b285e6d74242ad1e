"""Writes the list of files in docs/architecture.md from the first sentence of each file.

python docs/modules.py            rewrites the list between its two marks
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE, PAGE = ROOT / "transduce", ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- files: python docs/modules.py -->", "<!-- end of files -->"
SCRIPTS = {".js", ".css", ".html"}


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replaced(text), encoding="utf-8")


def replaced(text: str) -> str:
    """The text with an up-to-date list between the marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{file_list()}\n\n{END}{after}"


def file_list() -> str:
    """A table of the single modules, then a table for every package with the packages inside it."""
    tables = [table("The package", PACKAGE, sorted(PACKAGE.glob("*.py")))]
    folders = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)
    tables += [table(f"`{where(folder)}/`", folder, files_of(folder)) for folder in folders]
    return "\n\n".join(tables)


def files_of(folder: Path) -> list[Path]:
    files = [path for path in folder.iterdir() if path.suffix == ".py" or path.suffix in SCRIPTS]
    return sorted(path for path in files if path.name != "__init__.py")


def table(title: str, folder: Path, files: list[Path]) -> str:
    opening = f"### {title}\n\n{_ended(first_sentence(folder / '__init__.py'))}"
    rows = [f"| `{where(path)}` | {first_sentence(path)} |" for path in files if path.name != "__init__.py"]
    return "\n".join([opening, "", "| file | what it is |", "| --- | --- |", *rows])


def where(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith("?") else f"{sentence}."


def first_sentence(path: Path) -> str:
    """What a file says of itself first, without its full stop and fit for a cell of a table."""
    paragraph = " ".join(opening_of(path).strip().partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.?!])\s+(?=[A-Z`(])", paragraph)[0]
    return sentence.removesuffix(".").replace("|", "\\|")


def opening_of(path: Path) -> str:
    """A module's docstring, or the first comment of a page's file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(text)) or ""
    comment = re.search(r"<!--(.*?)-->|/\*+(.*?)\*/", text, re.S)
    return (comment[1] or comment[2]) if comment else ""


def unnamed() -> Iterator[str]:
    """Files that do not say what they are."""
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in {".py", *SCRIPTS} and not first_sentence(path):
            yield where(path)


if __name__ == "__main__":
    main()
