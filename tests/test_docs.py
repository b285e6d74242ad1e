"""The documents keep their word: generated pages are up to date, links lead somewhere, every page is in the index."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
sys.path.insert(0, str(DOCS))
try:
    import command_line
finally:
    sys.path.pop(0)


def test_the_command_line_reference_is_generated() -> None:
    written = command_line.PAGE.read_text(encoding="utf-8")
    assert written == command_line.page(), (
        "docs/reference/command-line.md is out of date; run: python docs/command_line.py"
    )


def prose(page: Path) -> str:
    """The text of a page without its code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M), re.M
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> list[str]:
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md#a-heading) [b](#here) [c](gone.md) [d](other.md#gone) [e](https://x.org) `[f](g)`\n\n## Here\n"
    )
    assert dead_links(page) == ["gone.md", "other.md#gone"]
