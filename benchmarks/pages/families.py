"""docs/families.md: how fast each family trains and translates, on a GPU and on a CPU."""

import json
from collections.abc import Iterator
from typing import Any

from cells.session import read_results
from facts import RESULTS

from transduce.config import FAMILIES

from .parts import DOCS, replace_part, table

COMMAND = "family_speed.py --report"
SIZES = {
    "fitted": "The size that is chosen for 29,000 pairs, 10,000 words in the vocabulary, steps of 4,096 target tokens on a GPU:",
    "published": "The published models, 32,000 words in the vocabulary, steps of 25,000 target tokens:",
}
DEVICES = ("gpu", "cpu")
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {  # families with other settings, which have rows of their own
    "window": ("transformer", {"window": 8}),  # as in docs/rivals.md
}
OTHERS = """\
[Table 2, measured](rivals.md) has other ratios, because it measures something else. Here, untrained models get random sentences of about 25 tokens, {lines} at once in
translation on the GPU, where the Transformer puts waiting sentences in the place of finished ones and most others wait for the longest. There, models are trained on Multi30k, whose sentences are
about half as long, and translate its 1,000 test sentences in less than a second, which varies: {spread}.

For the speed of translating many lines, trust this page. For the speed of training on short sentences, trust the other one: it is that of a whole run.
Neither can show small differences: less than a third on the GPU here, and less than a factor of three in greedy search on Multi30k there."""
Speeds = dict[str, Any]  # of one family on one device


def write_page() -> None:
    page = DOCS / "families.md"
    page.write_text(replaced(page.read_text(encoding="utf-8"), read()), encoding="utf-8")


def read() -> dict[str, dict[str, Any]]:
    """The result files that exist, by device."""
    paths = {device: RESULTS / f"family-speed-{device}.json" for device in DEVICES}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()}


def replaced(text: str, found: dict[str, dict[str, Any]]) -> str:
    tables = [part for size in SIZES for part in parts(size, found)]
    return replace_part(text, "speed", COMMAND, "\n\n".join([*tables, *other_measurements(found)]))


def other_measurements(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Why docs/rivals.md has other ratios, and how far each can be trusted."""
    runs = read_results("rivals").find(task="multi30k", system="rnn", purpose="test")
    speeds = [one["greedy_sentences_per_s"] for one in runs if one.get("greedy_alone")]
    if "gpu" in found and speeds:
        lines = f"{found['gpu']['settings']['lines']:,}"
        spread = f"{len(speeds)} runs of `rnn` had {digits(min(speeds))} to {digits(max(speeds))} sentences/s"
        yield OTHERS.format(lines=lines, spread=spread)


def parts(size: str, found: dict[str, dict[str, Any]]) -> Iterator[str]:
    """A title and a table of the devices on which this size was measured."""
    found = {device: result for device, result in found.items() if f"transformer, {size}" in result["results"]}
    header = ["family"]
    for result in found.values():
        name = result["hardware"].get("gpu") or f"{result['hardware']['cores']} CPU cores"
        header += [f"{name}: training, tokens/s", "greedy, tokens/s"]
    yield SIZES[size]
    yield table([*header, "M parameters"], rows(size, found))


def rows(size: str, found: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    for family in (*FAMILIES, *VARIANTS):
        speeds = {device: result["results"].get(f"{family}, {size}") for device, result in found.items()}
        if known := [one for one in speeds.values() if one]:
            cells = [cell for device, one in speeds.items() for cell in measured(size, one, found[device])]
            yield [label(family), *cells, f"{known[-1]['parameters'] / 1e6:.1f}"]


def label(name: str) -> str:
    if name not in VARIANTS:
        return f"`{name}`"
    family, settings = VARIANTS[name]
    return ", ".join([f"`{family}`", *(f"`model.{key}={value}`" for key, value in settings.items())])


def measured(size: str, speeds: Speeds | None, result: dict[str, Any]) -> list[str]:
    """The speeds of training and translation, each also as a multiple of the Transformer's."""
    base = result["results"][f"transformer, {size}"]
    return [multiple(speeds[name], base[name]) if speeds else "" for name in ("training", "translation")]


def multiple(speed: Speeds, base: Speeds) -> str:
    if "error" in speed:
        return "failed"
    ratio = speed["tokens_per_s"] / base["tokens_per_s"]
    return digits(speed["tokens_per_s"]) + ("" if speed is base else f" ({ratio:.{1 if ratio >= 1 else 2}f})")


def digits(speed: float) -> str:
    """Three significant digits: one short round supports no more."""
    return f"{float(f'{speed:.3g}'):,.0f}"
