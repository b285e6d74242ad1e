"""Multi30k En-De exactly as published (tokenised, lower-cased, joint 10k BPE): tokenised BLEU and the time it takes.

    python benchmarks/multi30k_bpe.py --config configs/multi30k-bpe-gpu.toml --seeds 1 2 3
    python benchmarks/multi30k_bpe.py --sweep benchmarks/sweeps/multi30k-bpe.toml --jobs 8 --out sweep.jsonl

Trained and translated (beam 5) through the command line. The score is what `multi-bleu` gives: sacreBLEU with `tok:none`
on tokens whose BPE is undone, test_2016_flickr. Both clocks: training as the run counts it, and the whole command with
preparation, start-up, validations and the last average.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from facts import default_data, write_result
from sacrebleu.metrics.bleu import BLEU

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data() / "multi30k-bpe" / "en-de")
    parser.add_argument("--config", type=Path, default=HERE.parent / "configs" / "multi30k-bpe-gpu.toml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", nargs="*", default=[], help="settings on top of the recipe")
    parser.add_argument("--sweep", type=Path, help="a file of variants instead of seeds; writes only --out")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", default="multi30k-bpe.jsonl")
    options = parser.parse_args()
    runs = variants(options.sweep) if options.sweep else by_seed(options)
    done = []
    with ThreadPoolExecutor(options.jobs) as pool, open(options.out, "a") as out:
        for finished in as_completed([pool.submit(execute, name, asked, options.data) for name, asked in runs.items()]):
            done.append(finished.result())
            out.write(json.dumps(done[-1]) + "\n")
            out.flush()
            print(json.dumps(done[-1]), flush=True)
    if not options.sweep:
        print(record(done, options))


def variants(path: Path) -> dict[str, list[str]]:
    sweep = tomllib.loads(path.read_text())
    common = sweep["set"].split()
    return {name: ["--set", *common, *variant.split()] for name, variant in sweep["variants"].items()}


def by_seed(options: argparse.Namespace) -> dict[str, list[str]]:
    recipe = ["--config", str(options.config), "--set"]
    return {f"seed {seed}": [*recipe, f"train.seed={seed}", *options.set] for seed in options.seeds}


def execute(name: str, asked: list[str], data: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        files = {split: [str(data / f"{split}.{side}") for side in ("en", "de")] for split in ("train", "valid")}
        begun = time.perf_counter()
        trained = json.loads(
            call(["train", f"{folder}/run", "--train", *files["train"], "--valid", *files["valid"], "--quiet", "--json",
                  *asked])
        )  # fmt: skip
        seconds = time.perf_counter() - begun
        source = (data / "test_2016_flickr.en").read_text(encoding="utf-8")
        outputs = call(["translate", f"{folder}/run", "--beam", "5"], source)
        curve = curve_of(Path(folder) / "run" / "metrics.jsonl")
    reference = (data / "test_2016_flickr.de").read_text(encoding="utf-8")
    metric = BLEU(tokenize="none", force=True)
    score = metric.corpus_score(lines_of(outputs), [lines_of(reference)])
    return {
        "name": name,
        "bleu": round(score.score, 2),
        "signature": str(metric.get_signature()),
        "training_s": round(trained["seconds"], 1),
        "command_s": round(seconds, 1),
        "steps": trained["steps"],
        "weights": trained["weights"],
        "valid": round(trained["score"], 2),
        "settings": asked,
        "curve": curve,
    }


def lines_of(text: str) -> list[str]:
    """Lines with their BPE undone."""
    return text.replace("@@ ", "").removesuffix("\n").split("\n")


def curve_of(metrics: Path) -> list[list[float]]:
    """[step, validation score] at each validation."""
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [[e["step"], round(e["scores"]["BLEU"]["value"], 2)] for e in events if e["event"] == "valid"]


def call(arguments: list[str], text: str = "") -> str:
    command = [sys.executable, "-m", "transduce", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, encoding="utf-8")
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout


def record(done: list[dict[str, Any]], options: argparse.Namespace) -> Path:
    scores = [one["bleu"] for one in done]
    summary = {"mean": round(statistics.mean(scores), 2), "least": min(scores), "most": max(scores)}
    command = f"python benchmarks/multi30k_bpe.py --config configs/{options.config.name} --seeds {' '.join(map(str, options.seeds))}"
    return write_result("multi30k-bpe-gpu", command, ["torch", "sacrebleu"], bleu=summary, runs=done)


if __name__ == "__main__":
    main()
