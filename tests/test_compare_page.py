"""The page of a comparison in a real browser: what a reader does with it, and what strangers' text must not do."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from browsing import Page, browser, page
from folders import GERMAN, WORDS, lines, write_folder
from hostile_texts import FORBIDDEN, HOSTILE
from page_server import serve

import transduce
from transduce.cli import main
from transduce.comparison import page as comparison_page
from transduce.config import SearchConfig
from transduce.explore.page import document, read_files

SENTENCES = 40
FOLDER = Path(comparison_page.__file__).parent


def write_lines(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The page of a run folder and two files, and what it shows."""
    folder = tmp_path_factory.mktemp("compare-page")
    run = write_folder(folder / "run", search=SearchConfig(length_penalty="power", alpha=1.0, max_extra=4))
    source = write_lines(folder / "source", lines(SENTENCES, seed=5))
    reference = write_lines(folder / "reference", lines(SENTENCES, seed=5, words=GERMAN))
    good = write_lines(folder / "good", [line.replace("und", "oder") for line in reference.read_text().splitlines()])
    poor = write_lines(folder / "poor", [line.partition(" ")[0] for line in reference.read_text().splitlines()])
    environment = pytest.MonkeyPatch()
    environment.setenv("TRANSDUCE_CACHE", str(folder / "cache"))
    found = transduce.compare(
        [run, good, poor],
        source=source,
        references=reference,
        metrics=["bleu"],
        samples=100,
        beam=1,
        html=folder / "page.html",
        quiet=True,
    )
    environment.undo()
    return {"run": run, "page": folder / "page.html", "found": found}


@pytest.fixture
def opened(page: Page, made: dict[str, Any]) -> Page:
    page.goto(made["page"].as_uri())
    page.wait_for_selector(".sentence")
    return page


# --- the file --------------------------------------------------------------------------------------------------


def test_the_page_is_one_file_that_asks_for_nothing(made: dict[str, Any]) -> None:
    text = made["page"].read_text(encoding="utf-8")
    assert not re.search(r'<(?:script|link|img)[^>]*(?:src|href)="', text)
    assert not re.search(r"\{\{\w+\}\}", text)
    [modules] = re.findall(r'<script type="importmap">(.*?)</script>', text)
    assert {f"page/{path.name}" for path in FOLDER.glob("*.js")} <= set(json.loads(modules)["imports"])


def test_every_module_that_is_imported_exists() -> None:
    text = document("compare.html", read_files(FOLDER))
    [modules] = re.findall(r'<script type="importmap">(.*?)</script>', text)
    known = set(json.loads(modules)["imports"])
    for path in FOLDER.glob("*.js"):
        for name in re.findall(r'from "\./([^"]+)"', path.read_text(encoding="utf-8")):
            assert f"page/{name}" in known, f"{path.name} imports {name}"


