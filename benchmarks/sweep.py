"""Many small training runs side by side, to back the table of fitted settings with runs.

    python benchmarks/sweep.py benchmarks/sweeps/*.toml --data FOLDER --jobs 8 --out sweep.jsonl

benchmarks/results/sweeps.json holds what such runs gave.

A sweep file names its data once and lists variants as `--set` strings. Every run goes through the command line; the
test score is `transduce evaluate` with the run's own search settings.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from facts import default_data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep", nargs="+")
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", default="sweep.jsonl")
    options = parser.parse_args()
    runs = [run for path in options.sweep for run in read_sweep(Path(path), options.data)]
    with ThreadPoolExecutor(options.jobs) as pool, open(options.out, "a") as out:
        for done in as_completed([pool.submit(execute, run) for run in runs]):
            out.write(json.dumps(done.result()) + "\n")
            out.flush()
            print_result(done.result())


def read_sweep(path: Path, data: Path) -> list[dict]:
    sweep = tomllib.loads(path.read_text())
    files = {split: [str(data / name) for name in sweep[split]] for split in ("train", "valid", "test")}
    common = sweep.get("set", "").split()
    return [
        {"sweep": path.stem, "name": name, "settings": common + variant.split(), **files}
        for name, variant in sweep["variants"].items()
    ]


def execute(run: dict) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/run"
        train = [*command("train", model), "--train", *run["train"], "--valid", *run["valid"], "--quiet", "--json"]
        begun = time.time()
        trained = call([*train, "--set", "train.threads=2", *run["settings"]])
        seconds = time.time() - begun
        tested = call([*command("evaluate", model), *run["test"], "--json"]) if "error" not in trained else {}
    scores = {name: round(score["value"], 2) for name, score in tested.get("scores", {}).items()}
    found = {key: trained.get(key) for key in ("steps", "weights")}
    score = {"valid_score": trained.get("score"), "test_scores": scores}
    return {**run, **found, **score, "seconds": round(seconds), "error": trained.get("error", "")}


def command(verb: str, model: str) -> list[str]:
    return [sys.executable, "-m", "transduce", verb, model]


def call(arguments: list[str]) -> dict:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"error": done.stderr[-2000:]}
    return json.loads(done.stdout)


def print_result(r: dict) -> None:
    print(f"{r['sweep']:<14} {r['name']:<24} valid {r['valid_score']}  test {r['test_scores']}  "
          f"{r['steps']} steps {r['seconds']} s {r['weights']} {r['error'][-300:]}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
