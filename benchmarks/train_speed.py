"""How fast a GPU trains: ours beside its peers, on the same sentences, in one run.

    python benchmarks/train_speed.py [--quick] [--models base big tiny] [--peers] [--output FILE]

Random tokens of translation lengths (log-normal, median 25 a side), real target tokens counted, forward + backward +
optimizer, dropout .1. The share of the hardware (MFU) counts 6 operations per weight and token, of 790 TFLOP/s.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from transduce.config import ModelConfig, TrainConfig
from transduce.data.batches import Batch
from transduce.data.packing import Widths, pages_of_epoch
from transduce.data.pages import make_pages
from transduce.device import choose_device
from transduce.model import Transformer
from transduce.training.cost import weights_met
from transduce.training.optimizer import make_optimizer
from transduce.training.update import GraphedUpdate

PEAK = 790e12
BASE = ModelConfig()
BIG = ModelConfig(d_model=1024, d_ff=4096, num_heads=16, dropout=0.1)
TINY = ModelConfig(d_model=128, d_ff=256, num_heads=4, num_encoder_layers=4, num_decoder_layers=4)


@dataclass(frozen=True)
class Case:
    """A model, the ids it knows and the target tokens of a step."""

    name: str
    config: ModelConfig
    ids: int
    tokens: int


CASES = {
    "base": Case("base, 25.6k tokens a step", BASE, 32_768, 25_600),
    "base-pre": Case("base pre-norm, 25.6k", ModelConfig(norm="pre"), 32_768, 25_600),
    "base-large": Case("base, 102k tokens a step", BASE, 32_768, 102_400),
    "big": Case("big, 25.6k tokens a step", BIG, 32_768, 25_600),
    "big-large": Case("big, 51k tokens a step", BIG, 32_768, 51_200),
    "tiny": Case("tiny 4+4 128/256, V=10k, 12.8k", TINY, 10_000, 12_800),
    "tiny-large": Case("tiny 4+4 128/256, V=10k, 51k", TINY, 10_000, 51_200),
}


class Sentences:
    """Random ids of translation lengths."""

    def __init__(self, count: int, ids: int, median: float = 25.0, seed: int = 1) -> None:
        draw = np.random.default_rng(seed)
        target = np.round(median * np.exp(0.6 * draw.standard_normal(count)))
        source = np.round(target * np.exp(0.2 * draw.standard_normal(count)))
        fits = (target <= 128) & (source <= 128) & (target >= 1) & (source >= 1)
        self.source_lengths = source[fits].astype(np.int32)
        self.target_lengths = target[fits].astype(np.int32)
        self.ids, self.draw = ids, draw

    def sources(self, numbers: np.ndarray) -> np.ndarray:
        return self._random(int(self.source_lengths[numbers].sum()))

    def targets(self, numbers: np.ndarray) -> np.ndarray:
        return self._random(int(self.target_lengths[numbers].sum()))

    def _random(self, count: int) -> np.ndarray:
        """Frequent ids first, about as words are."""
        return 2 + ((self.ids - 4) * self.draw.random(count) ** 3).astype(np.int32)


def page_batches(case: Case, count: int) -> Iterator[Batch]:
    sentences = Sentences(max(20_000, case.tokens * (count + 2) // 25), case.ids)
    widths = Widths.fitting(int(sentences.source_lengths.sum()), int(sentences.target_lengths.sum()))
    every = np.arange(len(sentences.source_lengths))
    plan = pages_of_epoch(
        sentences.source_lengths, sentences.target_lengths, every, case.tokens, widths, np.random.default_rng(1)
    )
    for pages in [page for page in plan if len(page.counts) == page.rows][:count]:
        yield make_pages(sentences, pages, case.ids - 1, case.ids - 1)  # type: ignore[arg-type]


def timed(step: Callable[[Batch], None], batches: list[Batch], rounds: int) -> list[float]:
    """Seconds a batch, one figure a round."""
    for batch in batches[:3]:
        step(batch)
    seconds = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for batch in batches:
            step(batch)
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - begin) / len(batches))
    return seconds


def flops_per_target_token(case: Case, source_tokens: int, target_tokens: int) -> float:
    source, target = weights_met(case.config, case.ids)
    return 6 * (source * source_tokens / target_tokens + target)


def ours(case: Case, batches: list[Batch], rounds: int, clip: float = 1.0) -> dict[str, Any]:
    torch.manual_seed(1)
    begin = time.perf_counter()
    device = choose_device("cuda")
    model = Transformer(case.config, case.ids, case.ids).cuda().train()
    config = TrainConfig(clip_norm=clip)
    update = GraphedUpdate(model, make_optimizer(model, config), config, device)
    tokens = [batch.tokens for batch in batches]

    def step(batch: Batch) -> None:
        update.add(batch, 25_000)
        update.apply(1e-4)

    step(batches[0])
    torch.cuda.synchronize()
    first = time.perf_counter() - begin
    seconds = timed(step, batches, rounds)
    parts = profile(step, batches[:4])
    measured = update.measured()
    return report(case, batches, tokens, seconds) | {
        "first_step_s": round(first, 1),
        "parts_ms": parts,
        "loss_finite": math.isfinite(measured.loss) and measured.finite,
        "memory_gb": round(torch.cuda.max_memory_allocated() / 1e9, 1),
    }


def report(case: Case, batches: list[Batch], tokens: list[int], seconds: list[float]) -> dict[str, Any]:
    mean, source = statistics.mean(tokens), statistics.mean(int(b.source.real.sum()) for b in batches)
    rates = [mean / s for s in seconds]
    middle = statistics.median(rates)
    per_token = flops_per_target_token(case, int(source), int(mean))
    return {
        "target_tokens_per_s": round(middle),
        "least": round(min(rates)),
        "most": round(max(rates)),
        "step_ms": round(1e3 * statistics.median(seconds), 2),
        "mfu": round(middle * per_token / PEAK, 3),
        "mflop_per_target_token": round(per_token / 1e6, 1),
        "padding": round(statistics.mean(b.padding for b in batches), 3),
    }


PARTS = {  # of a kernel's name
    "attention": ("_attend_", "fmha", "flash", "sdpa", "cudnn_generated"),
    "residual": ("_residual_", "layer_norm"),
    "products": ("gemm", "nvjet", "cutlass", "xmma", "matmul", "splitK", "cublas"),
    "loss": ("_to_gradient",),
    "relu": ("_cut_product",),
    "embedding": ("embedding", "indexSelect", "index_select", "radix", "Sort", "sort", "index_elementwise", "gather"),
    "optimizer": ("Adam", "adam", "multi_tensor", "foreach", "lpnorm", "Lerp"),
}


def profile(step: Callable[[Batch], None], batches: list[Batch]) -> dict[str, float]:
    """Milliseconds a step in each part, and the largest kernels of the rest."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for batch in batches:
            step(batch)
        torch.cuda.synchronize()
    parts: dict[str, float] = {}
    for event in seen.key_averages():
        spent = event.device_time_total / 1e3 / len(batches)
        name = event.key
        part = next((p for p, words in PARTS.items() if any(w in name for w in words)), f"other: {name[:110]}")
        parts[part] = parts.get(part, 0.0) + spent
    return {name: round(ms, 3) for name, ms in sorted(parts.items(), key=lambda item: -item[1])[:25]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--output", default="")
    arguments = parser.parse_args()
    results = {}
    for name in arguments.models:
        case = CASES[name]
        batches = list(page_batches(case, arguments.batches))
        results[case.name] = ours(case, batches, arguments.rounds)
        print(case.name, json.dumps(results[case.name], indent=1), flush=True)
        torch.cuda.empty_cache()
    if arguments.output:
        with open(arguments.output, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
