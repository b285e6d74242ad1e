"""The pictures of docs/explorer.md, taken in a browser from a page that is being served.

    transduce serve RUN &
    python benchmarks/gallery.py http://127.0.0.1:8000/ docs/gallery

and that of docs/how-to/comparing-systems.md, from a page of `transduce compare --html`:

    python benchmarks/gallery.py compare.html docs/gallery

and that of docs/how-to/teaching.md, from a page of `transduce paper`:

    python benchmarks/gallery.py paper/paper.html docs/gallery

and that of docs/how-to/speech.md, from a page that serves a speech model, with a recording:

    python benchmarks/gallery.py http://127.0.0.1:5000/ docs/gallery recording.flac

Needs playwright and a chromium of the system. The sentences fit a model from English, such as that of
configs/multi30k-cpu.toml.
"""

import io
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

SENTENCE = "A group of people standing in front of an igloo while two dogs are playing in the snow nearby."
LONG = (
    "A man in a blue shirt is standing on a ladder cleaning a window while a woman with a red umbrella walks past him, "
    "and behind them several children are playing football on the grass next to a large brown dog that is sleeping "
    "under a tree, an old man reads his newspaper on a wooden bench, two girls in white dresses are eating ice cream in "
    "front of a small shop, and a young boy on a bicycle is looking at the street musicians who play the guitar and the "
    "violin for a crowd of tourists taking pictures near the fountain."
)
DRAWN = {"translate": ".best .piece", "search": ".node", "inside": ".head", "training": ".chart"}
COLOURS = 256  # of a picture's palette: a third of the bytes


@dataclass(frozen=True)
class Shot:
    """A picture: which panel, how wide, how high (0: all of it), light or dark, and what is done first."""

    panel: str
    width: int = 1240
    height: int = 860
    scheme: str = "light"
    text: str = SENTENCE
    act: Callable[[Page], Any] = lambda page: None


def look_at_a_token(page: Page) -> None:
    page.click(".head >> nth=4")
    page.hover(".lines .token >> nth=15")


def switch_heads_off(page: Page) -> None:
    for count, head in enumerate((5, 6, 1)):
        page.click(f".head >> nth={head}")
        page.click(".switch")
        page.wait_for_selector(f".head.off >> nth={count}")


def step_back(page: Page) -> None:
    for _ in range(10):
        page.click("[aria-label='Previous step']")


def look_at_the_encoder(page: Page) -> None:
    page.click("text=Encoder self-attention")
    page.click(".head >> nth=1")


SHOTS = {
    "translate": Shot("translate", height=640, act=lambda page: page.hover(".best .piece >> nth=8")),
    "search": Shot("search", height=900, act=step_back),
    "inside": Shot("inside", height=0),
    "inside-dark": Shot("inside", scheme="dark", act=look_at_a_token),
    "ablation": Shot("inside", act=switch_heads_off),
    "long": Shot("inside", height=1240, text=LONG, act=look_at_the_encoder),
    "training": Shot("training", height=1180),
    "phone-translate": Shot("translate", width=390, scheme="dark"),
    "phone-inside": Shot("inside", width=390, height=1240, act=lambda page: page.click(".head >> nth=4")),
}


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


def take(browser: Browser, address: str, shot: Shot) -> bytes:
    page = browser.new_page(viewport={"width": shot.width, "height": shot.height or 860}, color_scheme=shot.scheme)
    page.goto(f"{address}#{shot.panel}")
    page.wait_for_selector("#examples button", state="attached")
    if shot.panel != "training":
        page.fill("#text", shot.text)
    page.wait_for_selector(DRAWN[shot.panel])
    page.evaluate("document.activeElement.blur()")
    shot.act(page)
    page.wait_for_timeout(400)
    picture = page.screenshot(full_page=shot.height == 0)
    page.close()
    return picture


def take_comparison(browser: Browser, file: Path) -> bytes:
    """The scores, where the systems differ, and the first sentences with their alignments; n-grams are left out."""
    page = browser.new_page(viewport={"width": 1120, "height": 860})
    page.goto(file.resolve().as_uri())
    page.click("text=Show alignments >> nth=0")
    page.evaluate(
        "document.querySelectorAll('.beside, #differences .beside ~ *, .sentence:nth-child(n+3)').forEach(e => e.remove())"
    )
    picture = page.screenshot(full_page=True)
    page.close()
    return picture


def take_paper(browser: Browser, file: Path) -> bytes:
    """The first two tables of `transduce paper`, with their plots."""
    page = browser.new_page(viewport={"width": 1400, "height": 860})
    page.goto(file.resolve().as_uri())
    page.evaluate("document.querySelectorAll('.paper:nth-of-type(n+3)').forEach(e => e.remove())")
    picture = page.screenshot(full_page=True)
    page.close()
    return picture


def take_listening(browser: Browser, address: str, recording: Path) -> bytes:
    """A transcript, where the decoder listens, and when CTC emits each token."""
    page = browser.new_page(viewport={"width": 800, "height": 600})
    page.goto(address)
    page.wait_for_selector("#transcribe:not([hidden])")
    page.set_input_files("#transcribe input[type=file]", recording)
    page.wait_for_selector("#transcribe .segments canvas", timeout=120_000)
    page.wait_for_timeout(400)
    picture = page.screenshot(full_page=True)
    page.close()
    return picture


def save(picture: bytes, path: Path) -> None:
    """With a small palette."""
    colours = Image.open(io.BytesIO(picture)).convert("RGB")
    colours.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


def main(address: str, folder: Path, recording: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        if recording:
            save(take_listening(browser, address, Path(recording)), folder / "listening.png")
            return
        if address.endswith("paper.html"):
            save(take_paper(browser, Path(address)), folder / "paper.png")
            return
        if address.endswith(".html"):
            save(take_comparison(browser, Path(address)), folder / "compare.png")
            return
        for name, shot in SHOTS.items():
            save(take(browser, address, shot), folder / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
