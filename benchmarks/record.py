"""A finished run as a result file: its settings, its time, and its score on a test set, evaluated now.

python benchmarks/record.py multi30k-cpu RUN SOURCE REFERENCE
python benchmarks/record.py demo FOLDER               (what `transduce demo` left there)
"""

import json
import subprocess
import sys
from pathlib import Path

from facts import write_result

from transduce import checkpoint
from transduce.checkpoint import RunFolder
from transduce.config import Config, differences
from transduce.translator import read_config

PACKAGES = ["torch", "numpy", "sentencepiece", "sacrebleu"]
LEFT_OUT = ("data.train", "data.valid", "data.cache")  # where things lay on one machine


def main() -> None:
    name, folder, *files = sys.argv[1:]
    figures = read_demo(Path(folder)) if name == "demo" else evaluate(Path(folder), files)
    # Names of files, not where they lay: those are nobody's business.
    command = f"python benchmarks/record.py {name} RUN {' '.join(Path(file).name for file in files)}"
    print(write_result(name, command, PACKAGES, **figures))


def evaluate(run: Path, files: list[str]) -> dict:
    command = [sys.executable, "-m", "transduce", "evaluate", str(run), *files, "--json"]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {**training(run), "test": report}


def training(run: Path) -> dict:
    folder = RunFolder(run)
    progress = checkpoint.restore(checkpoint.checkpoint_path(folder, checkpoint.steps_saved(folder)[-1])).progress
    settings = {name: new for name, (_, new) in differences(Config(), read_config(folder)).items()}
    settings = {name: value for name, value in settings.items() if name not in LEFT_OUT}
    kept = ("step", "epoch", "target_tokens", "threads")
    return {"settings": settings, "seconds": round(progress["seconds"]), **{key: progress[key] for key in kept}}


def read_demo(folder: Path) -> dict:
    return {**training(folder / "run"), "demo": json.loads((folder / "result.json").read_text())}


if __name__ == "__main__":
    main()
