"""Statements: pieces of sentences with figures, and where their figures come from."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = "no one two three four five six seven eight nine ten eleven twelve".split()
FIGURE = re.compile(r"(?<![\w.,/-])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?![\w/²])")
NO_FIGURE = re.compile(r"`[^`]*`|\b(?:19|20)\d\d\b|[Tt]able \d|[Ss]ection [\d.]+|\]\([^)]*\)")


@dataclass(frozen=True)
class Statement:
    """A piece of a sentence; `holds` says whether its words are true where it has no figures of its own."""

    text: str
    holds: bool = True


Statements = Callable[[], Iterable[Statement]]


def says(text: str, holds: bool = True) -> Statement:
    """What the result files say, with figures that were formatted from them, or words that hold for them."""
    return Statement(text, holds)


def given(text: str) -> Statement:
    """A fact about public data or by others, which we did not measure."""
    return Statement(text)


def logged(text: str, entry: str) -> Statement:
    """What was measured without a result file: every figure must be in the entry of docs/log.md with these words in its heading."""
    log = (ROOT / "docs" / "log.md").read_text(encoding="utf-8")
    (found,) = [part for part in log.split("\n## ") if entry in part.partition("\n")[0]]
    known = set(re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", re.sub(r"(?<![\d.])\.(?=\d)", "0.", found)))
    return Statement(text, all(figure.lstrip("+-") in known for figure in figures(text)))


def number(value: float) -> str:
    """A small number as a word."""
    return WORDS[round(value)]


# --- documents ------------------------------------------------------------------------------------------------------


def prose(document: str) -> str:
    """The text of a document in one line, without generated parts and blocks of code; of a recipe its header, without commands."""
    text = (ROOT / document).read_text(encoding="utf-8")
    lines = list(header(text)) if document.endswith(".toml") else without_parts(text).split("\n")
    return " ".join(" ".join(lines).split())


def header(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        if not line.startswith("#"):
            return
        if not line.startswith("#   "):
            yield line.removeprefix("#")


def without_parts(text: str) -> str:
    text = re.sub(r"<!-- (\w+): python .*?<!-- end of \1 -->", "", text, flags=re.S)
    return re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)


def figures(text: str) -> list[str]:
    """The figures of a text, without code, years, and numbers of tables and sections."""
    return FIGURE.findall(NO_FIGURE.sub(" ", text))


def uncovered(text: str, statements: Iterable[Statement]) -> list[str]:
    """The figures that are in no statement."""
    for statement in statements:
        text = text.replace(statement.text, " ")
    return figures(text)
