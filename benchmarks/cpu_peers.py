"""Training on two CPU cores beside HF MarianMT, JoeyNMT and Marian, each in a process of its own, alternating.

    python benchmarks/cpu_peers.py --peers PEERS/bin/python [--data FOLDER] [--rounds 3] [--only hf,joeynmt] [--quick]

About half an hour on two cores that do nothing else. The peers live in an environment of their own:

    python3.11 -m venv PEERS && PEERS/bin/pip install -c constraints.txt torch
    PEERS/bin/pip install -c constraints.txt transformers sentencepiece joeynmt importlib_metadata pymarian

(JoeyNMT 2.3 needs importlib_metadata and does not say so.) What is not installed there is left out, with a line that
says so. All learn Multi30k en-de, in the very same tokens (one BPE vocabulary of 8,000), with dropout .1, label
smoothing .1 and Adam, about 4,096 tokens an update. Counted are real target tokens a second, `</s>` but no padding,
after a third of the run for warming up, as each says itself:

ours            `transduce train`, its log
hf              MarianMT (`peer_hf.py`) on our batches, gradients added up to our steps
hf, file order  MarianMT, one padded batch of as many sentences an update, in random order: what its examples do
joeynmt         `joeynmt train`, token batches of 4,096 places, its log: it counts as we do
marian          `marian --cpu-threads 2 --sync-sgd`, batches of 4,096 words sorted by length: its log's words/s are
                target tokens with `</s>` (Marian's scheduler.h adds up the labels of the batch)
marian, async   the same without --sync-sgd, Marian's default: both threads update when they are ready
Each ratio is that of one round; speeds are medians of the rounds. Writes benchmarks/results/cpu-peers.json.
"""

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from facts import default_data, write_result

from transduce.data.batches import Batching
from transduce.text import Vocabulary
from transduce.training.layout import POSITIONS

HERE = Path(__file__).parent
SHAPES = {
    "tiny": {"layers": 3, "d_model": 128, "d_ff": 512, "heads": 4},
    "small": {"layers": 4, "d_model": 256, "d_ff": 1024, "heads": 4},
}
UPDATES = {"tiny": 8, "small": 4}  # a line of each log; three lines a turn, the first for warming up
TOKENS = 4_096  # an update
VALID_LINES = 20
PACKAGES = {"hf": "transformers", "joeynmt": "joeynmt", "marian": "pymarian"}

Shape = dict[str, int]


@dataclass(frozen=True)
class Lengths:
    """What a plan of batches is made from."""

    source_lengths: np.ndarray
    target_lengths: np.ndarray


@dataclass(frozen=True)
class Work:
    """Where the data of all systems lie, and what runs them."""

    folder: Path
    text: Path
    peers: str


def main() -> None:
    arguments = parse_arguments()
    load = os.getloadavg()[0]
    updates = dict.fromkeys(SHAPES, 1) if arguments.quick else UPDATES
    with tempfile.TemporaryDirectory() as name:
        work = Work(Path(name), arguments.data / "multi30k", arguments.peers)
        prepare(work)
        versions = peer_versions(work.peers)
        systems = {k: f for k, f in SYSTEMS.items() if k == "ours" or is_wanted(k, versions, arguments.only)}
        rounds = 1 if arguments.quick else arguments.rounds
        results = {size: race(work, systems, size, updates[size], rounds) for size in SHAPES}
    if not arguments.quick:
        settings = {"rounds": rounds, "updates": UPDATES, "tokens_per_update": TOKENS, "shapes": SHAPES}
        command = "python benchmarks/cpu_peers.py --peers PEERS/bin/python"
        settings |= {"peers": versions, "load_at_start": round(load, 2)}
        print(write_result("cpu-peers", command, ["torch"], settings=settings, results=results))
    print(table(results))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data(), help="folder that holds multi30k/")
    parser.add_argument("--peers", default="", metavar="PYTHON", help="the interpreter of the peers' environment")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PACKAGES), help="peers to run (default: all)")
    parser.add_argument("--quick", action="store_true", help="minutes, to see that it runs; writes nothing")
    return parser.parse_args()


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# --- what is learned from --------------------------------------------------------------------------------------


