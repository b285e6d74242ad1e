"""The wheel: built, installed into a clean environment, and used from there."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment's programs that has our wheel, and of ours only the libraries beneath it."""
    folder = tmp_path_factory.mktemp("package")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    wheel = next(folder.glob("*.whl"))
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    # Torch is large, so the dependencies are those of the environment the tests run in, by a path file.
    libraries = [p for p in sys.path if p.endswith("site-packages")]
    site = next((folder / "env" / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text("\n".join(libraries))
    return folder / "env" / "bin"


def run(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
        cwd="/",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_is_what_runs(installed: Path) -> None:
    where = run(installed / "python", "-c", "import transduce; print(transduce.__file__)")
    assert str(installed.parent) in where
    files = run(installed / "python", "-c", "import importlib.metadata as m; print(*m.files('transduce'), sep='\\n')")
    assert "transduce/py.typed" in files
    page = [
        path.name
        for path in (ROOT / "transduce/explore/page").iterdir()
        if path.suffix in (".html", ".css", ".js", ".svg")
    ]
    assert page
    assert [name for name in page if f"transduce/explore/page/{name}" not in files] == []
    assert not [line for line in files.split("\n") if line.startswith("tests")]


def test_help_from_the_wheel(installed: Path) -> None:
    assert "transduce train" in run(installed / "transduce", "--help")


@pytest.mark.timeout(200)
def test_a_tiny_training_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.tsv"
    data.write_text("".join(f"{word}\t{' '.join(word.upper())}\n" for word in ["ab", "ba", "abba", "bab"] * 20))
    settings = "model.d_model=32 model.d_ff=64 train.steps=6 train.validate_every=6 train.threads=1"
    run(
        installed / "transduce", "train", tmp_path / "run", "--train", data, "--valid", data, "--set", *settings.split(),
        TRANSDUCE_CACHE=str(tmp_path / "cache"),
    )  # fmt: skip
    assert (tmp_path / "run" / "best.safetensors").exists()
    translated = run("bash", "-c", f"echo ab | {installed / 'transduce'} translate {tmp_path / 'run'} --max-extra 2")
    assert translated.endswith("\n")
