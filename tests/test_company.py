"""benchmarks/company.py: whoever measures a speed has the machine to themselves."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))

import company  # noqa: E402

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc: the system is not Linux")

COUNTS = "import sys, time\nwhile True:\n    print('.', end='', flush=True)\n    time.sleep(0.005)"


def state_of(process: int) -> str:
    """R, S or D for a process that runs or waits, T for one that is stopped."""
    return company.read(process, "stat").rpartition(b")")[2].split()[0].decode()


def until(true) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def name(monkeypatch):
    name = f"test-{os.getpid()}"
    monkeypatch.setenv(company.NAME, name)
    monkeypatch.setattr(company, "SETTLING_S", 0.0)
    return name


@pytest.fixture
def other(name):
    """A process of the company that this one is not related to: its parent has ended."""
    start = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {COUNTS!r}], stdout=subprocess.DEVNULL).pid)"
    number = int(subprocess.check_output([sys.executable, "-c", start], text=True))
    until(lambda: number in company.company(name))
    yield number
    os.kill(number, 9)


def test_others_are_stopped_and_go_on(other):
    with company.alone():
        until(lambda: state_of(other) == "T")
    until(lambda: state_of(other) != "T")


def test_own_workers_are_not_stopped(name):
    with subprocess.Popen([sys.executable, "-c", COUNTS], stdout=subprocess.PIPE) as worker:
        assert worker.stdout
        assert worker.stdout.read(1)
        with company.alone():
            assert worker.pid in company.company(name)
            assert worker.stdout.read(100)
        worker.kill()


def test_others_go_on_if_a_measurement_hangs(other):
    with company.alone(longest_s=1.0):
        until(lambda: state_of(other) == "T")
        until(lambda: state_of(other) != "T")


def test_others_go_on_if_a_measurement_is_killed(other):
    measures = f"import sys, time; sys.path.insert(0, {str(Path(company.__file__).parent)!r}); import company\n"
    measures += "company.SETTLING_S = 0.0\nwith company.alone():\n    print('.', flush=True)\n    time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", measures], stdout=subprocess.PIPE) as killed:
        assert killed.stdout
        assert killed.stdout.read(1)
        until(lambda: state_of(other) == "T")
        killed.kill()
    until(lambda: state_of(other) != "T")


def test_without_a_name_nobody_is_stopped(other, monkeypatch):
    monkeypatch.delenv(company.NAME)
    with company.alone():
        assert state_of(other) != "T"
