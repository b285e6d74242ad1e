"""A real browser for tests of pages, and what strangers' text must not do in it."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from hostile_texts import FORBIDDEN

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --use-fake-device-for-media-stream --use-fake-ui-for-media-stream"
).split()
Page = Any  # playwright's, which may not be installed


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:
    """A tab that fails its test when anything goes wrong in it."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda message: wrong.append(message.text) if is_wrong(message) else None)
    tab.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    tab.set_default_timeout(60_000)  # a busy machine may take long
    yield tab
    tab.close()
    assert wrong == []


def is_wrong(message: Any) -> bool:
    """The browser notes each answer that is a refusal; tests that provoke one look at what the page makes of it."""
    return message.type == "error" and "the server responded with a status of" not in message.text


def is_inert(page: Page) -> None:
    assert page.evaluate("window.fired") is None
    assert page.locator(FORBIDDEN).count() == 0
    assert page.locator("script:not([src]):not([type])").count() == 0
    handlers = "() => [...document.querySelectorAll('*')].filter(e => e.getAttributeNames().some(n => n.startsWith('on'))).length"
    assert page.evaluate(handlers) == 0