def prepare(work: Work) -> None:
    """Our first, short run learns the vocabulary; the peers get the text in its tokens."""
    for side in ("en", "de"):
        lines = (work.text / f"valid.{side}").read_text(encoding="utf-8").split("\n")[:VALID_LINES]
        (work.folder / f"short.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ours(work, SHAPES["tiny"], updates=1)
    vocabulary = Vocabulary.load(work.folder / "run" / "vocabulary.spm")
    ids = {}
    for side in ("en", "de"):
        lines = (work.text / f"train.{side}").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        ids[side] = vocabulary.encode(lines)
        tokens = (" ".join(f"t{i}" for i in sentence[:-1]) + "\n" for sentence in ids[side])
        (work.folder / f"train.{side}").write_text("".join(tokens))
    names = [f"t{i}" for i in range(2, vocabulary.size)]
    (work.folder / "vocab.txt").write_text("\n".join(names) + "\n")
    marians = ["</s>", "<unk>", *names]
    (work.folder / "vocab.yml").write_text("".join(f"{name}: {i}\n" for i, name in enumerate(marians)))
    write_steps(work, ids)


def write_steps(work: Work, ids: dict[str, list[list[int]]]) -> None:
    """The pair numbers of HF's updates, in our batches and in its own."""
    lengths = Lengths(*(np.array([len(sentence) for sentence in ids[side]], np.int32) for side in ("en", "de")))
    plan = Batching(TOKENS, POSITIONS["cpu"], seed=1).plan(lengths, epoch=0)  # type: ignore[arg-type]
    like_ours = [[batch.tolist() for batch in step] for step in plan]
    order = list(range(len(ids["en"])))
    random.Random(1).shuffle(order)
    sentences = round(len(order) / len(plan))
    usual = [[order[begin : begin + sentences]] for begin in range(0, len(order), sentences)]
    (work.folder / "ours.json").write_text(json.dumps(like_ours))
    (work.folder / "usual.json").write_text(json.dumps(usual))


# --- systems: target tokens a second of every line of a log, from the first ----------------------------------------


def ours(work: Work, shape: Shape, updates: int) -> list[float]:
    run = work.folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    settings = {
        "model.num_encoder_layers": shape["layers"],
        "model.num_decoder_layers": shape["layers"],
        "model.d_model": shape["d_model"],
        "model.d_ff": shape["d_ff"],
        "model.num_heads": shape["heads"],
        "model.dropout": 0.1,
        "model.attention_dropout": 0.0,
        "model.activation_dropout": 0.0,
        "model.norm": "post",
        "model.tie": "all",
        "data.source_units": "bpe",
        "data.target_units": "bpe",
        "data.vocabulary_size": 8_000,
        "train.device": "cpu",
        "train.optimizer": "adam",
        "train.label_smoothing": 0.1,
        "train.clip_norm": 1.0,
        "train.tokens_per_batch": TOKENS,
        "train.epochs": 0,
        "train.minutes": 0,
        "train.steps": 3 * updates,
        "train.log_every": updates,
        "train.validate_every": 1_000_000,
        "train.checkpoint_every": 1_000_000,
        "train.ema": 0.0,
        "train.average": 0,
    }
    files = {"--train": [work.text / "train.en", work.text / "train.de"]}
    files |= {"--valid": [work.folder / "short.en", work.folder / "short.de"]}
    command = [sys.executable, "-m", "transduce", "train", str(run)]
    command += [str(word) for option, paths in files.items() for word in (option, *paths)]
    command += ["--set", *(f"{name}={value}" for name, value in settings.items()), "--quiet"]
    environment = {"PYTHONPATH": str(HERE.parent), "TRANSDUCE_CACHE": str(work.folder / "cache")}
    call(command, work.folder, environment)
    log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["tokens_per_second"] for line in log if line["event"] == "train"]


def hf(work: Work, shape: Shape, updates: int) -> list[float]:
    return hf_on(work, "ours.json", shape, updates)


def hf_file_order(work: Work, shape: Shape, updates: int) -> list[float]:
    return hf_on(work, "usual.json", shape, updates)


def hf_on(work: Work, steps: str, shape: Shape, updates: int) -> list[float]:
    script = [work.peers, str(HERE / "peer_hf.py"), ".", steps, json.dumps(shape), str(updates)]
    return [float(line) for line in call(script, work.folder).split()]


def joeynmt(work: Work, shape: Shape, updates: int) -> list[float]:
    side = {"max_length": 1_000, "level": "word", "voc_file": "vocab.txt"}
    stack = {
        "type": "transformer",
        "num_layers": shape["layers"],
        "num_heads": shape["heads"],
        "embeddings": {"embedding_dim": shape["d_model"], "scale": True, "dropout": 0.1},
        "hidden_size": shape["d_model"],
        "ff_size": shape["d_ff"],
        "dropout": 0.1,
        "layer_norm": "post",
    }
    data = {"train": "train", "dev": "train", "dataset_type": "plain"}
    training = {
        "optimizer": "adam",
        "learning_rate": 0.0003,
        "clip_grad_norm": 1.0,
        "scheduling": "warmupinversesquareroot",  # its plateau calls torch in a way that 2.13 refuses
        "learning_rate_warmup": 100,
        "normalization": "tokens",
        "loss": "crossentropy",
        "label_smoothing": 0.1,
        "batch_size": TOKENS,
        "batch_type": "token",
        "epochs": 100,
        "updates": 3 * updates,
        "logging_freq": updates,
        "validation_freq": 1_000_000,
        "early_stopping_metric": "loss",
        "overwrite": True,
    }
    config = {
        "name": "joeynmt",
        "model_dir": "joeynmt",
        "use_cuda": False,
        "random_seed": 1,
        "data": data | {"src": {"lang": "en", **side}, "trg": {"lang": "de", **side}},
        "testing": {"beam_size": 1},
        "training": training,
        "model": {"tied_embeddings": True, "tied_softmax": True, "encoder": stack, "decoder": stack},
    }
    (work.folder / "joeynmt.yaml").write_text(json.dumps(config))  # JSON is YAML
    log = call([work.peers, "-m", "joeynmt", "train", "joeynmt.yaml", "--skip-test"], work.folder)
    return figures(r"Tokens per Sec: *([\d.,]+), Lr", log)


