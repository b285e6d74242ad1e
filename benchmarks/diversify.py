"""Multi30k En-De as published, by one model that learns from other models' translations of its training data (Nguyen et al. 2020).

    python benchmarks/diversify.py                                   two minutes of one GPU, all stages together
    python benchmarks/diversify.py --models 3 --first train.epochs=40 --last train.epochs=20
    python benchmarks/diversify.py --device cpu --first train.steps=20 --last train.steps=20 --lines 50 --name trial

Some models are trained in each direction, side by side. Those from English translate the English half of the training data, the others the German
half; the last model learns from the original pairs and from all of these. No other data are used, and one model translates the test set. The score is
what `multi-bleu` gives: sacreBLEU with `tok:none` on tokens whose BPE is undone, test_2016_flickr. Start an NVIDIA GPU's Multi-Process
Service first (`nvidia-cuda-mps-control -d`): the first models then share the GPU rather than take turns.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from facts import default_data, write_result
from multi30k_bpe import HERE, call, score

SIDES = "en", "de"
STAGES = "first", "translating", "last"


@dataclass(frozen=True)
class Model:
    """A model to train: its folder, direction and seed."""

    folder: Path
    sides: tuple[str, str]
    seed: int


def main() -> None:
    options = _options()
    runs = []
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            runs.append(run(Path(folder), seed, options))
        print(json.dumps(runs[-1]), flush=True)
    if options.name:
        asked = f"--models {options.models} --first {' '.join(options.first)} --last {' '.join(options.last)}"
        command = f"python benchmarks/diversify.py {asked}"
        print(write_result(options.name, command, ["torch", "sacrebleu"], runs=runs))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--config", type=Path, default=HERE.parent / "configs" / "multi30k-bpe-gpu.toml")
    parser.add_argument("--models", type=int, default=2, help="first models in each direction")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--first", nargs="+", default=["train.minutes=0.5"], help="settings of the first models")
    parser.add_argument("--last", nargs="+", default=["train.minutes=1.0"], help="settings of the last model")
    parser.add_argument("--beam", type=int, default=5, help="of the first models")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--lines", type=int, default=None, help="training pairs, to try it out")
    parser.add_argument("--name", default="multi30k-diversified-gpu", help="of the result file")
    return parser.parse_args()


def run(folder: Path, seed: int, options: argparse.Namespace) -> dict[str, object]:
    """All stages, and how long each took."""
    data, clock = options.data / "multi30k-bpe" / "en-de", [time.perf_counter()]
    train = copied(data, folder, options.lines)
    models = [
        Model(folder / f"{'-'.join(sides)}-{number}", sides, 100 * seed + number)
        for sides in (SIDES, SIDES[::-1])
        for number in range(options.models)
    ]
    with ThreadPoolExecutor(len(models)) as pool:
        list(pool.map(lambda one: learn_first(one, train, data, options), models))
        clock.append(time.perf_counter())
        made = list(pool.map(lambda one: translated(one, train, options), models))
    clock.append(time.perf_counter())
    last = Model(folder / "last", SIDES, seed)
    learn(last, [[train["en"], train["de"]], *made], data, options.last, options.config, options.device)
    clock.append(time.perf_counter())
    return {
        "seed": seed,
        **score([last.folder], data),
        "valid": score([last.folder], data, split="valid")["bleu"],
        "first_bleu": [score([one.folder], data)["bleu"] for one in models if one.sides == SIDES],
        "command_s": round(clock[-1] - clock[0], 1),
        "seconds": dict(zip(STAGES, (round(end - begin, 1) for begin, end in pairwise(clock)), strict=True)),
    }


def copied(data: Path, folder: Path, lines: int | None) -> dict[str, Path]:
    """The training data by side, or their first lines."""
    train = {side: folder / f"train.{side}" for side in SIDES}
    for path in train.values():
        kept = (data / path.name).read_text(encoding="utf-8").split("\n")[:-1][:lines]
        path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    return train


def learn_first(model: Model, train: dict[str, Path], data: Path, options: argparse.Namespace) -> None:
    pairs = [[train[side] for side in model.sides]]
    learn(model, pairs, data, options.first, options.config, options.device)


def learn(model: Model, pairs: list[list[Path]], data: Path, settings: list[str], config: Path, device: str) -> None:
    files = [str(word) for pair in pairs for word in ("--train", *pair)]
    valid = [str(data / f"valid.{side}") for side in model.sides]
    chosen = ["train.epochs=0", "train.steps=0", *settings, f"train.seed={model.seed}", f"train.device={device}"]
    call(["train", str(model.folder), *files, "--valid", *valid, "--config", str(config), "--quiet", "--set", *chosen])


def translated(model: Model, train: dict[str, Path], options: argparse.Namespace) -> list[Path]:
    """English and German files, one of which this model has made from the other."""
    source, target = model.sides
    made = model.folder.with_suffix(f".{target}")
    how = ["--beam", str(options.beam), "--device", options.device]
    command = [sys.executable, "-m", "transduce", "translate", str(model.folder), *how]
    with open(train[source], "rb") as given, open(made, "wb") as taken:
        subprocess.run(command, stdin=given, stdout=taken, stderr=subprocess.DEVNULL, check=True)
    return [train["en"], made] if target == "de" else [made, train["de"]]


if __name__ == "__main__":
    main()
