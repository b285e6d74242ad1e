"""Every command of the tutorial runs, in order; only the training budget is smaller. The notebook is the same tutorial."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
try:
    import notebook
finally:
    sys.path.pop(0)

SMALL = (
    "model.d_model=32 model.d_ff=32 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1 "
    "train.tokens_per_batch=512 train.validate_every=20 train.checkpoint_every=20 train.validate_lines=10"
)
WAIT = """
for second in $(seq 60); do curl -fs http://127.0.0.1:5000/health/live >/dev/null && break; sleep 0.5; done
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def smaller(text: str, port: int) -> str:
    """The same commands with a small model, a budget of four steps a minute, and a port that is free."""
    text = text.replace("--minutes 5", f"--steps 20 --set {SMALL}").replace("--minutes 10", "--steps 40")
    return text.replace("127.0.0.1:5000", f"127.0.0.1:{port}")


def script(port: int) -> str:
    """All blocks of commands as one script for bash."""
    blocks = []
    for language, text in notebook.parts():
        if language == "python":
            blocks.append(f"python - <<'END'\n{text}\nEND")
        elif language == "sh" and text.startswith("transduce serve"):
            blocks.append(f'{text} --port {port} &\nserver=$!\ntrap "kill $server; wait" EXIT\n{WAIT}')
        elif language == "sh":
            blocks.append(text)
    return smaller("\n".join(["set -e", *blocks]), port)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with what the tutorial expects of a clone: the documents, and an environment to activate."""
    if not (shutil.which("bash") and shutil.which("curl")):
        pytest.skip("this system has no bash or no curl")
    pytest.importorskip("granian")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    commands = tmp_path / ".venv" / "bin"
    commands.mkdir(parents=True)
    (commands / "activate").write_text(f'export PATH="{commands}:$PATH"\n')
    for name, module in {"transduce": "-m transduce", "python": ""}.items():
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (commands / name).chmod(0o755)
    return tmp_path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "TRANSDUCE_CACHE": str(tmp_path / "cache")}


def test_the_commands_of_the_tutorial_run(clone: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash"], input=script(free_port()), cwd=clone, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"16000 train\.de", done.stdout)
    assert len(re.findall(r"^0 \|\|\| ", done.stdout, re.M)) == 3, "an n-best list"
    assert re.search(r"^BLEU +\d", done.stdout, re.M)
    assert re.search(r"^0 serious, 0 worth a look, \d notes", done.stdout, re.M), "doctor, as the page says"
    assert (clone / "tutorial" / "test.translated.en").read_text(encoding="utf-8").count("\n") == 300
    assert "baseline: test.translated.en; paired bootstrap" in done.stdout
    assert re.search(r"^runs/de-en +translation de-en .* finished", done.stdout, re.M)
    assert re.search(r'\{"translatedText":".*"\}', done.stdout)
    assert re.search(r"\['.*', '.*'\]$", done.stdout, re.M), "two translations from Python"
    assert (clone / "tutorial" / "attention.html").stat().st_size > 10_000


def test_the_budgets_of_the_tutorial_are_those_that_are_replaced() -> None:
    """A command whose budget is written otherwise would train for minutes here."""
    commands = [text for language, text in notebook.parts() if language == "sh" and "transduce train" in text]
    assert len(commands) == 2
    assert all("--steps" in smaller(text, 1) and "--minutes" not in smaller(text, 1) for text in commands)


def test_the_notebook_is_generated() -> None:
    written = json.loads(notebook.NOTEBOOK.read_text(encoding="utf-8"))
    assert written == notebook.notebook(), "docs/tutorial.ipynb is out of date; run: python docs/notebook.py"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs(clone: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    port = free_port()
    text = smaller(notebook.NOTEBOOK.read_text(encoding="utf-8"), port)
    text = text.replace('\\"runs/de-en\\"]', f'\\"runs/de-en\\", \\"--port\\", \\"{port}\\"]')
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (clone / "notebooks").mkdir()  # its folder is one below the clone's, as docs/ is
    client = nbclient.NotebookClient(
        nbformat.reads(text, as_version=4), timeout=280, resources={"metadata": {"path": str(clone / "notebooks")}}
    )
    client.execute()
    outputs = str([cell.outputs for cell in client.nb.cells if cell.cell_type == "code"])
    assert "translatedText" in outputs
