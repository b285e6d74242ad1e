"""What the README says is so: its table is generated, its commands are understood, its links lead somewhere."""

import ast
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from transduce.cli.parser import make_parser

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_results_are_generated() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import readme
    finally:
        sys.path.pop(0)
    assert readme.RESULTS.read_text(encoding="utf-8") == readme.page(), "run: python benchmarks/readme.py"
    assert readme.replaced(README) == README, "run: python benchmarks/readme.py"


def test_the_demo_prints_what_the_readme_shows() -> None:
    """Its words are those of the program, and its figures those of the recorded run."""
    program = (ROOT / "transduce/demo.py").read_text(encoding="utf-8")
    recorded = json.loads((ROOT / "benchmarks/results/demo.json").read_text(encoding="utf-8"))["demo"]
    for words in ("words never seen in training", "with stress marks", "words that are not in the dictionary at all:"):
        assert words in program
        assert words in README
    assert f"{recorded['words']:,} words never seen in training" in README
    for kind in ("stressed", "plain"):
        assert (
            "  ".join(
                f"{name} {score['value']:.2f}" for name, score in recorded[kind].items() if name in ("PER", "WER")
            )
            in README
        )


@pytest.mark.parametrize("line", [ln for ln in README.split("\n") if ln.startswith("transduce ")])
def test_the_commands_are_understood(line: str) -> None:
    words = shlex.split(line.partition("<")[0])
    make_parser().parse_args(words[1:])


def test_the_python_is_python() -> None:
    for block in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL):
        ast.parse(block)


def test_the_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / link).exists(), link


def test_it_is_short() -> None:
    """What it is, for whom, install, three commands, five figures, where next: the rest belongs into docs/."""
    assert len(README.split()) < 1_100, "move details into docs/"
