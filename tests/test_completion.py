"""Shell completion, completed in real shells; the report for bug reports; and the version."""

import getpass
import json
import os
import pty
import re
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

import transduce
from transduce.cli import main
from transduce.cli.completion import SCRIPTS, commands
from transduce.cli.parser import make_parser
from transduce.environment import PACKAGES, described, environment


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The script for the shell of the test, in a file."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"this system has no {shell}: apt-get install {shell}")
    assert main(["completion", shell]) == 0
    path = tmp_path / f"completion.{shell}"
    path.write_text(capsys.readouterr().out)
    (tmp_path / "train.en").touch()
    return path


IN = {  # what is typed, with | where Tab is pressed, and some of what must be offered
    "transduce tra|": {"train", "translate"},
    "transduce train run --pre|": {"--preset"},
    "transduce train run --preset |": {"base", "big", "tiny"},
    "transduce train run --quiet --preset b|": {"base", "big"},
    "transduce evaluate run a b --metrics bleu ch|": {"chrf"},
    "transduce train run --set model.num_h|": {"model.num_heads="},
    "transduce completion |": {"bash", "fish", "zsh"},
}


def complete_in_bash(script: Path, line: str) -> set[str]:
    words = line.split(" ")
    typed = " ".join(f"'{word}'" for word in words)
    code = f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _transduce; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash(script: Path) -> None:
    for line, offered in IN.items():
        found = complete_in_bash(script, line.rstrip("|"))
        assert offered <= found, line
        assert all(word.startswith(line.rstrip("|").split(" ")[-1]) for word in found)
    assert complete_in_bash(script, "transduce train run --train ") == set()  # then bash offers files
    assert complete_in_bash(script, "transduce train run --preset big ") == set()


@pytest.mark.parametrize("script", ["fish"], indirect=True)
def test_fish(script: Path) -> None:
    for line, offered in {**IN, "transduce train run --train tr|": {"train.en"}}.items():
        if "bleu ch" in line:  # fish completes the first value only
            continue
        code = f"source {script}; complete -C '{line.rstrip('|')}'"
        environment = {"HOME": str(script.parent), "PATH": os.environ["PATH"]}
        done = subprocess.run(
            ["fish", "--no-config", "-c", code],
            capture_output=True, text=True, check=True, cwd=script.parent, env=environment,
        )  # fmt: skip
        assert offered <= {row.partition("\t")[0] for row in done.stdout.splitlines()}, line


def type_into(shell: list[str], lines: list[str], environment: Mapping[str, str], until: str) -> str:
    """What a shell in a terminal prints while these lines are typed; a Tab needs no Enter."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(environment["HOME"])
        os.execvpe(shell[0], shell, dict(environment))
    printed = ""
    try:
        for line in lines:
            os.write(terminal, line.encode())
            begun = time.monotonic()
            while time.monotonic() - begun < 20:
                if not select.select([terminal], [], [], 0.5)[0]:
                    if line != lines[-1] or until in printed:
                        break
                    continue
                printed += os.read(terminal, 4096).decode(errors="replace")
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(terminal)
    return printed


@pytest.mark.slow
@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh(script: Path) -> None:
    environment = {"HOME": str(script.parent), "PATH": os.environ["PATH"], "TERM": "dumb", "PS1": "$ "}
    setup = f"autoload -U compinit; compinit -u -D; source {script}\n"
    typed = ["transduce trai\t", "run --pres\t", "bi\t", "--set model.num_h\t", "8 --train trai\t"]
    printed = type_into(["zsh", "-f", "-i"], [setup, *typed], environment, "train.en")
    plain = " ".join(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x08", "", printed).split())
    assert "transduce train run --preset big --set model.num_heads= 8 --train train.en" in plain


@pytest.mark.parametrize("script", ["bash", "zsh", "fish"], indirect=True)
def test_every_script_is_valid(script: Path) -> None:
    shell = script.suffix[1:]
    subprocess.run([shell, "-n", str(script)], check=True)
    options = ["--n-best", "--skip-blank-lines", "--requests-per-minute"]
    text = script.read_text()
    assert [name for name in options if name not in text and f"-l {name[2:]}" not in text] == []


def test_every_command_is_completed() -> None:
    found = list(commands(make_parser()))
    assert {"train", "runs", "report", "completion"} <= {one.name for one in found}
    for write in SCRIPTS.values():
        assert [one.name for one in found if one.name not in write(found)] == []


def test_completion_is_quick() -> None:
    """Nothing heavy is imported: the line in a shell's start file must not delay the shell."""
    code = "import sys; from transduce.cli import main; main(['completion', 'bash']); sys.exit('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=False, stdout=subprocess.DEVNULL)
    assert done.returncode == 0


# --- report ------------------------------------------------------------------------------------------------------


def test_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["transduce"] == transduce.__version__
    assert found["packages"]["numpy"] == version("numpy")
    assert set(found["packages"]) == set(PACKAGES)
    assert found["cores"] >= 1
    assert found["processor"]
    assert main(["report"]) == 0
    printed = capsys.readouterr().out
    assert f"transduce: {transduce.__version__}\n" in printed
    assert f"numpy {version('numpy')}" in printed


def test_the_report_is_not_personal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada-lovelace")
    monkeypatch.setenv("TRANSDUCE_CACHE", "/home/ada-lovelace/cache")
    text = json.dumps(environment())
    private = ["/home", "ada-lovelace", str(Path.cwd()), sys.prefix]
    private += [name for name in (socket.gethostname(), getpass.getuser()) if len(name) > 5]
    assert [name for name in private if name in text] == []


def test_a_torch_that_cannot_be_imported_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "torch":
                raise ImportError("/home/ada/env/libcudart.so: cannot open shared object file\nmore")

    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    lines = described(environment())
    assert "torch: cannot be used (libcudart.so: cannot open shared object file)" in lines
    assert "gpu: none" in lines


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"transduce {transduce.__version__}\n"
