"""The recurrent network with attention compared with Eole's and OpenNMT-py's on a CPU: the same tokens, about the same size, alternating.

    python benchmarks/rnn_peers.py --peers EOLE/bin ONMT/bin [--data FOLDER] [--seconds 60] [--rounds 2] [--threads 2] [--quick]

Eole 0.6.4 and OpenNMT-py 3.0.4 live in environments of their own:

    python3.11 -m venv EOLE && EOLE/bin/pip install torch==2.13.0 eole==0.6.4 aiohttp
    python3.11 -m venv ONMT && ONMT/bin/pip install torch==2.13.0 setuptools six configargparse pyonmttok pyyaml tensorboard \\
        ctranslate2 flask waitress rapidfuzz sacrebleu && ONMT/bin/pip install --no-deps OpenNMT-py==3.0.4

(Eole needs aiohttp and does not say so; OpenNMT-py asks for versions of PyTorch and CTranslate2 that it does not need.) All learn Multi30k en-de in its published BPE tokens with a bidirectional LSTM, an LSTM
decoder with dot-product attention, dropout .2, label smoothing .1, Adam at 1e-3 and about 2,000 target tokens an update. Each first
trains for a few updates, a pilot, which also prepares its data, and then for as many as would fit into the same number of seconds, on the same
number of threads. It is then validated on 200 lines and translates them greedily.

ours    `transduce train` with model.family=rnn. Both layers of its decoder are computed for whole rows.
eole    architecture `custom`: encoder brnn, decoder rnn with input feeding, which is a loop over target positions.
onmt    OpenNMT-py, of which Eole is a fork: the same model.

Printed are target tokens (`</s>` but no padding) per second as each log says, and per second of computing, which other work on the machine
changes less: of the whole command, less those of the pilot. Then BLEU (tok:none, BPE undone). Validation losses are not compared: those of the peers
contain the label smoothing. Writes benchmarks/results/rnn-peers.json.
"""

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cells.tasks import tokenised_bleu
from cpu_peers import call, figures, say
from facts import HERE, default_data, write_result

import transduce
from transduce.run_log import read_events

WIDTH, TOKENS, DROPOUT, RATE = 256, 2_048, 0.2, 1e-3
VALID_LINES = 200
PILOT = 31  # updates; the first one is not counted. The logs of the peers have whole seconds


@dataclass(frozen=True)
class Turn:
    """What one training gave."""

    parameters: int
    updates: int
    tokens_per_s: float
    tokens_per_cpu_s: float
    valid_bleu: float


@dataclass(frozen=True)
class Work:
    """Where the data of all systems lie, and what runs them."""

    folder: Path
    text: Path
    peers: list[Path]  # folders with the programs of the peers
    threads: int

    @property
    def environment(self) -> dict[str, str]:
        """One number of threads for all; waiting threads do not spin, as `transduce` sets it."""
        return {"OMP_NUM_THREADS": str(self.threads), "OMP_WAIT_POLICY": "PASSIVE"}


def main() -> None:
    arguments = parse_arguments()
    seconds, rounds = (5.0, 1) if arguments.quick else (arguments.seconds, arguments.rounds)
    with tempfile.TemporaryDirectory() as name:
        text = arguments.data / "multi30k-bpe" / "en-de"
        work = Work(Path(name), text.resolve(), [folder.resolve() for folder in arguments.peers], arguments.threads)
        prepare(work)
        found = {peer.name: peer for peer in PEERS for folder in work.peers if (folder / peer.trains[0]).exists()}
        for peer in PEERS:
            if peer.name not in found:
                say(f"{peer.name} is not installed there and does not run")
        systems = {"ours": ours} | {name: partial(run_peer, peer) for name, peer in found.items()}
        load = os.getloadavg()[0]
        turns = take_turns(work, systems, seconds, rounds)
    print(table(turns))
    if not arguments.quick:
        settings = {"seconds": seconds, "rounds": rounds, "threads": work.threads, "load_at_start": round(load, 2)}
        results = {name: [asdict(turn) for turn in of] for name, of in turns.items()}
        command = "python benchmarks/rnn_peers.py --peers EOLE/bin ONMT/bin"
        print(write_result("rnn-peers", command, ["torch", "sacrebleu"], settings=settings, results=results))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data(), help="folder that holds multi30k-bpe/")
    parser.add_argument(
        "--peers", type=Path, nargs="+", required=True, metavar="BIN", help="bin/ of the peers' environments"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of each training")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true", help="a minute, to see that it runs; writes nothing")
    return parser.parse_args()


def take_turns(work: Work, systems: dict[str, Any], seconds: float, rounds: int) -> dict[str, list[Turn]]:
    """Every system once a round, each round beginning with another."""
    names, turns = list(systems), {name: [] for name in systems}
    for number in range(rounds):
        for name in names if number % 2 == 0 else names[::-1]:
            turns[name].append(systems[name](work, seconds))
            say(f"round {number + 1}, {name}: {turns[name][-1]}")
    return turns


