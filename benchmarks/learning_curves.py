"""What a model of some size reaches after seeing some number of target tokens: the runs behind the fitted settings.

    python benchmarks/learning_curves.py --data FOLDER --jobs 8 --minutes 8 --out curves.jsonl

Each run is a whole training whose learning rate falls to zero at its last step, so a row answers "what would this model
reach if the budget ended here?". Runs take turns on one GPU; the result does not depend on how fast they were.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

from facts import default_data

SIZES = {  # d_model, heads, layers of each side
    "64x2": (64, 4, 2),
    "128x2": (128, 4, 2),
    "128x3": (128, 4, 3),
    "192x3": (192, 4, 3),
    "256x3": (256, 4, 3),
    "384x4": (384, 6, 4),
    "512x6": (512, 8, 6),
}
FILES = {
    "tatoeba": ["tatoeba-de-en/{}.de", "tatoeba-de-en/{}.en"],
    "multi30k": ["multi30k/{}.en", "multi30k/{}.de"],
    "cmudict": ["cmudict/{}.tsv"],
    "eng_us": ["sigmorphon2021-g2p/high/eng_us/{}.tsv"],
    "jpn_hira": ["sigmorphon2021-g2p/medium/jpn_hira/{}.tsv"],
    "german": ["conll2017-inflection/german/{}.tsv"],
    "finnish": ["conll2017-inflection/finnish/{}.tsv"],
}
NEVER = 1_000_000_000


def grid() -> list[dict]:
    """Sizes by tokens seen first, then what else could matter at a few of those points."""
    runs = []
    for tokens, size, batch in itertools.product((0.5, 1, 2, 4, 8), ("128x2", "128x3", "256x3"), (1024, 2048)):
        runs.append(run("tatoeba", size, tokens, batch, vocabulary=4000))
    for tokens, size in itertools.product((4, 8, 16), ("256x3", "384x4")):
        runs.append(run("tatoeba", size, tokens, 4096, vocabulary=8000))
    for vocabulary, size in itertools.product((2000, 8000), ("128x3", "256x3")):
        runs.append(run("tatoeba", size, 2, 1024, vocabulary=vocabulary))
    for rate, batch, size in itertools.product((1e-3, 4e-3), (512, 1024), ("128x3", "256x3")):
        runs.append(run("tatoeba", size, 2, batch, vocabulary=4000, rate=rate))
    for tokens, size, batch in itertools.product((0.5, 1, 2, 4), ("64x2", "128x2", "128x3", "256x3"), (512, 1024)):
        runs.append(run("cmudict", size, tokens, batch))
    for tokens, size in itertools.product((0.5, 1, 2, 4, 8), ("128x2", "128x3", "256x3")):
        runs.append(run("multi30k", size, tokens, 1024, vocabulary=4000))
    for tokens, size, batch in itertools.product((0.25, 0.5, 1, 2), ("128x2", "128x3", "256x3"), (256, 512)):
        runs.append(run("german", size, tokens, batch, dropout=0.2))
    for dropout, size in itertools.product((0.1, 0.3), ("128x3", "256x3")):
        runs.append(run("multi30k", size, 4, 1024, vocabulary=4000, dropout=dropout))
        runs.append(run("german", size, 1, 512, dropout=dropout))
    for tokens, size in itertools.product((0.25, 0.5, 1, 2), ("128x2", "128x3", "256x3")):
        runs.append(run("eng_us", size, tokens, 512))
        runs.append(run("finnish", size, tokens, 512, dropout=0.2))
        runs.append(run("jpn_hira", size, tokens / 2, 256, dropout=0.2))
    for rate, size in itertools.product((1e-3, 4e-3), ("128x2", "128x3", "256x3")):
        runs.append(run("cmudict", size, 1, 512, rate=rate))
        runs.append(run("german", size, 0.5, 512, rate=rate, dropout=0.2))
    for tokens, size in itertools.product((8, 16, 32), ("256x3", "384x4")):
        runs.append(run("cmudict", size, tokens, 2048))
    for tokens, size in itertools.product((16, 32, 64), ("256x3", "384x4", "512x6")):
        runs.append(run("tatoeba", size, tokens, 8192, vocabulary=8000, rate=1.5e-3))
    return runs


def run(task: str, size: str, tokens: float, batch: int, *, vocabulary: int = 1000, rate: float = 2e-3, dropout: float = 0.1) -> dict:  # fmt: skip
    return {"task": task, "size": size, "tokens": tokens * 1e6, "batch": batch, "vocabulary": vocabulary, "rate": rate, "dropout": dropout}  # fmt: skip


def settings(one: dict) -> list[str]:
    d_model, heads, layers = SIZES[one["size"]]
    steps = round(one["tokens"] / one["batch"])
    return [
        f"model.d_model={d_model}", f"model.d_ff={4 * d_model}", f"model.num_heads={heads}",
        f"model.num_encoder_layers={layers}", f"model.num_decoder_layers={layers}", f"model.dropout={one['dropout']}",
        f"data.vocabulary_size={one['vocabulary']}", f"train.tokens_per_batch={one['batch']}",
        f"train.steps={steps}", f"train.warmup_steps={max(10, steps // 20)}", f"train.learning_rate={one['rate']}",
        f"train.validate_every={NEVER}", f"train.checkpoint_every={NEVER}", "train.average=0", "train.threads=1",
        *(["data.columns=source=1,features=3,target=2", "data.task=symbols"] if one["task"] in ("german", "finnish") else []),
    ]  # fmt: skip


def execute(job: tuple[dict, str, float]) -> dict:
    one, data, until = job
    if time.time() > until:
        return {**one, "error": "no time left"}
    import transduce

    names = FILES[one["task"]]
    split = {"train": "train-high" if one["task"] in ("german", "finnish") else "train", "valid": "valid"}
    files = {which: [tuple(f"{data}/{name.format(stem)}" for name in names)] for which, stem in split.items()}
    begun = time.time()
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = transduce.train(f"{folder}/run", **files, settings=settings(one), quiet=True)
        except Exception as error:  # one run that fails must not end the others
            return {**one, "error": repr(error)[-300:]}
        last = json.loads(Path(folder, "run/metrics.jsonl").read_text().splitlines()[-1])
    scores = {name: round(score["value"], 2) for name, score in last["scores"].items()}
    return {**one, "steps": result.steps, "loss": round(last["loss"], 4), "scores": scores, "s": round(time.time() - begun, 1)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", default="curves.jsonl")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    until = time.time() + 60 * options.minutes
    jobs = [(one, str(options.data), until) for one in grid()]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool, open(options.out, "a") as out:
        for done in pool.imap_unordered(execute, jobs):
            out.write(json.dumps(done) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