def marian(work: Work, shape: Shape, updates: int) -> list[float]:
    return marian_with(["--sync-sgd"], work, shape, updates)


def marian_async(work: Work, shape: Shape, updates: int) -> list[float]:
    return marian_with([], work, shape, updates)


def marian_with(options: list[str], work: Work, shape: Shape, updates: int) -> list[float]:
    for old in work.folder.glob("marian.npz*"):
        old.unlink()
    given = f"""--type transformer --enc-depth {shape["layers"]} --dec-depth {shape["layers"]}
        --dim-emb {shape["d_model"]} --transformer-dim-ffn {shape["d_ff"]} --transformer-heads {shape["heads"]}
        --tied-embeddings-all --transformer-dropout 0.1 --label-smoothing 0.1 --optimizer adam --learn-rate 0.0003
        --clip-norm 1 --train-sets train.en train.de --vocabs vocab.yml vocab.yml --max-length 1000 --model marian.npz
        --cpu-threads 2 --workspace 2000 --mini-batch-words {TOKENS} --shuffle-in-ram --seed 1
        --after {3 * updates}u --disp-freq {updates}u""".split()
    log = call([work.peers, "-m", "pymarian", *given, *options], work.folder)
    return figures(r"([\d.,]+) words/s", log)


SYSTEMS: dict[str, Callable[[Work, Shape, int], list[float]]] = {
    "ours": ours,
    "hf": hf,
    "hf, file order": hf_file_order,
    "joeynmt": joeynmt,
    "marian": marian,
    "marian, async": marian_async,
}


def figures(pattern: str, log: str) -> list[float]:
    return [float(found.replace(",", "")) for found in re.findall(pattern, log)]


def call(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    """What a command prints; its whole output is shown if it fails."""
    known = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_", "PYTHONPATH"))}
    known |= environment or {}
    done = subprocess.run(
        command, cwd=folder, env=known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        say(done.stdout)
        raise SystemExit(f"{command[0]} {command[1]} {command[2]} ... failed with {done.returncode}")
    return done.stdout


def peer_versions(python: str) -> dict[str, str]:
    """What of the peers is installed; empty without an interpreter."""
    if not python or shutil.which(python) is None:
        say("no --peers: ours runs alone")
        return {}
    code = "import importlib.metadata as m, json; found = {d.name.lower(): d.version for d in m.distributions()}; "
    found = json.loads(subprocess.check_output([python, "-c", code + "print(json.dumps(found))"], text=True))
    return {name: found[name] for name in ("torch", *PACKAGES.values()) if name in found}


def is_wanted(system: str, versions: dict[str, str], only: str) -> bool:
    peer = system.split(",")[0]
    if peer not in only.split(","):
        return False
    if versions and PACKAGES[peer] not in versions:
        say(f"{system}: {PACKAGES[peer]} is not installed there, so it is left out")
    return PACKAGES[peer] in versions


# --- taking turns ----------------------------------------------------------------------------------------------


def race(work: Work, systems: dict[str, Any], size: str, updates: int, rounds: int) -> dict[str, Any]:
    """Every system once a round, each round beginning with another."""
    names, speeds = list(systems), {name: [] for name in systems}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            _, *measured = systems[name](work, SHAPES[size], updates)
            speeds[name].append(statistics.harmonic_mean(measured))
            say(f"{size}, round {number + 1}, {name}: {speeds[name][-1]:,.0f} target tokens a second")
    ratios = {name: sorted(a / b for a, b in zip(speeds["ours"], speeds[name], strict=True)) for name in names[1:]}
    return {
        "systems": {
            name: {
                "target_tokens_per_s": round(statistics.median(each), 1),
                "rounds": [round(speed, 1) for speed in each],
            }
            for name, each in speeds.items()
        },
        "ours_over": {
            name: {
                "median": round(statistics.median(each), 2),
                "least": round(each[0], 2),
                "most": round(each[-1], 2),
            }
            for name, each in ratios.items()
        },
    }


def table(results: dict[str, Any]) -> str:
    lines = [f"{'':8}{'':16}{'target tokens/s':>16}   ours is faster (least - most)"]
    for size, report in results.items():
        for name, one in report["systems"].items():
            ratio = report["ours_over"].get(name)
            faster = f"{ratio['median']:.2f}x ({ratio['least']:.2f} - {ratio['most']:.2f})" if ratio else ""
            speed = f"{one['target_tokens_per_s']:,.0f}"
            lines.append(f"{size if name == 'ours' else '':8}{name:16}{speed:>16}   {faster}".rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    main()