def prepare(work: Work) -> None:
    """The validation lines, and all tokens of the training data with their counts, as the peers read them."""
    for side in ("en", "de"):
        lines = (work.text / f"valid.{side}").read_text(encoding="utf-8").splitlines(keepends=True)
        (work.folder / f"valid.{side}").write_text("".join(lines[:VALID_LINES]), encoding="utf-8")
    counts = Counter(token for side in ("en", "de") for token in (work.text / f"train.{side}").read_text().split())
    lines = (f"{token}\t{count}\n" for token, count in counts.most_common())
    (work.folder / "vocab.txt").write_text("".join(lines), encoding="utf-8")


def bleu(work: Work, outputs: list[str]) -> float:
    references = (work.folder / "valid.de").read_text(encoding="utf-8").splitlines()
    return round(tokenised_bleu(outputs, references).value, 2)


@dataclass(frozen=True)
class Training:
    """One call of a trainer: what its log says, and the seconds that it computed."""

    parameters: int
    updates: int
    tokens: float
    seconds: float  # from the second update on
    speeds: list[float]
    cpu_s: float

    def after(self, pilot: "Training", score: float) -> Turn:
        """The figures of a training, its start not counted: the pilot had the same."""
        computed = (self.tokens - pilot.tokens) / max(1e-9, self.cpu_s - pilot.cpu_s)
        speed = statistics.median(self.speeds[1:] or self.speeds)
        return Turn(self.parameters, self.updates, round(speed, 1), round(computed, 1), score)

    def fitting(self, seconds: float) -> int:
        """How many updates fit into this time, by those of a pilot."""
        return max(2 * self.updates, round(seconds * (self.updates - 1) / max(0.1, self.seconds)))


