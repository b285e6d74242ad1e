"""What cleaning is worth: BLEU of a small model trained on a damaged corpus, on what `doctor --write` leaves of it, and on the clean one.

python benchmarks/doctor_training.py                    about five minutes on two idle cores
python benchmarks/doctor_training.py --steps 20         a quick trial, which writes no result file

The corpus is 60,000 pairs of Tatoeba. Damaged are 30 % of it: a stretch of 20 % in which every target is one line late, and
10 % of single faults. The three runs have the same settings and the same number of steps.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from doctor_planted import Pair, mojibake, swapped, untranslated, write
from facts import default_data, write_result

PACKAGES = ["torch", "numpy", "sentencepiece", "sacrebleu", "ftfy", "lingua-language-detector"]
PAIRS, STEPS, SEED = 60_000, 1_000, 17
DRIFT = (30_000, 42_000)  # rows
SINGLE_FAULTS = 0.02  # of the pairs, for each kind
TEST_LINES = 1_000
SETTINGS = [
    "model.d_model=128", "model.d_ff=256", "model.num_heads=4", "model.num_encoder_layers=2", "model.num_decoder_layers=2",
    "model.dropout=0.1", "data.vocabulary_size=4000", "train.tokens_per_batch=1024", "train.validate_every=500",
    "train.checkpoint_every=500", "train.learning_rate=0.003", "train.schedule=linear", "train.warmup_steps=150", "train.patience=0",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        content = compare(arguments.data / "tatoeba-de-en", arguments.steps, Path(folder))
    print(json.dumps(content, indent=1))
    if arguments.steps == STEPS:
        print(write_result("doctor-training", "python benchmarks/doctor_training.py", PACKAGES, **content))


def compare(data: Path, steps: int, folder: Path) -> dict[str, Any]:
    clean = read(data)
    corpora = {"clean": write(clean, folder / "clean"), "damaged": write(damage(clean), folder / "damaged")}
    doctor = clean_up(corpora["damaged"], data, folder / "mended")
    corpora["mended"] = (str(folder / "mended" / "damaged.de"), str(folder / "mended" / "damaged.en"))
    with ThreadPoolExecutor() as pool:  # side by side, a thread each: small models gain little from more
        started = {name: pool.submit(train, name, files, data, steps, folder) for name, files in corpora.items()}
    runs = {name: run.result() for name, run in started.items()}
    return {
        "pairs": {name: count(files[0]) for name, files in corpora.items()},
        "steps": steps,
        "doctor": doctor,
        "runs": runs,
    }


def read(data: Path) -> list[Pair]:
    sides = ((data / f"train.{side}").read_text(encoding="utf-8").split("\n")[:PAIRS] for side in ("de", "en"))
    return list(zip(*sides, strict=True))


def damage(pairs: list[Pair]) -> list[Pair]:
    chance, damaged = random.Random(SEED), list(pairs)
    first, last = DRIFT
    targets = [target for _, target in pairs[first:last]]
    for row, target in zip(range(first, last), [targets[-1], *targets], strict=False):
        damaged[row] = (pairs[row][0], target)
    rows = [row for row in range(len(pairs)) if not first <= row < last]
    chance.shuffle(rows)
    kinds = [
        lambda pair: (pair[0], pair[0]),
        lambda pair: swapped(pair, chance, pairs),
        lambda pair: untranslated(pair, chance, pairs),
        lambda pair: mojibake(pair, chance, pairs),
        lambda pair: (pair[0], pair[1][: max(1, len(pair[1]) // 8)]),
    ]
    each = int(SINGLE_FAULTS * len(pairs))
    for number, change in enumerate(kinds):
        for row in rows[number * each : (number + 1) * each]:
            damaged[row] = change(pairs[row])
    return damaged


def clean_up(files: tuple[str, str], data: Path, folder: Path) -> dict[str, Any]:
    valid = [str(data / f"valid.{side}") for side in ("de", "en")]
    done = transduce(
        "doctor", "--train", *files, "--valid", *valid, "--languages", "de", "en", "--write", str(folder), "--json"
    )
    report = json.loads(done)
    found = {one["rule"]: one["count"] for one in report["findings"] if one["corpus"] == "train"}
    return {"seconds": round(report["seconds"], 1), "findings": found}


def train(name: str, files: tuple[str, str], data: Path, steps: int, folder: Path) -> dict[str, Any]:
    run, valid = folder / f"run-{name}", [str(data / f"valid.{side}") for side in ("de", "en")]
    options = [
        "--languages",
        "de",
        "en",
        "--steps",
        str(steps),
        "--seed",
        "1",
        "--threads",
        "1",
        "--quiet",
        "--set",
        *SETTINGS,
    ]
    transduce("train", str(run), "--train", *files, "--valid", *valid, *options)
    test = [first_lines(data / f"test.{side}", folder / f"{name}-test.{side}") for side in ("de", "en")]
    report = json.loads(transduce("evaluate", str(run), *test, "--json", "--beam", "4", "--metrics", "bleu", "chrf"))
    shutil.rmtree(run)
    return report


def first_lines(source: Path, target: Path) -> str:
    """Lines spread evenly: the test set is sorted."""
    target.write_text("".join(source.read_text(encoding="utf-8").splitlines(keepends=True)[:: 17_565 // TEST_LINES]))
    return str(target)


def transduce(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "transduce", *arguments], stdout=subprocess.PIPE, check=False, text=True
    )
    if done.returncode not in (0, 3):  # 3: something serious was found
        sys.exit(f"transduce {arguments[0]} failed")
    return done.stdout


def count(path: str) -> int:
    return Path(path).read_bytes().count(b"\n")


if __name__ == "__main__":
    main()
