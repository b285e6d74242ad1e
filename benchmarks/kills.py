"""Kill a run at random moments, resume it, and compare its weights with those of a run nobody killed.

    python benchmarks/kills.py --runs 20 --data FOLDER
    python benchmarks/kills.py --runs 5 --kind text             a language model (Shakespeare)
    python benchmarks/kills.py --runs 5 --kind speech           a speech recogniser (spoken digits), with speeds and masks drawn at random

Each of the runs learns for some steps through the command line, English pronunciation (CMUdict) unless `--kind` is given, and is killed once with
`kill -9` at a random moment after its training has begun: while training, validating or writing. Writes benchmarks/results/kills.json, kills-text.json or
kills-speech.json, or the same with -gpu where there is a GPU.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from facts import default_data, write_result

from transduce.checkpoint import RunFolder, read_about

SETTINGS = """
model.d_model=64 model.d_ff=128 model.num_decoder_layers=1 model.dropout=0.1 train.steps=120 train.epochs=0
train.log_every=5 train.validate_every=40 train.checkpoint_every=15 train.validate_lines=40 train.average=3
"""


LINES, LATER_S = 26, 0.2  # a run is killed after so many lines of its log, of about 29, and so much later, at most


@dataclass(frozen=True)
class Kind:
    """What is learned: options with files below the data folder, and settings besides the common ones."""

    files: tuple[str, ...]
    settings: str


KINDS = {
    "pairs": Kind(
        ("--train", "cmudict/valid.tsv", "--valid", "cmudict/valid.tsv"),
        "model.num_encoder_layers=1 train.tokens_per_batch=512",
    ),
    "text": Kind(
        ("--text", "shakespeare/input.txt"), "model.num_heads=2 model.context=128 train.tokens_per_batch=1024"
    ),
    "speech": Kind(
        ("--train", "spoken-digits/valid.tsv", "--valid", "spoken-digits/valid.tsv"),
        "model.family=speech model.num_encoder_layers=1 model.convolution=7 train.tokens_per_batch=60 "
        "data.speeds=0.9,1,1.1 data.frequency_masks=1 data.time_masks=1",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--kind", choices=list(KINDS), default="pairs")
    parser.add_argument("--data", type=Path, default=default_data())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        straight = finish(train(Path(folder) / "straight", options))
        draw, equal, moments = random.Random(1), 0, []
        for number in range(options.runs):
            run = Path(folder) / f"killed-{number}"
            moments.append(kill(train(run, options), draw.randint(1, LINES), draw.uniform(0.0, LATER_S)))
            equal += finish(train(run, options)) == straight
            print(f"{number + 1}: killed after {moments[-1]}; {equal} equal so far", flush=True)
    of_kind = "" if options.kind == "pairs" else f" --kind {options.kind}"
    command = f"python benchmarks/kills.py --runs {options.runs}{of_kind}"
    name = f"kills{of_kind.replace(' --kind ', '-')}{'-gpu' if torch.cuda.is_available() else ''}"
    print(write_result(name, command, ["torch"], kills=options.runs, equal=equal, killed=moments, weights=straight))


@dataclass(frozen=True)
class Training:
    """A run folder, and the command that begins it or resumes it."""

    folder: Path
    command: list[str]


def train(run: Path, options: argparse.Namespace) -> Training:
    kind = KINDS[options.kind]
    files = [word if word.startswith("--") else str(options.data / word) for word in kind.files]
    settings = [*SETTINGS.split(), *kind.settings.split()]
    return Training(run, [sys.executable, "-m", "transduce", "train", str(run), *files, "--quiet", "--set", *settings])


def finish(training: Training) -> dict[str, str]:
    """The hashes of the weights a run ends with."""
    subprocess.run(training.command, check=True)
    folder = RunFolder(training.folder)
    return {which: read_about(folder.weights(which))["sha256"] for which in ("best", "last", "averaged")}


def kill(training: Training, lines: int, later_s: float) -> str:
    """Kill a moment after the log has so many lines; how far it had come."""
    log = training.folder / "metrics.jsonl"
    process = subprocess.Popen(training.command)
    while process.poll() is None and count_lines(log) < lines:
        time.sleep(0.005)
    time.sleep(later_s)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"
    return f"{count_lines(log)} lines of log"


def count_lines(log: Path) -> int:
    return log.read_text().count("\n") if log.exists() else 0


if __name__ == "__main__":
    main()
