"""How fast each family of models trains and translates on a device, and the Transformer with a window.

    python benchmarks/family_speed.py [--device cuda] [--families rnn gnmt] [--sizes published fitted] [--seconds 4]
    python benchmarks/family_speed.py --report            writes the table of docs/families.md from the result files

Random tokens of translation lengths (log-normal, median 25 a side). Training: forward, backward and optimizer, as `train` lays batches
out and runs them on the device; source and target tokens are counted without padding. Translation: greedy search, as many
output tokens as the source has; on a GPU by the engine that `translate` would use, on a CPU by PyTorch, where `translate` prefers CTranslate2
for a Transformer. Sizes: each family's defaults, which are the published model, and what is fitted to 29,000 pairs. Each round measures all
families in turn, so that noise of the machine hits all of them.
"""

import argparse
import json
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import numpy as np
import torch
from company import alone
from facts import write_result
from pages import families as page
from train_speed import Sentences

from transduce.config import FAMILIES, Counts, ModelConfig, SideCounts, TrainConfig, assemble, fit, merge
from transduce.data.batches import Batching, Planner
from transduce.data.pages import Paging
from transduce.device import Device, choose_device
from transduce.model import Model, Transformer, has_running_statistics, make_model, training_flops
from transduce.text import EOS
from transduce.training.optimizer import make_optimizer
from transduce.training.update import GraphedUpdate, PlainUpdate, TwinUpdate, Update
from transduce.translator.engine import SearchBlock, SearchRequest
from transduce.translator.slot_engine import SlotEngine
from transduce.translator.torch_engine import TorchEngine

IDS = {"published": 32_000, "fitted": 10_000}  # of the vocabulary
TOKENS = {"published": 25_000, "fitted": 4_096}  # target tokens of a step
POSITIONS = {"cpu": 2_048, "cuda": 131_072}  # as in transduce/training/layout.py
STEPS = {"cpu": 3, "cuda": 12}  # distinct steps that are repeated
LINES = {"cpu": 16, "cuda": 2_048}  # that are translated at once
FILES = {"cpu": "cpu", "cuda": "gpu"}
# The families that read tokens, and variants of them; speech_speed.py measures the other family.
MEASURED = [*(family for family in FAMILIES if family != "speech"), *page.VARIANTS]


def config_of(name: str, size: str) -> ModelConfig:
    family, changes = page.VARIANTS.get(name, (name, {}))
    if size == "published":
        return FAMILIES[family](family=family, **changes)
    side = SideCounts(tokens_per_line=13, distinct_tokens=10_000, characters_per_line=60)
    layer = FAMILIES[family].fitted(fit(Counts(29_000, side, side)).layer)
    return assemble(merge(layer, {"model": {"family": family, **changes}})).model


def planner_of(model: Model, device: Device, tokens: int) -> Planner[Any]:
    """The layout that `train` chooses."""
    positions = POSITIONS[device.kind]
    if device.kind == "cuda" and model.page_width:
        return Paging(tokens, positions, 1, model.page_width)
    return Batching(tokens, positions, 1)


def update_of(model: Model, device: Device, train: TrainConfig) -> Update:
    """The update that `train` chooses."""
    in_bf16 = device.kind == "cuda" and device.bf16 and not has_running_statistics(model)
    captured = model.page_width or model.captured_in_rows
    kind = (GraphedUpdate if captured else TwinUpdate) if in_bf16 else PlainUpdate
    return kind(model, make_optimizer(model, train), train, device)


def per_second(work: Callable[[int], int], seconds: float, device: Device, distinct: int = 1) -> float:
    """Units of work per second, after each of the distinct kinds of work has been done once to warm up."""
    for index in range(distinct):
        work(index)
    _wait(device)
    with alone():
        done, index, begun = 0, 0, time.perf_counter()
        while not done or time.perf_counter() - begun < seconds:
            done += work(index)
            index += 1
            if index % distinct == 0:
                _wait(device)
        _wait(device)
        return done / (time.perf_counter() - begun)


def _wait(device: Device) -> None:
    if device.kind == "cuda":
        torch.cuda.synchronize()


