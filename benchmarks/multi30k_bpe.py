"""Multi30k En-De exactly as published (tokenised, lower-cased, joint 10k BPE): tokenised BLEU and the time it takes.

    python benchmarks/multi30k_bpe.py --config configs/multi30k-bpe-gpu.toml --seeds 1 2 3
    python benchmarks/multi30k_bpe.py --seeds 1 2 3 4 5 6 7 8 9 --ensemble 3     and every three of them together
    python benchmarks/multi30k_bpe.py --sweep benchmarks/sweeps/multi30k-bpe.toml --jobs 8 --out sweep.jsonl

Trained and translated (beam 5) through the command line. The score is what `multi-bleu` gives: sacreBLEU with `tok:none`
on tokens whose BPE is undone, test_2016_flickr. Both clocks: training as the run counts it, and the whole command with
preparation, start-up, validations and the last average. With --jobs above 1 the clocks are those of runs that share a machine.
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
    parser.add_argument(
        "--ensemble", type=int, default=0, help="also the scores of so many seeds that translate together"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", default="multi30k-bpe.jsonl")
    options = parser.parse_args()
    runs = variants(options.sweep) if options.sweep else by_seed(options)
    done = {}
    with (
        ThreadPoolExecutor(options.jobs) as pool,
        tempfile.TemporaryDirectory() as folder,
        open(options.out, "a") as out,
    ):
        work = [pool.submit(execute, name, asked, options.data, Path(folder) / name) for name, asked in runs.items()]
        for finished in as_completed(work):
            one = finished.result()
            done[one["name"]] = one
            out.write(json.dumps(one) + "\n")
            out.flush()
            print(json.dumps(one), flush=True)
        together = ensembles([Path(folder) / name for name in runs], options) if options.ensemble else []
    if not options.sweep:
        print(record([done[name] for name in runs], together, options))


def variants(path: Path) -> dict[str, list[str]]:
    sweep = tomllib.loads(path.read_text())
    common = sweep["set"].split()
    return {name: ["--set", *common, *variant.split()] for name, variant in sweep["variants"].items()}


def by_seed(options: argparse.Namespace) -> dict[str, list[str]]:
    recipe = ["--config", str(options.config), "--set"]
    return {f"seed {seed}": [*recipe, f"train.seed={seed}", *options.set] for seed in options.seeds}


def execute(name: str, asked: list[str], data: Path, folder: Path) -> dict[str, Any]:
    files = {split: [str(data / f"{split}.{side}") for side in ("en", "de")] for split in ("train", "valid")}
    begun = time.perf_counter()
    trained = json.loads(
        call(
            ["train", str(folder), "--train", *files["train"], "--valid", *files["valid"], "--quiet", "--json", *asked]
        )
    )
    seconds = time.perf_counter() - begun
    return {
        "name": name,
        **score([folder], data),
        "training_s": round(trained["seconds"], 1),
        "command_s": round(seconds, 1),
        "steps": trained["steps"],
        "weights": trained["weights"],
        "valid": round(trained["score"], 2),
        "settings": [Path(word).name if Path(word).is_absolute() else word for word in asked],
        "curve": curve_of(folder / "metrics.jsonl"),
    }


def ensembles(folders: list[Path], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Scores of the seeds that follow each other, so many at a time; no model is in two of them."""
    together = []
    for begin in range(0, len(folders) - options.ensemble + 1, options.ensemble):
        chosen = folders[begin : begin + options.ensemble]
        together.append({"name": " + ".join(folder.name for folder in chosen), **score(chosen, options.data)})
        print(json.dumps(together[-1]), flush=True)
    return together


def score(models: list[Path], data: Path, split: str = "test_2016_flickr") -> dict[str, Any]:
    """Tokenised BLEU of one model, or of several that translate together."""
    first, *others = map(str, models)
    source = (data / f"{split}.en").read_text(encoding="utf-8")
    outputs = call(["translate", first, "--beam", "5", *(["--ensemble", *others] if others else [])], source)
    reference = (data / f"{split}.de").read_text(encoding="utf-8")
    metric = BLEU(tokenize="none", force=True)
    bleu = metric.corpus_score(lines_of(outputs), [lines_of(reference)])
    return {"bleu": round(bleu.score, 2), "signature": str(metric.get_signature())}


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


def record(done: list[dict[str, Any]], together: list[dict[str, Any]], options: argparse.Namespace) -> Path:
    asked = f"--seeds {' '.join(map(str, options.seeds))}"
    asked += f" --ensemble {options.ensemble}" if options.ensemble else ""
    asked += f" --jobs {options.jobs}" if options.jobs > 1 else ""
    command = f"python benchmarks/multi30k_bpe.py --config configs/{options.config.name} {asked}"
    name = options.config.stem.replace("bpe", "bpe-ensemble" if options.ensemble else "bpe")
    found = {"bleu": spread(done), "runs": done}
    if together:
        found |= {"ensembles": {"bleu": spread(together), "runs": together}}
    return write_result(name, command, ["torch", "sacrebleu"], **found)


def spread(runs: list[dict[str, Any]]) -> dict[str, float]:
    scores = [one["bleu"] for one in runs]
    return {"mean": round(statistics.mean(scores), 2), "least": min(scores), "most": max(scores)}


if __name__ == "__main__":
    main()
