"""The page of an examination: one file, what a reader does with it, and what a corpus must not do to it."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from browsing import Page, browser, page
from hostile_texts import FORBIDDEN, HOSTILE

from transduce.diagnosis import page as doctor_page
from transduce.diagnosis.findings import (
    CorpusCount,
    Example,
    Finding,
    Histogram,
    RankedPair,
    Report,
    Statistics,
    Threshold,
)
from transduce.diagnosis.page import write_page
from transduce.errors import SettingError
from transduce.explore.page import document, read_files
from transduce.files import check_place

FOLDER = Path(doctor_page.__file__).parent


def examples(texts: list[str]) -> tuple[Example, ...]:
    return tuple(Example(f"file {text}", n, text, text, text) for n, text in enumerate(texts, 1))


def report_of(texts: list[str], ranked: bool = True) -> Report:
    """A report in which every text that comes from a corpus is one of these."""
    severities = ("serious", "notable", "note")
    findings = [
        Finding(
            f"rule-{n}",
            severity,
            1_234 * n,
            0.01 * n,
            f"What is wrong {texts[0]}",
            f"What to do {texts[0]}",
            examples(texts),
        )  # type: ignore[arg-type]
        for n, severity in enumerate(severities)
    ]
    ranking = tuple(
        RankedPair(text, n, text, text, math.inf if n == 1 else 9.0 - n, 2.0, 1.0) for n, text in enumerate(texts, 1)
    )
    return Report(
        corpora=(CorpusCount("train", (texts[0], "b"), 5_000, 1, 1),),
        pairs=5_000,
        seconds=1.25,
        findings=tuple(findings),
        statistics=Statistics(
            Histogram((0, 10, 20, 40, math.inf), (10, 50, 5, 1)),
            Histogram((0, 10, 20, 40, math.inf), (10, 50, 5, 1)),
            Histogram((0.0, 0.5, 1.0, 2.0), (1, 60, 5)),
            ((10, 12), (100, 90), (3, 900)),
        ),
        thresholds={"longest": Threshold(400.0, "validation data")},
        left_out={texts[0]: 3},
        settings={"model.d_model": 256, "name": texts[0]},
        reasons=(texts[0],),
        ranking=ranking if ranked else (),
    )


TEXTS = ["first text", "zweiter Text", "third \u0085 with \u202e marks"]


@pytest.fixture
def opened(page: Page, tmp_path: Path) -> Page:
    return open_page(page, tmp_path, report_of(TEXTS))


def open_page(page: Page, folder: Path, report: Report) -> Page:
    write_page(report, folder / "report.html")
    page.goto((folder / "report.html").as_uri())
    page.wait_for_selector("#about:not(:empty)")
    return page


def open_all(page: Page) -> None:
    page.eval_on_selector_all(".finding", "all => all.forEach((one) => { one.open = true; })")
    page.wait_for_selector(".finding >> nth=2 >> .leaves")


# --- the file ----------------------------------------------------------------------------------------------------


def test_the_page_is_one_file_that_asks_for_nothing(tmp_path: Path) -> None:
    write_page(report_of(TEXTS), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r'<(?:script|link|img)[^>]*(?:src|href)="', text)
    assert not re.search(r"\{\{\w+\}\}", text)


def test_the_report_is_in_the_page_as_json(tmp_path: Path) -> None:
    write_page(report_of(TEXTS), tmp_path / "report.html")
    [data] = re.findall(r'id="view">(.*?)</script>', (tmp_path / "report.html").read_text(encoding="utf-8"), re.S)

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    view = json.loads(data, parse_constant=refuse)
    assert [one["rule"] for one in view["findings"]] == ["rule-0", "rule-1", "rule-2"]
    assert view["ranking"][0]["score"] is None


def test_every_module_that_is_imported_exists() -> None:
    [modules] = re.findall(r'<script type="importmap">(.*?)</script>', document("doctor.html", read_files(FOLDER)))
    known = set(json.loads(modules)["imports"])
    for path in FOLDER.glob("*.js"):
        for name in re.findall(r'from "\./([^"]+)"', path.read_text(encoding="utf-8")):
            assert f"page/{name}" in known, f"{path.name} imports {name}"


def test_no_name_of_the_explorer_is_taken() -> None:
    explorer = {path.name for path in (FOLDER.parents[1] / "explore" / "page").iterdir()} - {
        "__init__.py",
        "__pycache__",
    }
    assert explorer & {path.name for path in FOLDER.iterdir()} == set()


@pytest.mark.parametrize("name", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("])
def test_no_module_turns_text_into_html(name: str) -> None:
    assert [path.name for path in FOLDER.glob("*.js") if name in path.read_text(encoding="utf-8")] == []


def test_a_page_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="does not exist"):
        check_place(tmp_path / "no" / "report.html")
    with pytest.raises(SettingError, match="is a folder"):
        check_place(tmp_path)
    with pytest.raises(SettingError, match="cannot be written"):
        write_page(report_of(TEXTS), tmp_path)
    check_place(tmp_path / "report.html")


# --- what a reader does ------------------------------------------------------------------------------------------


def test_the_findings_are_ranked_and_the_serious_are_open(opened: Page) -> None:
    assert opened.inner_text("#verdict") == "Found: 1 serious, 1 worth a look, 1 note."
    assert "5,000 pairs in 2 files, read in 1.3 s" in opened.inner_text("#about")
    assert opened.locator(".finding .rule").all_inner_texts() == ["rule-0", "rule-1", "rule-2"]
    assert opened.locator(".finding[open]").count() == 1
    opened.click(".finding >> nth=1")
    opened.wait_for_selector(".finding[open] >> nth=1")
    assert "What to do first text" in opened.locator(".finding >> nth=1").inner_text()
    assert "1,234 pairs, 1 % of the training data" in opened.locator(".finding >> nth=1").inner_text()


def test_examples_are_leafed_through_by_buttons_and_keys(opened: Page) -> None:
    leaves = opened.locator("#findings .leaves").first
    assert "1 of 3: file first text:1" in leaves.inner_text()
    leaves.get_by_text("Next").click()
    assert "zweiter Text" in leaves.inner_text()
    leaves.focus()
    opened.keyboard.press("ArrowRight")
    assert "3 of 3" in leaves.inner_text()
    assert leaves.get_by_text("Next").is_disabled()
    opened.keyboard.press("ArrowLeft")
    opened.keyboard.press("ArrowLeft")
    assert "1 of 3" in leaves.inner_text()


def test_invisible_characters_are_shown(opened: Page) -> None:
    leaves = opened.locator("#findings .leaves").first
    leaves.get_by_text("Next").click()
    leaves.get_by_text("Next").click()
    assert leaves.locator("dd").first.inner_text() == "third U+0085 with U+202E marks"


def test_one_severity_can_be_chosen(opened: Page) -> None:
    opened.click("button[value=notable]")
    assert opened.locator(".finding:visible .rule").all_inner_texts() == ["rule-1"]
    opened.click("button[value=all]")
    assert opened.locator(".finding:visible").count() == 3


def test_arrow_keys_move_between_findings(opened: Page) -> None:
    opened.focus(".finding >> nth=0 >> summary")
    opened.keyboard.press("ArrowDown")
    opened.keyboard.press("Enter")
    assert opened.locator(".finding[open]").count() == 2


def test_charts_and_tables_are_drawn(opened: Page) -> None:
    assert opened.locator("#distributions svg").count() == 4
    assert opened.locator(".point").count() == 3
    opened.hover(".chart >> nth=0 >> g >> nth=1")
    assert "10 to 20 characters: 50 pairs (75.8 %)" in opened.locator(".readout").first.inner_text()
    training = opened.inner_text("#training")
    assert "model.d_model\t256" in training
    assert "longest\t400\tvalidation data" in training


def test_the_worst_pairs_by_the_model(opened: Page, tmp_path: Path) -> None:
    assert "The 3 worst pairs" in opened.inner_text("#ranking")
    assert "score not a number, forward 2.00, reverse 1.00" in opened.inner_text("#ranking")
    open_page(opened, tmp_path, report_of(TEXTS, ranked=False))
    assert opened.inner_text("#ranking") == ""


def test_an_empty_report_says_so(page: Page, tmp_path: Path) -> None:
    open_page(page, tmp_path, Report((), 0, 0.0, ()))
    assert page.inner_text("#verdict") == "Nothing was found."


def test_nothing_is_wider_than_a_phone(opened: Page) -> None:
    opened.set_viewport_size({"width": 360, "height": 740})
    open_all(opened)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 360


def test_dark_is_dark(opened: Page) -> None:
    lightness = "e => getComputedStyle(e).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0)"
    opened.emulate_media(color_scheme="dark")
    assert opened.eval_on_selector("body", lightness) < 120
    opened.emulate_media(color_scheme="light")
    assert opened.eval_on_selector("body", lightness) > 650


def test_hostile_texts_are_only_text(page: Page, tmp_path: Path) -> None:
    everything = "".join(HOSTILE)
    open_page(page, tmp_path, report_of([everything, *HOSTILE]))
    open_all(page)
    assert page.locator("#findings .leaves dd").first.text_content() == everything
    for leaves in page.locator(".leaves").all():
        leaves.focus()
        for _ in range(20):
            page.keyboard.press("ArrowRight")
    assert page.evaluate("window.fired") is None
    assert page.locator(f"body :is({FORBIDDEN})").count() == 0
    assert page.locator("script").count() == 3  # the import map, the data and the module
    handlers = "() => [...document.querySelectorAll('*')].filter(e => e.getAttributeNames().some(n => n.startsWith('on'))).length"
    assert page.evaluate(handlers) == 0
