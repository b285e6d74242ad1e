"""`make test-numerics`: which environments run here, what its matrix says, and that its exit code tells the truth."""

from pathlib import Path

import numerics
import pytest
from numerics import Environment, Outcome, matrix, outcome

GOOD = Outcome("one", passed=5, failed=0, skipped=2, seconds=61.2)


@pytest.mark.parametrize(
    ("value", "own", "unable"),
    [
        ("default", "AVX512", ""),
        ("avx2", "AVX512", ""),
        ("avx2", "AVX2", "anyway"),
        ("avx2", "DEFAULT", "no AVX2"),
        ("default", "NEON", "instruction set is NEON"),
    ],
)
def test_instructions_that_pytorch_lacks_or_takes_anyway_are_left_out(value: str, own: str, unable: str) -> None:
    said = numerics.unable_aten(value, own)
    assert unable in said
    assert bool(said) == bool(unable)


def test_instructions_that_ctranslate2_lacks_or_takes_anyway_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "selected_by_ctranslate2", lambda forced="": "" if forced == "AVX512" else forced)
    assert numerics.unable_ct2("GENERIC", "AVX2") == ""
    assert "anyway" in numerics.unable_ct2("AVX2", "AVX2")
    assert "cannot use AVX512" in numerics.unable_ct2("AVX512", "AVX2")
    assert "not installed" in numerics.unable_ct2("AVX2", "")


@pytest.mark.parametrize("cores", [1, 2, 4, 64])
@pytest.mark.parametrize("machine", ["x86_64", "arm64"])
def test_at_most_eight_environments_each_with_one_change(
    cores: int, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numerics, "asked", lambda program, variables=None: "AVX512")
    monkeypatch.setattr(numerics, "selected_by_ctranslate2", lambda forced="": forced or "AVX2")
    monkeypatch.setattr(numerics.os, "cpu_count", lambda: cores)
    monkeypatch.setattr(numerics.platform, "machine", lambda: machine)
    every = list(numerics.environments())
    assert len({one.name for one in every}) == len(every)
    assert 1 <= sum(not one.unable for one in every) <= 8
    assert all(len({key.split("_")[0] for key in one.variables}) == 1 for one in every if "thread" not in one.name)


@pytest.mark.parametrize("name", numerics.CT2_TESTS)
def test_the_tests_of_ctranslate2_are_marked(name: str) -> None:
    file, _, test = name.partition("::")
    text = (numerics.TESTS / file).read_text(encoding="utf-8")
    assert "mark.numerics" in text
    assert f"def {test}" in text


def test_the_matrix_names_what_ran_and_what_did_not() -> None:
    said = matrix([GOOD, Outcome("other", 0, 1, 0, 3.4)], [Environment("third", {}, "no such instructions")])
    assert said.split("\n") == [
        "environment  passed  failed  skipped  seconds",
        "one               5       0        2       61",
        "other             0       1        0        3",
        "third        not run: no such instructions",
    ]


def test_without_a_report_something_failed(tmp_path: Path) -> None:
    assert outcome("one", tmp_path / "none.xml", 0, 1.0).failed == 1


PROGRAM = """
import os, pytest
pytestmark = pytest.mark.numerics
def test_one(): assert os.environ["ROUNDING"] == "up"
def test_two(): pytest.skip("not here")
"""


def test_the_exit_code_tells_the_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through pytest itself, on a test that one environment breaks."""
    (tmp_path / "test_it.py").write_text(PROGRAM)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    numerics: x\n    slow: x\n    gpu: x\n")
    environments = [Environment(f"ROUNDING={name}", {"ROUNDING": name}) for name in ("up", "down")]
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # none is needed, and some are slow to load
    monkeypatch.setattr(numerics, "TESTS", tmp_path)
    monkeypatch.setattr(numerics, "environments", lambda: iter(environments))
    said: list[str] = []
    assert numerics.main(["-p", "no:cacheprovider"], said.append) == 1
    first, second = said[-1].strip().split("\n")[1:]
    assert first.split()[:4] == ["ROUNDING=up", "1", "0", "1"]
    assert second.split()[:4] == ["ROUNDING=down", "0", "1", "1"]


def test_it_succeeds_where_all_that_ran_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    environments = [Environment("one", {}), Environment("other", {}, "cannot")]
    monkeypatch.setattr(numerics, "environments", lambda: iter(environments))
    for found, code in ((GOOD, 0), (Outcome("one", 0, 0, 9, 1.0), 1), (Outcome("one", 9, 1, 0, 1.0), 1)):
        monkeypatch.setattr(numerics, "run", lambda environment, options, found=found: found)
        assert numerics.main([], lambda text: None) == code


def test_where_nothing_can_run_that_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "environments", lambda: iter([Environment("one", {}, "cannot")]))
    assert numerics.main([], lambda text: None) == 1
