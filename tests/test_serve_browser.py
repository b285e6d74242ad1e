"""The page of language models and speech models in a real browser, with a real server behind it."""

import io
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("granian")
pytest.importorskip("soundfile")

import soundfile
from browsing import Page, browser, is_inert, page
from folders import write_character_model, write_folder, write_speech_model


@pytest.fixture(scope="module")
def address(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a model of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    stories, talks = write_character_model(folder / "stories"), write_speech_model(folder / "talks")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = ["serve", str(stories), str(talks), str(write_folder(folder / "run")), "--port", str(port)]
    options = ["--threads", "1", "--audio-seconds", "5"]
    server = subprocess.Popen(
        [sys.executable, "-m", "transduce", *command, *options], stderr=subprocess.DEVNULL, env=os.environ
    )
    try:
        yield wait_for(f"http://localhost:{port}/", server)
    finally:
        server.terminate()
        server.wait(30)


def wait_for(where: str, server: "subprocess.Popen[bytes]") -> str:
    until = time.monotonic() + 90
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(f"{where}health/live", timeout=5).close()
            return where
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the server did not start")


def tabs(page: Page) -> list[str]:
    return [tab.inner_text() for tab in page.locator('[role="tab"]').all() if tab.is_visible()]


def choose(page: Page, address: str, model: str, tab: str) -> None:
    page.goto(address)
    page.wait_for_selector("#model option", state="attached")
    page.select_option("#model", model)
    page.wait_for_selector(f"#{tab}:not([hidden])")


def wav(seconds: float) -> bytes:
    file, draw = io.BytesIO(), np.random.default_rng(0)
    soundfile.write(file, 0.1 * draw.normal(size=round(16_000 * seconds)), 16_000, format="WAV")
    return file.getvalue()


def test_each_kind_of_model_has_its_own_tabs(page: Page, address: str) -> None:
    choose(page, address, "stories", "generate")
    assert tabs(page) == ["Generate", "Training"]
    page.select_option("#model", "talks")
    page.wait_for_selector("#transcribe:not([hidden])")
    assert tabs(page) == ["Transcribe", "Training"]
    page.select_option("#model", "en-de")
    page.wait_for_selector("#tab-translate:visible")
    assert tabs(page) == ["Translate", "Search", "Look inside", "Training"]
    page.fill("#text", "the cat")
    page.wait_for_selector("#translate .best .shaded")


def test_a_text_is_generated_while_one_watches(page: Page, address: str) -> None:
    choose(page, address, "stories", "generate")
    page.fill("#prompt", "<b>the cat</b>")
    page.fill("#max-tokens", "30")
    page.click("#generate button:has-text('Generate')")
    page.wait_for_selector("#generate .hint:has-text('after 30 tokens')")
    written = page.inner_text("#generate .written")
    assert written.startswith("<b>the cat</b>")
    assert len(written) > len("<b>the cat</b>")
    is_inert(page)
    page.uncheck("#sampling")
    texts = set()
    for _ in range(2):
        page.click("#generate button:has-text('Generate')")
        page.wait_for_selector("#generate .hint:has-text('after 30 tokens')")
        texts.add(page.inner_text("#generate .written"))
    assert len(texts) == 1, "without sampling, the text is always the same"


# Clicks Stop as soon as the first piece of text is on the page: by then, a click from outside may be too late.
STOP_AT_FIRST_TEXT = """() => {
  const stop = [...document.querySelectorAll("#generate button")].find((button) => button.textContent === "Stop");
  const stopped = new MutationObserver(() => (stopped.disconnect(), stop.click()));
  stopped.observe(document.querySelector("#generate .written"), { characterData: true, subtree: true });
}"""


def test_a_generation_can_be_stopped(page: Page, address: str) -> None:
    choose(page, address, "stories", "generate")
    page.fill("#max-tokens", "1000")
    page.uncheck("#sampling")
    page.evaluate(STOP_AT_FIRST_TEXT)
    page.click("#generate button:has-text('Generate')")
    page.wait_for_selector("#generate .written:not(:empty)")
    page.wait_for_selector("#generate button:has-text('Generate'):visible")
    assert 0 < len(page.inner_text("#generate .written")) < 1000, "a character for each token"
    assert page.inner_text("#generate .hint") == ""
    assert page.is_hidden("#message")


def test_a_file_is_transcribed_and_a_bad_one_is_refused_in_words(page: Page, address: str) -> None:
    choose(page, address, "talks", "transcribe")
    recording = {"name": "../a.wav", "mimeType": "audio/wav", "buffer": wav(1.0)}
    page.set_input_files("#recording", files=[recording])
    page.wait_for_selector("#transcribe .segments li")
    assert re.search(r"0\.0 to 1\.0 s, confidence", page.inner_text("#transcribe .segments"))
    box = page.locator("#transcribe .segments canvas").bounding_box()
    assert box["height"] > 16 * 5, "a row for each token"
    assert "CTC emits" in page.locator("#transcribe .segments canvas").get_attribute("aria-label")
    page.set_input_files("#recording", files=[recording | {"buffer": b"no sound"}])
    page.wait_for_selector("#message:visible")
    assert "not a recording of a known type" in page.inner_text("#message")
    page.set_input_files("#recording", files=[recording | {"buffer": wav(6.0)}])
    page.wait_for_selector("#message:has-text('at most 5 s are accepted')")


def test_the_microphone_is_recorded_and_sent_as_wav(page: Page, address: str) -> None:
    choose(page, address, "talks", "transcribe")
    page.click("#transcribe button:has-text('Record')")
    page.wait_for_selector("#transcribe button:has-text('Stop recording')")
    page.wait_for_timeout(600)
    page.click("#transcribe button:has-text('Stop recording')")
    page.wait_for_selector("#transcribe .segments li")  # the server reads no WebM, which is what browsers record
    seconds = float(page.inner_text("#transcribe [role=status]").removesuffix(" s"))
    assert 0.1 < seconds < 5