def computed_seconds() -> float:
    """Of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# --- ours ---------------------------------------------------------------------------------------------------------


def ours(work: Work, seconds: float) -> Turn:
    pilot = train_ours(work, PILOT)
    training = train_ours(work, pilot.fitting(seconds))
    model = transduce.load(work.folder / "run", device="cpu", engine="torch", weights="last", threads=work.threads)
    outputs = model.translate((work.folder / "valid.en").read_text(encoding="utf-8").splitlines(), beam=1)
    return training.after(pilot, bleu(work, outputs))


def train_ours(work: Work, updates: int) -> Training:
    run, before = work.folder / "run", computed_seconds()
    shutil.rmtree(run, ignore_errors=True)
    settings = {
        "model.family": "rnn", "model.cell": "lstm", "model.attention": "dot", "model.d_model": WIDTH, "model.tie": "none",
        "model.d_embedding": WIDTH, "model.d_readout": WIDTH, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1,
        "model.dropout": DROPOUT, "data.source_units": "word", "data.target_units": "word", "data.joint": "true",
        "data.vocabulary_size": 12_000, "data.unknown": "unk", "data.normalization": "identity", "train.device": "cpu",
        "train.threads": work.threads, "train.optimizer": "adam", "train.learning_rate": RATE, "train.schedule": "constant", "train.warmup_steps": 1,
        "train.label_smoothing": 0.1, "train.clip_norm": 1.0, "train.tokens_per_batch": TOKENS, "train.epochs": 0,
        "train.ema": 0.0, "train.average": 0, "train.log_every": 1, "train.steps": updates, "train.validate_every": updates,
    }  # fmt: skip
    prepared = {"PYTHONPATH": str(HERE.parent), "TRANSDUCE_CACHE": str(work.folder / "cache"), **work.environment}
    program = [sys.executable, "-m", "transduce"]
    files = ["--train", *(str(work.text / f"train.{side}") for side in ("en", "de"))]
    files += ["--valid", *(str(work.folder / f"valid.{side}") for side in ("en", "de"))]
    given = ["--set", *(f"{name}={value}" for name, value in settings.items())]
    call([*program, "train", str(run), *files, *given], work.folder, prepared)
    events = read_events(run / "metrics.jsonl")
    trained = [event for event in events if event["event"] == "train"]
    speeds = [event["tokens_per_second"] for event in trained]
    tokens = [event["target_tokens"] for event in trained]
    parameters = float(re.search(r"([\d.]+) M parameters", (run / "README.md").read_text())[1])
    seconds = sum((now - last) / speed for last, now, speed in zip(tokens, tokens[1:], speeds[1:], strict=False))
    cpu_s = computed_seconds() - before
    return Training(round(parameters * 1e6), trained[-1]["step"], tokens[-1], seconds, speeds, cpu_s)


# --- Eole and OpenNMT-py ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """A toolkit: its commands, the settings in which it differs from the other, and where it saves a model."""

    name: str
    trains: tuple[str, ...]
    translates: tuple[str, ...]
    settings: Callable[[dict[str, Any]], dict[str, Any]]  # of the training settings that both have
    model: str  # after so many updates
    environment: tuple[tuple[str, str], ...] = ()

    def call(self, command: tuple[str, ...], arguments: list[str], work: Work) -> str:
        folder = next(folder for folder in work.peers if (folder / command[0]).exists())
        return call(
            [str(folder / command[0]), *command[1:], *arguments], work.folder, work.environment | dict(self.environment)
        )


def eole_settings(training: dict[str, Any]) -> dict[str, Any]:
    model = {
        "architecture": "custom", "layers": 1, "hidden_size": WIDTH, "embeddings": {"word_vec_size": WIDTH},
        "encoder": {"encoder_type": "brnn", "rnn_type": "LSTM"},
        "decoder": {"decoder_type": "rnn", "rnn_type": "LSTM", "bidirectional_encoder": True},
    }  # fmt: skip
    device = {"world_size": 0, "gpu_ranks": [], "compute_dtype": "fp32"}
    return {"training": training | device | {"model_path": "eole"}, "model": model}


def onmt_settings(training: dict[str, Any]) -> dict[str, Any]:
    return training | {
        "layers": 1, "hidden_size": WIDTH, "word_vec_size": WIDTH, "encoder_type": "brnn", "decoder_type": "rnn", "rnn_type": "LSTM",
        "global_attention": "dot", "save_model": "onmt/model",
    }  # fmt: skip


PEERS = (
    Peer("eole", ("eole", "train"), ("eole", "predict", "-model_path"), eole_settings, "eole/step_{}"),
    Peer(
        "onmt", ("onmt_train",), ("onmt_translate", "-model"), onmt_settings, "onmt/model_step_{}.pt",
        (("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1"),),  # its checkpoints are older than PyTorch's default
    ),
)  # fmt: skip


def run_peer(peer: Peer, work: Work, seconds: float) -> Turn:
    pilot = train_peer(peer, work, PILOT)
    training = train_peer(peer, work, pilot.fitting(seconds))
    outputs, model = work.folder / f"{peer.name}.txt", work.folder / peer.model.format(training.updates)
    files = [str(model), "-src", str(work.folder / "valid.en"), "-output", str(outputs)]
    peer.call(peer.translates, [*files, "-beam_size", "1"], work)
    return training.after(pilot, bleu(work, outputs.read_text(encoding="utf-8").splitlines()))


def train_peer(peer: Peer, work: Work, updates: int) -> Training:
    """The model is validated and saved after the last update."""
    before = computed_seconds()
    shutil.rmtree(work.folder / peer.name, ignore_errors=True)
    splits = {"corpus_1": work.text / "train", "valid": work.folder / "valid"}
    corpora = {
        name: {"path_src": f"{path}.en", "path_tgt": f"{path}.de", "transforms": []} for name, path in splits.items()
    }
    training = {
        "train_steps": updates, "valid_steps": updates, "save_checkpoint_steps": updates,
        "batch_type": "tokens", "batch_size": TOKENS, "valid_batch_size": TOKENS, "normalization": "tokens", "optim": "adam",
        "learning_rate": RATE, "decay_method": "none", "max_grad_norm": 1.0, "dropout": [DROPOUT], "label_smoothing": 0.1,
        "num_workers": 0,
    }  # fmt: skip
    config = {
        "src_vocab": "vocab.txt", "tgt_vocab": "vocab.txt", "share_vocab": True, "save_data": f"{peer.name}-data",
        "overwrite": True, "report_every": 1, "seed": 1, "data": corpora, **peer.settings(training),
    }  # fmt: skip
    (work.folder / f"{peer.name}.yaml").write_text(json.dumps(config))  # JSON is YAML
    log = peer.call(peer.trains, ["--config", f"{peer.name}.yaml"], work)
    return peer_training(log, updates, computed_seconds() - before)


def peer_training(log: str, updates: int, cpu_s: float) -> Training:
    speeds, elapsed = figures(r"/ *([\d.]+) tok/s", log), figures(r"(\d+) sec;", log)
    (parameters,) = figures(r"\* number of parameters: (\d+)", log)
    tokens = sum(figures(r"bsz: *[\d.]+/ *([\d.]+)/", log))
    return Training(int(parameters), updates, tokens, elapsed[-1] - elapsed[0], speeds, cpu_s)


# --- the table ----------------------------------------------------------------------------------------------------


def table(turns: dict[str, list[Turn]]) -> str:
    lines = [f"{'':8}{'M parameters':>13}{'updates':>9}{'target tokens/s':>17}{'per CPU second':>16}{'BLEU':>8}"]
    for name, of in turns.items():

        def middle(figure: str, of: list[Turn] = of) -> float:
            return statistics.median(getattr(turn, figure) for turn in of)

        lines.append(
            f"{name:8}{middle('parameters') / 1e6:13.2f}{middle('updates'):9,.0f}{middle('tokens_per_s'):17,.0f}"
            f"{middle('tokens_per_cpu_s'):16,.0f}{middle('valid_bleu'):8.2f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
