"""CMUdict, English spelling to sound: word and phoneme error rates with and without stress marks, and the time it takes.

    python benchmarks/cmudict.py --config configs/cmudict-cpu.toml [--name cmudict-cpu] [--seeds 1 2]    on cores that do nothing else
    python benchmarks/cmudict.py --sweep benchmarks/sweeps/cmudict-gpu.toml --out sweep.jsonl

Trained through the command line on the split by a hash of the word; any listed pronunciation counts as right. Without stress
marks both sides lose their digits after the search. Beam as the model has it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from facts import default_data, write_result

from transduce.demo import score_demo
from transduce.translator import LoadOptions, Translator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data() / "cmudict")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--name", default="cmudict-cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--sweep", type=Path)
    parser.add_argument("--out", default="cmudict.jsonl")
    options = parser.parse_args()
    if options.sweep:
        sweep(options)
    else:
        record(options)


def record(options: argparse.Namespace) -> None:
    """One run for each seed; the result file has those that are finished."""
    command, runs = f"python benchmarks/cmudict.py --config configs/{options.config.name}", []
    for seed in options.seeds:
        done = execute(["--config", str(options.config), "--set", f"train.seed={seed}", *options.set], options.data)
        runs.append({"seed": seed, **done})
        print(write_result(options.name, command, ["torch", "sacrebleu"], runs=runs))
        print(json.dumps(done["scores"]))


def sweep(options: argparse.Namespace) -> None:
    variants = tomllib.loads(options.sweep.read_text())
    with open(options.out, "a") as out:
        for name, variant in variants["variants"].items():
            done = execute(["--set", *variants["set"].split(), *variant.split()], options.data)
            out.write(json.dumps({"name": name, "settings": variant, **done}) + "\n")
            out.flush()
            print(f"{name:28} {done['scores']} {done['training_s']} s", flush=True)


def execute(asked: list[str], data: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "transduce", "train", f"{folder}/run", "--train", str(data / "train.tsv")]
        begun = time.perf_counter()
        done = subprocess.run(
            [*command, "--valid", str(data / "valid.tsv"), "--quiet", "--json", *asked],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        seconds = time.perf_counter() - begun
        trained = json.loads(done.stdout)
        lines = (data / "test.tsv").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        pairs = [(line.split("\t")[0], line.split("\t")[1]) for line in lines]
        found = score_demo(Translator.load(f"{folder}/run", LoadOptions(engine="torch")), pairs)
    scores = {
        name: {score.name: round(score.value, 2) for score in scores.all}
        for name, scores in (("stressed", found.stressed), ("plain", found.plain))
    }
    return {"scores": scores, "training_s": round(trained["seconds"], 1), "command_s": round(seconds, 1),
            "steps": trained["steps"], "words": found.words}  # fmt: skip


if __name__ == "__main__":
    main()
