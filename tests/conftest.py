"""What several test files share."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from shapes import begin_test, check_shapes
from skips import REQUIRE, Skips, required
from threads import THREADS


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public corpora, or a skip that says what is missing."""
    folder = Path(os.environ.get("TRANSDUCE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there: set TRANSDUCE_DATA to the folder of corpora")
    return folder


torch.set_num_threads(THREADS)  # for fixtures of modules


@pytest.fixture(autouse=True)
def _few_threads() -> None:
    """Whatever an earlier test has set: small models gain nothing from a second thread, and wait for it on a busy machine."""
    torch.set_num_threads(THREADS)


@pytest.fixture(autouse=True, scope="session")
def _curves_are_not_rendered() -> Iterator[None]:
    """The curves of a training are put together and not rendered, which takes as long as twenty steps of a small model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transduce.training.card.render", lambda figure, picture: None)
        yield


@pytest.fixture(scope="module")
def rendered_curves() -> Iterator[None]:
    """For modules that look at the pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transduce.training.card.render", lambda figure, picture: figure.savefig(picture))
        yield


# Without a GPU the kernels run in Triton's interpreter. It reads the source of functions, so nothing may wrap them.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

check_shapes()


def pytest_runtest_setup() -> None:
    begin_test()


# --- what was skipped ------------------------------------------------------------------------------------------

DESELECTED: list[str] = []  # why tests of the whole suite were left out by their marks
TALLY_OF_WORKERS: Counter[str] = Counter()


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a misspelt group before any test runs."""
    try:
        required(os.environ.get(REQUIRE, ""))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        marks = [name for name in ("gpu", "slow") if item.get_closest_marker(name)]
        DESELECTED.extend(f"marked {name}" for name in marks[:1])


def _skipped(reporter: "pytest.TerminalReporter") -> Skips:
    reasons = [str(report.longrepr[2]) for report in reporter.stats.get("skipped", [])]
    return Skips.of([*reasons, *DESELECTED])


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter") -> None:
    _print_tally(terminalreporter)
    skips = _skipped(terminalreporter)
    if lines := skips.lines():
        terminalreporter.section("skipped, by what the tests need")
        for line in lines:
            terminalreporter.line(line)
    if missing := skips.missing(required(os.environ.get(REQUIRE, ""))):
        terminalreporter.line(f"{REQUIRE} failed: tests of these groups were skipped: {', '.join(missing)}", red=True)


def _tally() -> Counter[str]:
    """What tests/test_every_setting.py counted in this process, where it ran."""
    return Counter(getattr(sys.modules.get("test_every_setting"), "TALLY", {}))


def _print_tally(reporter: "pytest.TerminalReporter") -> None:
    if tally := _tally() + TALLY_OF_WORKERS:
        reporter.section("values of settings")
        for what, count in sorted(tally.items()):
            reporter.line(f"{what}: {count}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the run if a required group was skipped; a worker of pytest-xdist sends what it counted."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output.update(deselected=DESELECTED, tally=dict(_tally()))
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == 0 and reporter and _skipped(reporter).missing(required(os.environ.get(REQUIRE, ""))):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker counted; every worker leaves the same tests out."""
    if found := getattr(node, "workeroutput", {}):
        DESELECTED[:] = found["deselected"]
        TALLY_OF_WORKERS.update(found["tally"])
