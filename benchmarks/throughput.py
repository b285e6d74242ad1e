"""Training and translation beside HF MarianMT of the same size, in one process, taking turns.

    python benchmarks/throughput.py [--data FOLDER] [--quick]

About seven minutes on two cores; a GPU is used where there is one. Needs the extras of development.
training     forward, backward and AdamW (fused) of post-norm 3+3 layers, dropout .1, 8,000 ids, eager on both sides.
             `hf` sees the very same batches, `hf, file order` as many sentences a batch in the order of the file.
             Ours has label smoothing .1; HF Marian's own loss is plain cross-entropy. Tokens are real target tokens.
translation  one briefly trained model, its weights copied into HF: ids in, ids out, weights and outputs the same.
             `hf` generates 32 sentences at a time in the order of the file, `hf, sorted` longest first.
             In beam search HF stops by its default rule, which may stop before the best is found; ours is exact.
Speeds are medians over the turns; each ratio is that of one turn to the other's beside it.
Writes benchmarks/results/throughput.json.
"""

import argparse
import itertools
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # what the command line sets; here it holds for both
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import numpy as np
import torch
import transformers  # noqa: F401 - a clear error at once where it is missing
from facts import default_data, write_result

from transduce.config import ModelConfig
from transduce.data.batches import Batch, Batching, make_batch
from transduce.device import Device, choose_device
from transduce.model import Tokens, Transformer
from transduce.text import EOS, train_vocabulary
from transduce.training.loop import PLACES
from transduce.training.loss import batch_loss
from transduce.translator import Request
from transduce.translator.torch_engine import TorchEngine

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
from test_hf_oracle import as_hf  # noqa: E402  the copying that the tests prove

SIZES = {
    "tiny": ModelConfig(d_model=128, d_ff=512, num_heads=4, num_encoder_layers=3, num_decoder_layers=3),
    "small": ModelConfig(d_model=256, d_ff=1024, num_heads=4, num_encoder_layers=3, num_decoder_layers=3),
}
VOCABULARY = 8_000
HF_SENTENCES = 32  # a call of `generate`
MAX_EXTRA = 50

Outputs = list[list[int]]


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    batches: int  # of a turn of training
    repeats: int
    steps: int  # of training before translation
    greedy_lines: int
    beam_lines: int


FULL = Effort(batches=4, repeats=4, steps=150, greedy_lines=1_000, beam_lines=128)
QUICK = Effort(batches=2, repeats=2, steps=5, greedy_lines=20, beam_lines=10)


class Pairs:
    """Ids in memory, as `Batching` wants them."""

    def __init__(self, sources: Outputs, targets: Outputs, size: int) -> None:
        self.sources, self.targets, self.size = sources, targets, size
        self.source_lengths = np.array([len(ids) for ids in sources], np.int32)
        self.target_lengths = np.array([len(ids) for ids in targets], np.int32)

    def source(self, index: int) -> np.ndarray:
        return np.array(self.sources[index])

    def target(self, index: int) -> np.ndarray:
        return np.array(self.targets[index])


@dataclass(frozen=True)
class Data:
    """What is learned from, what is translated, and what to call it."""

    train: Pairs
    test: Outputs
    name: str


def main() -> None:
    arguments = parse_arguments()
    effort = QUICK if arguments.quick else FULL
    load = os.getloadavg()[0]
    device = choose_device()
    data = multi30k(arguments.data / "multi30k") or made_up()
    say(f"{data.name}; {device.name}; load {load:.1f}")
    models = {name: make_model(config, data.train.size, device) for name, config in SIZES.items()}
    results = {f"training, {name}": training(model, data, device, effort) for name, model in models.items()}
    train_on(models["small"], data, device, effort.steps)
    engine = TorchEngine(models["small"], device, data.train.size - 1, data.train.size - 1, EOS)
    results["greedy, small"] = translation(engine, data.test[: effort.greedy_lines], 1, effort.repeats - 1)
    results["beam 4, small"] = translation(engine, data.test[: effort.beam_lines], 4, effort.repeats - 1)
    if not arguments.quick:
        write(results, data, device, effort, load)
    print(table(results))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data(), help="folder that holds multi30k/")
    parser.add_argument("--quick", action="store_true", help="seconds, to see that it runs; writes nothing")
    return parser.parse_args()


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# --- data ------------------------------------------------------------------------------------------------------