def training_speed(model: Model, size: str, device: Device, options: argparse.Namespace) -> dict[str, Any]:
    ids, tokens = IDS[size], options.tokens or TOKENS[size]
    sentences = Sentences(max(2_000, tokens * (STEPS[device.kind] + 2) // 20), ids)
    planner, train = planner_of(model, device, tokens), TrainConfig(clip_norm=1.0)
    update = update_of(model, device, train)
    steps = planner.plan(sentences, 0)[: STEPS[device.kind]]  # type: ignore[arg-type]
    made = [[planner.make(sentences, batch, ids - 1, ids - 1) for batch in step] for step in steps]  # type: ignore[arg-type]
    if device.kind == "cuda":
        made = [[batch.pinned() for batch in step] for step in made]
    counts = [(sum(int(b.source.real.sum()) for b in step), sum(b.tokens for b in step)) for step in made]

    def work(index: int) -> int:
        step, (source, target) = made[index % len(made)], counts[index % len(made)]
        for batch in step:
            update.add(batch, target)
        update.apply(1e-4)
        return source + target

    rate = per_second(work, options.seconds, device, STEPS[device.kind])
    source, target = (sum(count[side] for count in counts) for side in (0, 1))
    mean_length = float(np.mean(sentences.source_lengths))
    flops = training_flops(model.config, ids - 1, source, target, mean_length) / (source + target)
    return {"tokens_per_s": rate, "tflops": rate * flops / 1e12, "finite": update.measured().finite}


def translation_speed(model: Model, size: str, device: Device, options: argparse.Namespace) -> dict[str, Any]:
    ids, count = IDS[size], LINES[device.kind]
    sentences = Sentences(4 * count, ids, seed=2)
    sources = [[*map(int, sentences.source(number)), EOS] for number in range(count)]
    kind = SlotEngine if device.kind == "cuda" and device.bf16 and isinstance(model, Transformer) else TorchEngine
    engine = kind(model.eval(), device, ids - 1, ids - 1, EOS)  # type: ignore[arg-type]
    request = SearchRequest(beam=1, max_extra=0, log_probs="none")

    def work(index: int) -> int:
        (found,) = engine.stream([SearchBlock(sources, [()] * count)], request)
        return sum(len(best[0].tokens) + 1 for best in found)

    return {"tokens_per_s": per_second(work, options.seconds, device)}


def measure(family: str, size: str, device: Device, options: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(1)
    model = make_model(config_of(family, size), IDS[size], IDS[size]).to(device.torch)
    result: dict[str, Any] = {"parameters": sum(p.numel() for p in model.parameters())}
    for name, speed in (("training", training_speed), ("translation", translation_speed)):
        try:
            result[name] = speed(model, size, device, options)
        except Exception as error:  # one family that fails does not end the run
            result[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
    if device.kind == "cuda":
        result["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return result


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of all rounds, with the lowest and the highest speed; a failure if there was one."""
    found = dict(rounds[-1])
    for name in ("training", "translation"):
        failed = next((one[name] for one in rounds if "error" in one[name]), None)
        found[name] = failed or _summary([one[name] for one in rounds])
    return found


def _summary(speeds: list[dict[str, Any]]) -> dict[str, Any]:
    rates = [speed["tokens_per_s"] for speed in speeds]
    found = {"tokens_per_s": round(statistics.median(rates)), "least_most": [round(min(rates)), round(max(rates))]}
    if "tflops" in speeds[0]:
        found["tflops"] = round(statistics.median(speed["tflops"] for speed in speeds), 3)
        found["finite"] = all(speed["finite"] for speed in speeds)
    return found


def table(results: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'family':28}{'parameters':>12}{'training tokens/s':>20}{'TFLOP/s':>9}{'greedy tokens/s':>18}"]
    for name, one in results.items():
        train, greedy = one["training"], one["translation"]
        trained = f"{train['tokens_per_s']:>20,}{train['tflops']:>9}" if "tflops" in train else f"{'failed':>20}{'':9}"
        translated = f"{greedy['tokens_per_s']:>18,}" if "tokens_per_s" in greedy else f"{'failed':>18}"
        lines.append(f"{name:28}{one['parameters'] / 1e6:>10.1f} M{trained}{translated}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--families", nargs="+", default=MEASURED, choices=MEASURED)
    parser.add_argument("--sizes", nargs="+", default=["fitted", "published"], choices=list(IDS))
    parser.add_argument("--tokens", type=int, default=0, help="target tokens of a step; 0: 25,000 and 4,096")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--report", action="store_true", help="write the page, and measure nothing")
    options = parser.parse_args()
    if options.report:
        page.write_page()
    else:
        compare(options)


def compare(options: argparse.Namespace) -> None:
    """Measure all families, in rounds, and write the result file."""
    device = choose_device(options.device, threads=options.threads)
    rounds: dict[str, list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        for size in options.sizes:
            for family in options.families:
                rounds.setdefault(f"{family}, {size}", []).append(measure(family, size, device, options))
                print(f"{family}, {size}", json.dumps(rounds[f"{family}, {size}"][-1]), flush=True)
    results = {name: summary(each) for name, each in rounds.items()}
    command = f"python benchmarks/family_speed.py {shlex.join(sys.argv[1:])}"
    settings = {"steps": STEPS[device.kind], "lines": LINES[device.kind], "device": device.name}
    print(write_result(f"family-speed-{FILES[device.kind]}", command, ["torch"], settings=settings, results=results))
    print(table(results))


if __name__ == "__main__":
    main()