@pytest.mark.parametrize("name", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("])
def test_no_module_turns_text_into_html(name: str) -> None:
    assert [path.name for path in FOLDER.glob("*.js") if name in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--html", "no/such/folder/page.html"], "the folder no/such/folder does not exist"),
        (["--html", "page.html", "--explorer", "javascript:alert(1)"], "give the address of a server"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_at_once(
    options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--source", "s", "--reference", "r", "a", "b", *options]) == 2
    assert complaint in capsys.readouterr().err


# --- what a reader does ----------------------------------------------------------------------------------------


def test_scores_and_verdicts_are_those_of_the_comparison(opened: Page, made: dict[str, Any]) -> None:
    found = made["found"]
    assert opened.locator(".verdicts li").all_inner_texts() == list(found.sentences_about())
    assert opened.locator(".caveat").all_inner_texts() == [found.caveat] * bool(found.caveat)
    cells = opened.locator("#scores tbody tr").all_inner_texts()
    for text, system in zip(cells, found.main.systems, strict=True):
        assert text.startswith(f"{system.name}\t{system.score:.2f}")
    assert found.main.signature in opened.inner_text("#scores")


def test_wins_ties_and_losses_follow_the_chosen_system(opened: Page, made: dict[str, Any]) -> None:
    for name, pair in zip(("good", "poor"), made["found"].pairs, strict=True):
        opened.select_option("#system", name)
        shown = opened.locator(".outcome span:visible").all_inner_texts()
        counts = ((pair.wins, "better"), (pair.ties, "equal"), (pair.losses, "worse"))
        assert shown == [f"{count} {word}" for count, word in counts if count]
        assert opened.locator("#differences .whisker").count() == len(pair.groups)


def test_sentences_can_be_sorted(opened: Page, made: dict[str, Any]) -> None:
    found = made["found"]
    by_gain = sorted(found.rows, key=lambda row: found.gain(row, 1))
    opened.select_option("#order", "worse")
    assert f"line {by_gain[0].line}\n" in opened.inner_text(".sentence >> nth=0")
    opened.select_option("#order", "line")
    assert "line 1\n" in opened.inner_text(".sentence >> nth=0")


def test_sentences_can_be_filtered(opened: Page, made: dict[str, Any]) -> None:
    rows = made["found"].rows
    opened.fill("#search", "Seven small")
    wanted = [row for row in rows if "seven small" in " ".join([row.source, *row.references, *row.outputs]).lower()]
    assert opened.inner_text("#sentences [role=status]") == f"{len(wanted)} sentences"
    opened.fill("#search", "")
    opened.select_option("#outcome", "loss")
    losses = [row for row in rows if made["found"].gain(row, 1) < -1e-9]
    assert opened.inner_text("#sentences [role=status]") == f"{len(losses)} sentences"
    opened.select_option("#outcome", "all")
    opened.select_option("#group", "0")
    assert opened.inner_text("#sentences [role=status]") == f"{sum(0 in row.groups for row in rows)} sentences"


def test_more_sentences_are_shown_on_demand(opened: Page) -> None:
    assert opened.locator(".sentence").count() == 25
    opened.click("text=Show more")
    assert opened.locator(".sentence").count() == SENTENCES
    assert opened.is_hidden("text=Show more")


def test_words_that_differ_are_marked(opened: Page, made: dict[str, Any]) -> None:
    row = made["found"].rows[0]
    shown = opened.locator(".sentence >> nth=0").locator("dd")
    assert shown.all_inner_texts() == [row.source, *row.references, row.outputs[0], row.outputs[1]]
    marked = opened.locator(".sentence >> nth=0").locator("dd >> nth=3").locator("mark").all_inner_texts()
    assert set(row.outputs[1].split()) - set(row.outputs[0].split()) <= set(marked)


def test_alignments_are_drawn_and_lit(opened: Page, made: dict[str, Any]) -> None:
    opened.click(".sentence >> nth=0 >> text=Show alignments")
    assert opened.locator(".alignment").count() == 1  # of the run; a file has none
    assert opened.locator(".alignment line").count() > 0
    assert opened.get_attribute("text=Show alignments >> nth=0", "aria-expanded") == "true"
    aligned = transduce.load(made["run"], engine="torch", device="cpu").align(
        [made["found"].rows[0].source], [made["found"].rows[0].outputs[0]]
    )[0]
    assert opened.locator(".alignment line").count() == len(aligned)
    source, output = aligned[0]
    opened.hover(f".sentence >> nth=0 >> [data-side='0'][data-word='{output}']")
    assert "lit" in opened.get_attribute(f".sentence >> nth=0 >> [data-side=source][data-word='{source}']", "class")
    opened.click(".sentence >> nth=0 >> text=Show alignments")
    assert opened.locator(".alignment").count() == 0


def test_a_link_opens_the_sentence_in_the_explorer(opened: Page, made: dict[str, Any]) -> None:
    href = opened.get_attribute(".sentence a >> nth=0", "href")
    address, _, fragment = href.partition("#")
    assert address == "http://127.0.0.1:5000/"
    source = made["found"].rows[0].source
    assert parse_qs(fragment.partition("?")[2]) == {"text": [source], "model": ["en-de"]}
    with serve(made["run"]) as server:
        opened.goto(f"{server}#{fragment}")
        opened.wait_for_selector(".head")
        assert opened.input_value("#text") == source
        assert opened.get_attribute("#tab-inside", "aria-selected") == "true"


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(opened: Page, width: int) -> None:
    opened.set_viewport_size({"width": width, "height": 800})
    assert opened.evaluate("document.documentElement.scrollWidth") <= width


# --- hostile text ----------------------------------------------------------------------------------------------


def test_hostile_text_is_only_ever_text(page: Page, tmp_path: Path) -> None:
    """In sources, references, outputs, labels and the names of systems."""
    count = len(HOSTILE)
    source, reference = write_lines(tmp_path / "source", HOSTILE), write_lines(tmp_path / "reference", HOSTILE[::-1])
    one, other = write_lines(tmp_path / "one", HOSTILE), write_lines(tmp_path / "other", [" ".join(WORDS)] * count)
    labels = write_lines(tmp_path / "labels", [HOSTILE[n % 3] for n in range(count)])
    names = [f"<script>window.fired(1)</script>={one}", f"</script><iframe><base>={other}"]
    transduce.compare(
        names,
        source=source,
        references=reference,
        labels=labels,
        metrics=["chrf"],
        samples=100,
        html=tmp_path / "page.html",
        quiet=True,
    )
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector(".sentence")
    while page.is_visible("text=Show more"):
        page.click("text=Show more")
    shown = page.text_content("#sentences")
    squeezed = " ".join(shown.split())
    assert [text for text in HOSTILE if " ".join(text.split()) not in squeezed] == []
    assert page.evaluate("window.fired") is None
    assert page.locator(FORBIDDEN.replace(", style", "")).count() == 0