def multi30k(folder: Path) -> Data | None:
    if not folder.is_dir():
        return None
    source, target, test = (
        (folder / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        for name in ("train.en", "train.de", "test_2016_flickr.en")
    )
    vocabulary = train_vocabulary([*source, *target], units="bpe", size=VOCABULARY)
    pairs = Pairs(vocabulary.encode(source), vocabulary.encode(target), vocabulary.size)
    return Data(pairs, vocabulary.encode(test), "Multi30k en-de, test_2016_flickr")


def made_up() -> Data:
    """Random ids of about Multi30k's lengths, frequent ones first; targets are their sources shifted by one."""
    draw = random.Random(1)

    def sentence() -> list[int]:
        length = min(40, max(3, round(draw.lognormvariate(2.6, 0.3))))
        return [2 + int((VOCABULARY - 4) * draw.random() ** 4) for _ in range(length)]

    sources = [sentence() for _ in range(21_000)]
    targets = [[*(n + 1 for n in ids), EOS] for ids in sources]
    sources = [[*ids, EOS] for ids in sources]
    return Data(Pairs(sources[1_000:], targets[1_000:], VOCABULARY), sources[:1_000], "random ids, lengths of Multi30k")


# --- taking turns ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turns:
    """Seconds of every turn, and what the last one gave."""

    seconds: list[float]
    outputs: Outputs


def take_turns(systems: dict[str, Callable[[], Outputs]], repeats: int) -> dict[str, Turns]:
    """Every system once a round, each round beginning with another; warm them up before."""
    names, seconds, outputs = list(systems), {name: [] for name in systems}, {}
    for number in range(repeats):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            begin = time.perf_counter()
            outputs[name] = systems[name]()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - begin)
    return {name: Turns(seconds[name], outputs[name]) for name in names}


def speeds(turns: dict[str, Turns], amounts: dict[str, dict[str, int]]) -> dict[str, Any]:
    """Amounts a second of every system, and how many times faster ours was in each turn."""
    unit = next(iter(amounts["ours"]))
    rates = {name: [amounts[name][unit] / s for s in turns[name].seconds] for name in turns}
    report: dict[str, Any] = {"systems": {}, "ours_over": {}}
    for name, one in turns.items():
        middle = statistics.median(one.seconds)
        each = {f"{what}_per_s": round(amount / middle, 1) for what, amount in amounts[name].items()}
        report["systems"][name] = each | amounts[name] | {"seconds": [round(s, 3) for s in one.seconds]}
        if name != "ours":
            ratios = sorted(ours / theirs for ours, theirs in zip(rates["ours"], rates[name], strict=True))
            report["ours_over"][name] = {
                "median": round(statistics.median(ratios), 2),
                "least": round(ratios[0], 2),
                "most": round(ratios[-1], 2),
            }
    return report


# --- training --------------------------------------------------------------------------------------------------


def make_model(config: ModelConfig, size: int, device: Device) -> Transformer:
    torch.manual_seed(1)
    return Transformer(config, size, size).to(device.torch)


def training(model: Transformer, data: Data, device: Device, effort: Effort) -> dict[str, Any]:
    say(f"training, d_model {model.config.d_model} ...")
    like_ours = first_batches(data.train, device, effort.batches)
    sentences = round(statistics.mean(len(batch.labels) for batch in like_ours))
    numbers = np.arange(effort.batches * sentences).reshape(effort.batches, sentences) % len(data.train.sources)
    in_file_order = [make_batch(data.train, row, data.train.size - 1, data.train.size - 1) for row in numbers]
    in_file_order = [batch.to(device.torch) for batch in in_file_order]
    turns = take_turns(
        {
            "ours": our_training(model, like_ours, device),
            "hf": hf_training(model, like_ours, device),
            "hf, file order": hf_training(model, in_file_order, device),
        },
        effort.repeats,
    )
    batches = {"ours": like_ours, "hf": like_ours, "hf, file order": in_file_order}
    report = speeds(turns, {name: {"target_tokens": sum(b.tokens for b in batches[name])} for name in turns})
    for name in turns:
        report["systems"][name]["padding"] = round(statistics.mean(batch.padding for batch in batches[name]), 3)
    return report | {"batches": effort.batches, "sentences_per_batch": sentences}


def first_batches(pairs: Pairs, device: Device, count: int) -> list[Batch]:
    """Of random epochs, as the training loop would see them; each is an optimizer step here."""
    places = PLACES[device.kind]
    batching = Batching(tokens_per_batch=places, places=places, seed=1)
    steps = itertools.chain.from_iterable(batching.plan(pairs, epoch) for epoch in itertools.count())
    chosen = itertools.islice(itertools.chain.from_iterable(steps), count)
    return [make_batch(pairs, numbers, pairs.size - 1, pairs.size - 1).to(device.torch) for numbers in chosen]


def our_training(model: Transformer, batches: list[Batch], device: Device) -> Callable[[], Outputs]:
    def loss(batch: Batch) -> torch.Tensor:
        return batch_loss(model, batch, smoothing=0.1) / batch.tokens

    return updates(model, loss, batches, device)


def hf_training(model: Transformer, batches: list[Batch], device: Device) -> Callable[[], Outputs]:
    theirs = as_hf(model).to(device.torch)

    def loss(batch: Batch) -> torch.Tensor:
        return theirs(input_ids=batch.source.ids, attention_mask=batch.source.segment, labels=batch.labels).loss

    return updates(theirs, loss, batches, device)


