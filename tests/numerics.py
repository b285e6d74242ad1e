"""Run the tests marked `numerics` the way other processors would: `make test-numerics`.

Different processors and different numbers of threads add numbers in different orders. Each environment changes one variable
that affects this. Instruction sets that this processor lacks, or that it uses anyway, are not run, and the matrix at the end
says why. The exit code is 0 only if at least one environment ran and no test failed.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
MARKED = "numerics and not slow and not gpu"
CT2_TESTS = (
    *("test_ct2.py", "test_frozen.py", "test_shortlist.py"),
    *("test_export.py::test_ctranslate2_says_the_same", "test_export.py::test_a_program_that_knows_ctranslate2_alone"),
)


@dataclass(frozen=True)
class Environment:
    """One change to the environment, and the tests that it can affect."""

    name: str
    variables: dict[str, str]
    unable: str = ""  # why it does not run on this machine; empty if it does
    files: tuple[str, ...] = ()  # empty: all marked tests


@dataclass(frozen=True)
class Outcome:
    """A row of the matrix."""

    name: str
    passed: int
    failed: int
    skipped: int
    seconds: float

    @property
    def good(self) -> bool:
        return self.passed > 0 and self.failed == 0


# --- what this machine can do ----------------------------------------------------------------------------------


def environments() -> Iterator[Environment]:
    own = asked("import torch; print(torch.backends.cpu.get_cpu_capability())")
    for value in ("default", "avx2"):
        variables = {"ATEN_CPU_CAPABILITY": value}
        yield Environment(f"ATEN_CPU_CAPABILITY={value}", variables, unable_aten(value, own))
    intel = "" if platform.machine() in ("x86_64", "AMD64") else "oneDNN and MKL choose instructions on x86 only"
    for variable, value in (("ONEDNN_MAX_CPU_ISA", "AVX2"), ("MKL_CBWR", "COMPATIBLE")):
        yield Environment(f"{variable}={value}", {variable: value}, intel)
    taken = selected_by_ctranslate2()
    for value in ("GENERIC", "AVX2", "AVX512"):
        variables = {"CT2_FORCE_CPU_ISA": value}
        yield Environment(f"CT2_FORCE_CPU_ISA={value}", variables, unable_ct2(value, taken), CT2_TESTS)
    for count in (1, 2, 4):
        yield Environment(f"{count} thread{'s' * (count > 1)}", threads(count), unable_threads(count))


def threads(count: int) -> dict[str, str]:
    """Variables for libraries that read them, and for tests that set the number themselves (tests/threads.py)."""
    return {"OMP_NUM_THREADS": str(count), "MKL_NUM_THREADS": str(count), "TRANSDUCE_TEST_THREADS": str(count)}


def unable_aten(value: str, own: str) -> str:
    if own not in ("DEFAULT", "AVX2", "AVX512"):
        return f"this processor's instruction set is {own}"
    if own.lower() == value:
        return "PyTorch uses it on this machine anyway"
    return "this processor has no AVX2" if value == "avx2" and own == "DEFAULT" else ""


def unable_ct2(value: str, own: str) -> str:
    if not own:
        return "CTranslate2 is not installed"
    if value == own:
        return "CTranslate2 uses it on this machine anyway"
    return "" if selected_by_ctranslate2(value) == value else f"CTranslate2 cannot use {value} on this processor"


def unable_threads(count: int) -> str:
    """Leave one of the three numbers out, so that there are eight environments at most."""
    cores = os.cpu_count()
    if count == cores:
        return "this machine has as many cores, so `make test` uses this number"
    return "1 and 4 threads are run" if count == 2 and cores not in (1, 4) else ""


def selected_by_ctranslate2(forced: str = "") -> str:
    """The instruction set that CTranslate2 reports, or an empty string if it cannot run."""
    with tempfile.TemporaryDirectory() as folder:
        run = shutil.copytree(TESTS / "frozen" / "0.1.0", Path(folder) / "run")
        program = f"import transduce; transduce.load({str(run)!r}, engine='ct2', threads=1).translate(['a'])"
        said = asked(program, {"CT2_VERBOSE": "1"} | ({"CT2_FORCE_CPU_ISA": forced} if forced else {}))
    found = re.search(r"Selected ISA: (\w+)", said)
    return found[1] if found else ""


def asked(program: str, variables: dict[str, str] | None = None) -> str:
    """The output of a Python program in a process of its own, standard output and error together."""
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | (variables or {}), capture_output=True, text=True, check=False
    )
    return (done.stdout + done.stderr).strip()


# --- running ---------------------------------------------------------------------------------------------------


def run(environment: Environment, options: list[str]) -> Outcome:
    """Run the marked tests in this environment. pytest prints its progress."""
    files = [str(TESTS / name) for name in environment.files] or [str(TESTS)]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-m", MARKED, f"--junitxml={report}", *files, *options]
        code = subprocess.run(command, env=os.environ | environment.variables, check=False).returncode
        return outcome(environment.name, report, code, time.monotonic() - begun)


def outcome(name: str, report: Path, code: int, seconds: float) -> Outcome:
    """Read the counts from pytest's report. Without a report, or with a bad exit code, at least one test failed."""
    if not report.exists():
        return Outcome(name, 0, 1, 0, seconds)
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    total, failures, errors, skipped = (int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped"))
    failed = failures + errors
    return Outcome(name, total - failed - skipped, max(failed, int(code != 0)), skipped, seconds)


def matrix(outcomes: list[Outcome], left_out: list[Environment]) -> str:
    """A table with one line for each environment."""
    width = max(len(name) for name in ["environment", *(one.name for one in [*outcomes, *left_out])])
    rows = [f"{'environment':{width}}  passed  failed  skipped  seconds"]
    rows += [
        f"{one.name:{width}}  {one.passed:6}  {one.failed:6}  {one.skipped:7}  {one.seconds:7.0f}" for one in outcomes
    ]
    return "\n".join([*rows, *(f"{one.name:{width}}  not run: {one.unable}" for one in left_out)])


def main(options: list[str], say: Callable[[str], None] = lambda text: print(text, flush=True)) -> int:
    every = list(environments())
    outcomes = []
    for environment in (one for one in every if not one.unable):
        say(f"\n=== {environment.name} ===")
        outcomes.append(run(environment, options))
    say("\n" + matrix(outcomes, [one for one in every if one.unable]))
    return 0 if outcomes and all(one.good for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
