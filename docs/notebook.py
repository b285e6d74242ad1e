"""Writes docs/tutorial.ipynb, the tutorial as a Jupyter notebook, from docs/tutorial.md.

python docs/notebook.py
"""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "tutorial.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.S | re.M)
# The folder of a notebook is that of its file, and its kernel need not have the environment's commands on its path.
OPENING = """import os
import sys

os.chdir("..")  # the repository's folder
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]"""
SERVER = "import subprocess\n\nserver = subprocess.Popen({})"
CLOSING = "server.terminate()\nserver.wait()"


def main() -> None:
    NOTEBOOK.write_text(json.dumps(notebook(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def notebook() -> dict[str, Any]:
    cells = [
        {"id": f"cell-{number}", "metadata": {}, "source": source, **kind}
        for number, (kind, source) in enumerate(contents())
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def contents() -> Iterator[tuple[dict[str, Any], str]]:
    """The kind and source of every cell."""
    markdown, code = {"cell_type": "markdown"}, {"cell_type": "code", "execution_count": None, "outputs": []}
    for language, text in parts():
        if language in ("sh", "python"):
            yield from ((code, source) for source in code_cells(language, text))
        elif text.strip():
            yield markdown, text.strip()
    yield code, CLOSING


def parts() -> Iterator[tuple[str, str]]:
    """The page as blocks of commands and the text between them; shown output stays in the text."""
    text = PAGE.read_text(encoding="utf-8")
    end = 0
    for block in BLOCK.finditer(text):
        if block[1] in ("sh", "python"):
            yield "", text[end : block.start()]
            yield block[1], block[2].strip()
            end = block.end()
    yield "", text[end:]


def code_cells(language: str, text: str) -> Iterator[str]:
    lines = text.splitlines()
    if language == "python":
        yield text
    elif lines[0].startswith(". "):  # the environment
        folder = lines[-1].removeprefix("cd ")
        yield OPENING
        yield "\n".join(["%%bash", *lines[1:-1]])
        yield f'os.chdir("{folder}")'
    elif text.startswith("transduce serve"):
        yield SERVER.format(json.dumps(shlex.split(text)))
    else:
        yield "\n".join(["%%bash", text.replace("curl ", "curl --retry 30 --retry-connrefused --retry-delay 1 ")])


if __name__ == "__main__":
    main()
