"""`make setup` is quiet, and what fails is still shown: the real Makefile, with a stand-in for Python and pip."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# As pip behaves: warnings unless it is asked twice to be quiet, errors always.
STAND_IN = """#!/bin/sh
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip install "*)
    [ -z "$BROKEN" ] || { echo "ERROR: No matching distribution" >&2; exit 1; }
    case "$*" in *"--quiet --quiet"*) ;; *) echo "WARNING: Running pip as the root user" >&2 ;; esac ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    if not shutil.which("make"):
        pytest.skip("this system has no make")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "python").write_text(STAND_IN)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def make(project: Path, *targets: str, broken: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "PYTHON=./python", *targets],
        cwd=project,
        env={"PATH": os.environ["PATH"], "BROKEN": broken},
        capture_output=True,
        text=True,
        check=False,
    )


def test_setup_says_two_lines(project: Path) -> None:
    done = make(project, "setup")
    assert (done.returncode, done.stderr) == (0, "")
    first, last = done.stdout.splitlines()
    assert first.startswith("Installing PyTorch")
    assert last.startswith("Installed: run .venv/bin/transduce --help")


def test_what_tests_need_is_one_line_more(project: Path) -> None:
    done = make(project, ".venv/.dev")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 3


def test_what_fails_is_shown(project: Path) -> None:
    done = make(project, "setup", broken="1")
    assert done.returncode != 0
    assert "ERROR: No matching distribution" in done.stderr
    assert not (project / ".venv" / ".ready").exists()
