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
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from facts import default_data, write_result
from multi30k_bpe import HERE, call, score

SIDES = "en", "de"


@dataclass(frozen=True)
class Model:
    """One of the first models: a direction and a seed."""

    folder: Path
    sides: tuple[str, str]
    seed: int


def main() -> None:
    options = _options()
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            found = run(Path(folder), seed, options)
        print(found, flush=True)
        runs = [*options.done, found]
        options.done = runs
    if options.name:
        command = f"python benchmarks/diversify.py --models {options.models} --first {' '.join(options.first)} --last {' '.join(options.last)}"
        print(write_result(options.name, command, ["torch", "sacrebleu"], runs=options.done))


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
    parser.set_defaults(done=[])
    return parser.parse_args()


def run(folder: Path, seed: int, options: argparse.Namespace) -> dict[str, object]:
    """All stages, and how long each took."""
    begun, data = time.perf_counter(), options.data / "multi30k-bpe" / "en-de"
    train = {side: folder / f"train.{side}" for side in SIDES}
    for side, path in train.items():
        lines = (data / f"train.{side}").read_text(encoding="utf-8").split("\n")[:-1][: options.lines]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    models = [
        Model(folder / f"{'-'.join(sides)}-{number}", sides, 100 * seed + number)
        for sides in (SIDES, SIDES[::-1])
        for number in range(options.models)
    ]
    with ThreadPoolExecutor(len(models)) as pool:
        list(pool.map(lambda one: learn(one.folder, [[train[side] for side in one.sides]], one.sides, data, one.seed, options.first, options), models))  # fmt: skip
        trained = time.perf_counter()
        made = list(pool.map(lambda one: translated(one, train, options), models))
    translated_at = time.perf_counter()
    pairs = [[train["en"], train["de"]], *made]
    learn(folder / "last", pairs, SIDES, data, seed, options.last, options)
    ended = time.perf_counter()
    first = [score([one.folder], data)["bleu"] for one in models if one.sides == SIDES]
    seconds = {"first": trained - begun, "translating": translated_at - trained, "last": ended - translated_at}
    return {
        "seed": seed, **score([folder / "last"], data), "first_bleu": first, "valid": validated(folder / "last", data),
        "command_s": round(ended - begun, 1), "seconds": {name: round(value, 1) for name, value in seconds.items()},
    }  # fmt: skip


def learn(run: Path, pairs: list[list[Path]], sides: tuple[str, str], data: Path, seed: int, settings: list[str], options: argparse.Namespace) -> None:  # fmt: skip
    files = [str(word) for pair in pairs for word in ("--train", *pair)]
    valid = [str(data / f"valid.{side}") for side in sides]
    chosen = ["train.epochs=0", "train.steps=0", *settings, f"train.seed={seed}", f"train.device={options.device}"]
    call(["train", str(run), *files, "--valid", *valid, "--config", str(options.config), "--quiet", "--set", *chosen])


def translated(model: Model, train: dict[str, Path], options: argparse.Namespace) -> list[Path]:
    """English and German files, one of which this model has made from the other."""
    source, target = model.sides
    made = model.folder.with_suffix(f".{target}")
    command = [
        sys.executable,
        "-m",
        "transduce",
        "translate",
        str(model.folder),
        "--beam",
        str(options.beam),
        "--device",
        options.device,
    ]
    with open(train[source], "rb") as given, open(made, "wb") as taken:
        subprocess.run(command, stdin=given, stdout=taken, stderr=subprocess.DEVNULL, check=True)
    return [train["en"], made] if target == "de" else [made, train["de"]]


def validated(run: Path, data: Path) -> float:
    """BLEU of the validation data, for choosing among variants."""
    return score([run], data, split="valid")["bleu"]


if __name__ == "__main__":
    main()
