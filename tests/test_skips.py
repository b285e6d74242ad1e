"""Skipped tests are seen: by group, with what would run them; a group that must run and does not is a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from skips import GROUPS, NAMES, Skips, group_of, required

TESTS = Path(__file__).parent
PROGRAM = """
import pytest
def test_fine(): pass
@pytest.mark.parametrize("n", [1, 2])
def test_page(n): pytest.skip("no chromium: apt-get install chromium")
@pytest.mark.gpu
def test_kernel(): pass
"""


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("no chromium: apt-get install chromium", "browser"),
        ("/data is not there: set TRANSDUCE_DATA to the folder of corpora", "data"),
        ("could not import 'ctranslate2': No module named 'ctranslate2'", "ct2"),
        ("pip install 'transduce[hf]'", "hf"),
        ("could not import 'granian': No module named 'granian'", "server"),
        ("triton is not installed: plain PyTorch runs instead", "triton"),
        ("needs a GPU", "gpu"),
        ("there is a GPU", "system"),
        ("root reads everything", "system"),
        ("the run ended before the signal came", "other"),
    ],
)
def test_a_reason_tells_the_group(reason: str, name: str) -> None:
    assert group_of(reason).name == name


def test_lines_and_what_is_missing() -> None:
    skips = Skips.of(["no chromium", "no chromium", "why not"])
    assert skips.lines() == [
        "browser: 2 tests skipped. To run: apt-get install chromium; pip install playwright",
        "other: 1 test skipped. To run: see the reasons: pytest -rs",
    ]
    assert skips.missing({"browser", "hf"}) == ["browser"]
    assert Skips.of([]).lines() == []


def test_groups_that_there_are_none_of_are_refused() -> None:
    assert required(" browser,hf, ") == {"browser", "hf"}
    assert required("") == set()
    with pytest.raises(ValueError, match="no group chrome; there are browser, data"):
        required("browser,chrome")


def pytest_says(folder: Path, require: str) -> subprocess.CompletedProcess[str]:
    """What pytest prints for a file of tests that are run beside our own conftest.py."""
    (folder / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (folder / "test_it.py").write_text(PROGRAM)
    settings = "[pytest]\naddopts = -q -m 'not gpu'\nmarkers =\n    gpu: x\n    slow: x\n"
    (folder / "pytest.ini").write_text(settings)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder)],
        env=os.environ
        | {"PYTHONPATH": f"{TESTS}:{TESTS.parent}", "TRANSDUCE_REQUIRE": require, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("require", "code"), [pytest.param("hf", 0, marks=pytest.mark.slow), ("browser,hf", 1), ("chrome", 4)]
)
def test_pytest_ends_by_saying_what_was_skipped(require: str, code: int, tmp_path: Path) -> None:
    done = pytest_says(tmp_path, require)
    assert done.returncode == code, done.stdout + done.stderr
    if require == "chrome":
        assert "TRANSDUCE_REQUIRE: no group chrome" in done.stderr
        return
    assert "browser: 2 tests skipped. To run: apt-get install chromium" in done.stdout
    assert "gpu: 1 test skipped. To run: on a machine with a CUDA device" in done.stdout
    assert ("TRANSDUCE_REQUIRE failed: tests of these groups were skipped: browser" in done.stdout) == (code == 1)


def test_ci_requires_groups_that_there_are() -> None:
    script = (TESTS.parent / ".ci" / "run").read_text()
    named = script.split("groups=")[1].split("\n")[0].strip("\"'")
    assert required(named) >= set(NAMES) - {"data", "deploy", "gpu", "slow", "system"}
    assert {group.name for group in GROUPS} == set(NAMES)
