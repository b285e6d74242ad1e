"""benchmarks/family_speed.py: every family is measured, and the table of docs/families.md comes from the result files."""

import argparse
import copy
import dataclasses
import re
import sys
from pathlib import Path

import pytest

from transduce.config import FAMILIES, PRESETS
from transduce.device import Device

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
try:
    import family_speed
    from pages import families
    from pages.parts import DOCS
finally:
    sys.path.pop(0)

SPEEDS = {
    "training": {"tokens_per_s": 200, "tflops": 0.5},
    "translation": {"tokens_per_s": 40},
    "parameters": 2_000_000,
}


def test_the_table_of_families_is_generated() -> None:
    written = (DOCS / "families.md").read_text(encoding="utf-8")
    message = "docs/families.md is out of date; run: python benchmarks/family_speed.py --report"
    assert written == families.replaced(written, families.read()), message


def test_speeds_are_multiples_of_the_transformers() -> None:
    slower = {**SPEEDS, "training": {"tokens_per_s": 50}, "translation": {"error": "RuntimeError"}}
    result = {"results": {"transformer, fitted": SPEEDS, "rnn, fitted": slower}}
    assert list(families.rows("fitted", {"cpu": result})) == [
        ["`transformer`", "200", "40", "2.0"],
        ["`rnn`", "50 (0.25)", "failed", "2.0"],
    ]


def test_speeds_have_three_digits() -> None:
    assert [families.digits(speed) for speed in (2_893_626, 26_999, 728, 40)] == ["2,890,000", "27,000", "728", "40"]


def test_rounds_become_a_median_with_its_spread() -> None:
    def measured(rate: float) -> dict[str, object]:
        training = {"tokens_per_s": rate, "tflops": rate / 100, "finite": rate < 30}
        return {"parameters": 7, "training": training, "translation": {"tokens_per_s": 2 * rate}}

    found = family_speed.summary([measured(rate) for rate in (10.0, 30.0, 20.0)])
    assert found["training"] == {"tokens_per_s": 20, "least_most": [10, 30], "tflops": 0.2, "finite": False}
    assert found["translation"] == {"tokens_per_s": 40, "least_most": [20, 60]}
    failed = family_speed.summary([measured(1.0), {**measured(1.0), "training": {"error": "no memory"}}])
    assert failed["training"] == {"error": "no memory"}


@pytest.mark.parametrize("size", ["fitted", "published"])
def test_a_window_is_a_row_of_its_own(size: str) -> None:
    assert "window" in family_speed.MEASURED
    config = family_speed.config_of("window", size)
    assert (config.family, config.window) == ("transformer", 8)
    assert dataclasses.replace(config, window=0) == family_speed.config_of("transformer", size)
    result = {"results": {"transformer, fitted": SPEEDS, "window, fitted": copy.deepcopy(SPEEDS)}}
    assert list(families.rows("fitted", {"cpu": result}))[1][:2] == ["`transformer`, `model.window=8`", "200 (1.0)"]


def test_the_page_names_the_families_without_a_preset() -> None:
    text = " ".join((DOCS / "families.md").read_text(encoding="utf-8").split())
    (names,) = re.findall(r"There is no preset for (.*?)\.", text)
    without = set(FAMILIES) - {"transformer"} - {one.get("model", {}).get("family") for one in PRESETS.values()}
    assert set(re.findall(r"`(\w+)`", names)) == without


@pytest.mark.parametrize("family", ["rnn", "prefix", "window"])
def test_a_family_trains_and_translates(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family_speed, "IDS", {"fitted": 50})
    monkeypatch.setattr(family_speed, "LINES", {"cpu": 2})
    monkeypatch.setattr(family_speed, "STEPS", {"cpu": 1})
    options = argparse.Namespace(tokens=200, seconds=0.0)
    found = family_speed.measure(family, "fitted", Device("cpu", bf16=False), options)
    assert found["training"]["tokens_per_s"] > 0
    assert found["training"]["finite"]
    assert found["translation"].get("tokens_per_s", 0) > 0, found["translation"]