def updates(
    model: torch.nn.Module, loss: Callable[[Batch], torch.Tensor], batches: list[Batch], device: Device
) -> Callable[[], Outputs]:
    """A turn of training, warmed up by a batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    def update(batch: Batch) -> None:
        with device.mixed_precision():
            value = loss(batch)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()

    def turn() -> Outputs:
        model.train()
        for batch in batches:
            update(batch)
        return []

    model.train()
    update(batches[0])
    return turn


def train_on(model: Transformer, data: Data, device: Device, steps: int) -> None:
    """Enough for most outputs to end: what a random model says runs into the limit."""
    say(f"training, d_model {model.config.d_model}, {steps} more steps ...")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), fused=True)
    model.train()
    for step, batch in enumerate(first_batches(data.train, device, steps)):
        optimizer.param_groups[0]["lr"] = 1e-3 * min((step + 1) / 50, 1)
        with device.mixed_precision():
            loss = batch_loss(model, batch, smoothing=0.1) / batch.tokens
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    say(f"loss {float(loss.detach()):.2f}")


# --- translation -----------------------------------------------------------------------------------------------


def translation(engine: TorchEngine, sources: Outputs, beam: int, repeats: int) -> dict[str, Any]:
    say(f"translating {len(sources)} lines, d_model {engine.model.config.d_model}, beam {beam} ...")
    theirs = as_hf(engine.model).to(engine.device.torch)
    longest_first = sorted(sources, key=len, reverse=True)
    our_translation(engine, sources[:HF_SENTENCES], beam)
    hf_translation(theirs, sources[:HF_SENTENCES], beam, engine.device)
    turns = take_turns(
        {
            "ours": lambda: our_translation(engine, sources, beam),
            "hf": lambda: hf_translation(theirs, sources, beam, engine.device),
            "hf, sorted": lambda: hf_translation(theirs, longest_first, beam, engine.device),
        },
        repeats,
    )
    ours, hf = turns["ours"].outputs, turns["hf"].outputs
    amounts = {
        name: {"sentences": len(sources), "output_tokens": sum(len(ids) + 1 for ids in one.outputs)}
        for name, one in turns.items()
    }
    ended = [len(one) + 1 < len(source) + MAX_EXTRA for source, one in zip(sources, ours, strict=True)]
    equal = [one == other for one, other, whole in zip(ours, hf, ended, strict=True) if whole]
    return speeds(turns, amounts) | {
        "lines": len(sources),
        "ended_before_the_limit": round(statistics.mean(ended), 3),
        "of_these_equal": round(statistics.mean(equal), 3),
    }


def our_translation(engine: TorchEngine, sources: Outputs, beam: int) -> Outputs:
    request = Request(beam=beam, alpha=0.6, length_penalty="power", max_extra=MAX_EXTRA)
    return [found[0].tokens for found in engine.search(sources, [[]] * len(sources), request)]


def hf_translation(theirs: Any, sources: Outputs, beam: int, device: Device) -> Outputs:
    """Without `</s>` and all after it; one limit a batch, as `generate` has it."""
    found: Outputs = []
    searching = {"num_beams": beam, "length_penalty": 0.6} if beam > 1 else {"num_beams": 1}
    for begin in range(0, len(sources), HF_SENTENCES):
        asked = Tokens.padded(sources[begin : begin + HF_SENTENCES], theirs.config.pad_token_id).to(device.torch)
        with device.mixed_precision():
            generated = theirs.generate(
                input_ids=asked.ids,
                attention_mask=asked.real.long(),
                do_sample=False,
                max_new_tokens=asked.width + MAX_EXTRA,
                **searching,
            )
        rows = [row[1:] for row in generated.tolist()]
        found += [row[: row.index(EOS)] if EOS in row else row for row in rows]
    return found


# --- the record ------------------------------------------------------------------------------------------------


def write(results: dict[str, Any], data: Data, device: Device, effort: Effort, load: float) -> None:
    settings = {
        "repeats": effort.repeats,
        "training_steps_before_translation": effort.steps,
        "hf_attention": as_hf(Transformer(SIZES["tiny"], 10, 10)).config._attn_implementation,
        "hf_sentences_per_call": HF_SENTENCES,
        "length_penalty": "n^0.6",
        "precision": "bfloat16 products" if device.bf16 else "float32",
        "load_at_start": round(load, 2),
    }
    name = "throughput" if device.kind == "cpu" else f"throughput-{device.kind}"
    packages = ["torch", "transformers"]
    command = "python benchmarks/throughput.py"
    print(write_result(name, command, packages, data=data.name, settings=settings, results=results))


def table(results: dict[str, Any]) -> str:
    lines = [f"{'':20}{'':16}{'a second':>28}   ours is faster (least - most)"]
    for job, report in results.items():
        for name, one in report["systems"].items():
            each = ", ".join(f"{one[key]:,.0f} {key[: -len('_per_s')]}" for key in one if key.endswith("_per_s"))
            ratio = report["ours_over"].get(name)
            faster = f"{ratio['median']:.2f}x ({ratio['least']:.2f} - {ratio['most']:.2f})" if ratio else ""
            lines.append(f"{job if name == 'ours' else '':20}{name:16}{each:>28}   {faster}".rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    main()
