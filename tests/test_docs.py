"""The documents keep their word: generated pages are up to date, links lead somewhere, every page is in the index."""

import re
import shlex
import sys
from pathlib import Path

import pytest

import transduce
from transduce.cli.parser import make_parser
from transduce.config import FAMILIES, all_settings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
sys.path.insert(0, str(DOCS))
try:
    import command_line
    import scaling
finally:
    sys.path.pop(0)


OTHER_GUIDES = "tutorial.md", "speech-tutorial.md", "serving.md", "explorer.md"
GUIDES = [page for page in PAGES if page.parent.name == "how-to" or page.name in OTHER_GUIDES]
SETTINGS = {one.name for family in FAMILIES for one in all_settings(family)}


def test_the_command_line_reference_is_generated() -> None:
    written = command_line.PAGE.read_text(encoding="utf-8")
    assert written == command_line.page(), (
        "docs/reference/command-line.md is out of date; run: python docs/command_line.py"
    )


def test_the_predictions_of_scaling_are_computed() -> None:
    written = scaling.PAGE.read_text(encoding="utf-8")
    assert written == scaling.replaced(written), "docs/scaling.md is out of date; run: python docs/scaling.py"


def test_the_http_reference_is_generated() -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    sys.path.insert(0, str(DOCS))
    try:
        import http_api
    finally:
        sys.path.pop(0)
    written = http_api.PAGE.read_text(encoding="utf-8")
    assert written == http_api.page(http_api.openapi()), (
        "docs/reference/http.md is out of date; run: python docs/http_api.py"
    )


def prose(page: Path) -> str:
    """The text of a page without its code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_is_taken_for_a_tag(page: Path) -> None:
    """Markdown passes `<unk>` on as HTML, and browsers show nothing."""
    tags = re.findall(r"</?[a-z][^>\n]*>", re.sub(r"<!--.*?-->|<https?:[^>]*>", "", prose(page), flags=re.S))
    assert [tag for tag in tags if tag != "<br>"] == []


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


def commands(page: Path) -> list[str]:
    """The commands of `transduce` in a page's blocks of code, a redirection and what follows a pipe aside."""
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    blocks = [block for language, block in found if language in ("", "sh")]
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    matches = [re.search(r"(?:^|\| )(transduce .*?)(?: [<>|].*| +#.*)?$", line) for line in lines]
    return [match[1] for match in matches if match]


@pytest.mark.parametrize("page", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_are_understood(page: Path) -> None:
    """Every command parses, and every setting it names exists."""
    for command in commands(page):
        options = make_parser().parse_args(shlex.split(command)[1:])
        named = {setting.partition("=")[0] for setting in getattr(options, "settings", [])}
        assert named <= SETTINGS, command


FILES = {"npz", "de", "en", "safetensors", "tsv"}  # endings of files whose names look like settings: train.de


@pytest.mark.parametrize("page", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_exist(page: Path) -> None:
    named = re.findall(r"`((?:model|data|train|search)\.(\w+))(?:=[^`]*)?`", page.read_text(encoding="utf-8"))
    assert {setting for setting, ending in named if ending not in FILES} <= SETTINGS


def test_commands_are_found() -> None:
    assert sum(len(commands(page)) for page in GUIDES) > 30


def test_every_page_can_be_reached_from_the_index() -> None:
    """By links, from docs/README.md on: a page that nobody finds is not read."""
    seen: set[Path] = set()
    waiting = [DOCS / "README.md"]
    while waiting:
        page = waiting.pop()
        seen.add(page)
        links = [
            page.parent / link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+\.md(?:#[^)]*)?)\)", prose(page))
        ]
        waiting += [link.resolve() for link in links if link.exists() and link.resolve() not in seen]
    missing = [str(page.relative_to(ROOT)) for page in DOCS.rglob("*.md") if page not in seen]
    assert missing == [], "link these pages from docs/README.md or from a page that is linked there"


def test_the_python_reference_has_every_public_name() -> None:
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    listed = [name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)$", text, flags=re.M)]
    assert sorted(listed) == [name for name in transduce.__all__ if name != "__version__"]
