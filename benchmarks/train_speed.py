"""How fast a GPU trains: ours beside its peers, on the same sentences, in one run.

    python benchmarks/train_speed.py [--cases base big tiny] [--systems ours "HF MarianMT"]

Random tokens of translation lengths (log-normal, median 25 a side), real target tokens counted, forward + backward +
optimizer, dropout .1. The share of the hardware (MFU) counts 6 operations per weight and token, of 790 TFLOP/s.
"""

import argparse
import json
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from facts import write_result

from transduce.config import TrainConfig, TransformerConfig
from transduce.data.batches import Batch, make_batch
from transduce.data.packing import Widths, pages_of_epoch
from transduce.data.pages import make_pages
from transduce.device import choose_device
from transduce.model import IGNORED, Tokens, Transformer
from transduce.model.cost import weights_per_token
from transduce.model.losses import smoothed_loss
from transduce.model.positions import sinusoids
from transduce.training.optimizer import make_optimizer
from transduce.training.update import GraphedUpdate

PEAK = 790e12
BASE = TransformerConfig()
BIG = TransformerConfig(d_model=1024, d_ff=4096, num_heads=16, dropout=0.1)
TINY = TransformerConfig(d_model=128, d_ff=256, num_heads=4, num_encoder_layers=4, num_decoder_layers=4)


@dataclass(frozen=True)
class Case:
    """A model, the ids it knows and the target tokens of a step."""

    name: str
    config: TransformerConfig
    ids: int
    tokens: int


CASES = {
    "base": Case("base, 25.6k tokens a step", BASE, 32_768, 25_600),
    "base-pre": Case("base pre-norm, 25.6k", TransformerConfig(norm="pre"), 32_768, 25_600),
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

    def source(self, index: int) -> np.ndarray:
        return self._random(int(self.source_lengths[index]))

    def target(self, index: int) -> np.ndarray:
        return self._random(int(self.target_lengths[index]))

    def sources(self, numbers: np.ndarray) -> np.ndarray:
        return self._random(int(self.source_lengths[numbers].sum()))

    def targets(self, numbers: np.ndarray) -> np.ndarray:
        return self._random(int(self.target_lengths[numbers].sum()))

    def _random(self, count: int) -> np.ndarray:
        """Frequent ids first, about as words are."""
        return 2 + ((self.ids - 4) * self.draw.random(count) ** 3).astype(np.int32)


@dataclass(frozen=True)
class Work:
    """The same sentences as pages, and padded in a few batches of similar lengths."""

    pages: list[Batch]
    padded: list[list[Batch]]
    source_tokens: int  # of a step, in the mean
    target_tokens: int


BUCKETS = 4  # padded batches a step: of similar lengths, as trainers that pad do


def make_work(case: Case, steps: int) -> Work:
    sentences = Sentences(max(20_000, case.tokens * (steps + 3) // 25), case.ids)
    source, target = sentences.source_lengths, sentences.target_lengths
    widths = Widths.fitting(int(source.sum()), int(target.sum()))
    plan = pages_of_epoch(source, target, np.arange(len(source)), case.tokens, widths, np.random.default_rng(1))
    full = [pages for pages in plan if len(pages.counts) == pages.rows][:steps]
    pad = case.ids - 1
    return Work(
        pages=[make_pages(sentences, pages, pad, pad).pinned() for pages in full],  # type: ignore[arg-type]
        padded=[padded(sentences, pages.pairs, pad) for pages in full],
        source_tokens=int(statistics.mean(source[pages.pairs].sum() for pages in full)),
        target_tokens=int(statistics.mean(target[pages.pairs].sum() for pages in full)),
    )


def padded(sentences: Sentences, pairs: np.ndarray, pad: int) -> list[Batch]:
    by_length = pairs[np.lexsort((sentences.source_lengths[pairs], sentences.target_lengths[pairs]))]
    return [make_batch(sentences, part, pad, pad).to("cuda") for part in np.array_split(by_length, BUCKETS)]  # type: ignore[arg-type]


def timed(steps: dict[str, Callable[[int], None]], count: int, rounds: int) -> dict[str, list[float]]:
    """Seconds a step of every system, alternating; one figure a round."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 1):  # the first is for warming up
        for name, step in steps.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for index in range(count if number else 3):
                step(index % count)
            torch.cuda.synchronize()
            if number:
                seconds[name].append((time.perf_counter() - begin) / count)
    return seconds


def our_step(case: Case, work: Work) -> Callable[[int], None]:
    torch.manual_seed(1)
    model = Transformer(case.config, case.ids, case.ids).cuda().train()
    config = TrainConfig(clip_norm=1.0)
    update = GraphedUpdate(model, make_optimizer(model, config), config, choose_device("cuda"))

    def step(index: int) -> None:
        update.add(work.pages[index], work.target_tokens)
        update.apply(1e-4)

    return step


def marian(case: Case) -> Any:
    """HF's model of the same shape."""
    from transformers import MarianConfig, MarianMTModel

    c = case.config
    config = MarianConfig(
        vocab_size=case.ids, d_model=c.d_model, encoder_layers=c.num_encoder_layers, decoder_layers=c.num_decoder_layers,
        encoder_attention_heads=c.num_heads, decoder_attention_heads=c.num_heads, encoder_ffn_dim=c.d_ff,
        decoder_ffn_dim=c.d_ff, dropout=c.dropout, attention_dropout=0.0, activation_dropout=0.0,
        activation_function="relu", scale_embedding=True, share_encoder_decoder_embeddings=True,
        pad_token_id=case.ids - 1, decoder_start_token_id=case.ids - 1, eos_token_id=0, forced_eos_token_id=None,
        max_position_embeddings=512, use_cache=False,
    )  # fmt: skip
    return MarianMTModel(config)


def hf_step(case: Case, work: Work, compiled: bool) -> Callable[[int], None]:
    model = marian(case).cuda().train()
    forward = torch.compile(model, dynamic=True) if compiled else model

    def loss(batch: Batch) -> torch.Tensor:
        logits = forward(
            input_ids=batch.source.ids, attention_mask=batch.source.real.long(), decoder_input_ids=batch.target.ids
        ).logits
        return smoothed_loss(logits, batch.labels, 0.1)

    return padded_step(model, loss, work)


def torch_step(case: Case, work: Work) -> Callable[[int], None]:
    """`torch.nn.Transformer` with tied embeddings, as its tutorial has it."""
    c = case.config
    table = torch.nn.Embedding(case.ids, c.d_model).cuda()
    torch.nn.init.normal_(table.weight, std=c.d_model**-0.5)
    body = torch.nn.Transformer(
        c.d_model, c.num_heads, c.num_encoder_layers, c.num_decoder_layers, c.d_ff, c.dropout, batch_first=True
    ).cuda()
    positions = sinusoids(torch.arange(512), c.d_model).cuda()

    def embed(tokens: Tokens) -> torch.Tensor:
        return torch.nn.functional.dropout(table(tokens.ids) * c.d_model**0.5 + positions[tokens.position], c.dropout)

    def loss(batch: Batch) -> torch.Tensor:
        width = batch.target.width
        causal = torch.ones(width, width, dtype=torch.bool, device="cuda").triu(1)
        hidden = body(
            embed(batch.source), embed(batch.target), tgt_mask=causal, src_key_padding_mask=~batch.source.real,
            tgt_key_padding_mask=~batch.target.real, memory_key_padding_mask=~batch.source.real, tgt_is_causal=True,
        )  # fmt: skip
        return smoothed_loss(hidden @ table.weight.T, batch.labels, 0.1)

    return padded_step(torch.nn.ModuleList([table, body]), loss, work)


def joey_step(case: Case, work: Work) -> Callable[[int], None]:
    """JoeyNMT's model and loss. Without its many dependencies: `pip install --target FOLDER --no-deps joeynmt importlib_metadata
    zipp subword-nmt sacremoses`, and FOLDER on PYTHONPATH."""
    from joeynmt.model import build_model

    c = case.config
    stack = {
        "type": "transformer", "num_layers": c.num_encoder_layers, "num_heads": c.num_heads, "hidden_size": c.d_model,
        "ff_size": c.d_ff, "dropout": c.dropout, "layer_norm": "post",
        "embeddings": {"embedding_dim": c.d_model, "scale": True, "dropout": c.dropout},
    }  # fmt: skip
    ids, pad = JoeyIds(case.ids), case.ids - 1
    stacks = {"encoder": stack, "decoder": stack, "tied_embeddings": True, "tied_softmax": True}
    model = build_model(stacks, ids, ids).cuda().train()
    model.loss_function = "crossentropy", 0.1

    def loss(batch: Batch) -> torch.Tensor:
        labels = batch.labels.long()
        asked: torch.Tensor = model(
            return_type="loss", src=batch.source.ids, src_mask=batch.source.real[:, None],
            src_length=batch.source.real.sum(1), trg_input=batch.target.ids, trg_mask=batch.target.real[:, None],
            trg=labels.masked_fill(labels == IGNORED, pad),
        )[0]  # fmt: skip
        return asked

    return padded_step(model, loss, work)


class JoeyIds:
    """What JoeyNMT's model asks of a vocabulary."""

    specials, lang_tags = (), ()
    sep_index, unk_index, eos_index = None, 1, 0

    def __init__(self, size: int) -> None:
        self.size, self.pad_index, self.bos_index = size, size - 1, size - 1

    def __len__(self) -> int:
        return self.size


def padded_step(model: torch.nn.Module, loss: Callable[[Batch], torch.Tensor], work: Work) -> Callable[[int], None]:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step(index: int) -> None:
        for batch in work.padded[index]:
            with torch.autocast("cuda", torch.bfloat16):
                value = loss(batch)
            (value / work.target_tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


SYSTEMS: dict[str, Callable[[Case, Work], Callable[[int], None]]] = {
    "ours": our_step,
    "HF MarianMT": lambda case, work: hf_step(case, work, compiled=False),
    "HF MarianMT, compiled": lambda case, work: hf_step(case, work, compiled=True),
    "torch.nn.Transformer": torch_step,
    "JoeyNMT": joey_step,
}


def measure(case: Case, systems: list[str], count: int, rounds: int) -> dict[str, Any]:
    work = make_work(case, count)
    steps, ready = {}, {}
    for name in systems:
        begin = time.perf_counter()
        try:
            steps[name] = SYSTEMS[name](case, work)
            steps[name](0)
        except Exception as error:  # a peer that does not run is said, and does not end the run
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            steps.pop(name, None)
            continue
        torch.cuda.synchronize()
        ready[name] = round(time.perf_counter() - begin, 1)
    seconds = timed(steps, count, rounds)
    per_token = flops_per_target_token(case, work.source_tokens, work.target_tokens)
    report: dict[str, Any] = {"mflop_per_target_token": round(per_token / 1e6, 1), "systems": {}}
    for name in steps:
        rates = sorted(work.target_tokens / s for s in seconds[name])
        ratios = sorted(theirs / mine for mine, theirs in zip(seconds["ours"], seconds[name], strict=True))
        batches = work.pages if name == "ours" else [batch for step in work.padded for batch in step]
        report["systems"][name] = {
            "target_tokens_per_s": round(statistics.median(rates)),
            "least_most": [round(rates[0]), round(rates[-1])],
            "mfu": round(statistics.median(rates) * per_token / PEAK, 3),
            "ours_over_it": [round(statistics.median(ratios), 2), round(ratios[0], 2), round(ratios[-1], 2)],
            "padding": round(statistics.mean(batch.padding for batch in batches), 3),
            "first_step_s": ready[name],
        }
    report["ours_by_part_ms"] = profile(steps["ours"], 4)
    return report


def flops_per_target_token(case: Case, source_tokens: int, target_tokens: int) -> float:
    source, target = weights_per_token(case.config, case.ids)
    return 6 * (source * source_tokens / target_tokens + target)


LONG_MS = 0.1
PARTS = {  # of a kernel's name
    "attention": ("_attend_", "fmha", "flash", "sdpa", "cudnn_generated"),
    "residual": ("_residual_", "layer_norm"),
    "products": ("gemm", "nvjet", "cutlass", "xmma", "matmul", "splitK", "cublas"),
    "loss": ("_to_gradient",),
    "relu": ("_cut_product",),
    "embedding": ("embedding", "indexSelect", "index_select", "radix", "Sort", "sort", "index_elementwise", "gather"),
    "optimizer": ("Adam", "adam", "multi_tensor", "foreach", "lpnorm", "Lerp"),
}


def profile(step: Callable[[int], None], steps: int) -> dict[str, float]:
    """Milliseconds a step in each part, largest first; what has no part of its own by the kernel's name, if it takes long."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for index in range(steps):
            step(index)
        torch.cuda.synchronize()
    parts: dict[str, float] = {}
    for event in seen.key_averages():
        ms = event.device_time_total / 1e3 / steps
        named = next((p for p, words in PARTS.items() if any(w in event.key for w in words)), "")
        part = named or (f"other: {event.key[:100]}" if ms > LONG_MS else "other")
        parts[part] = parts.get(part, 0.0) + ms
    return {name: round(ms, 3) for name, ms in sorted(parts.items(), key=lambda item: -item[1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--systems", nargs="+", default=["ours", "HF MarianMT", "torch.nn.Transformer"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    results = {}
    for name in arguments.cases:
        results[CASES[name].name] = measure(CASES[name], arguments.systems, arguments.steps, arguments.rounds)
        print(CASES[name].name, json.dumps(results[CASES[name].name]), flush=True)
        torch.cuda.empty_cache()
    command = f"python benchmarks/train_speed.py {shlex.join(sys.argv[1:])}"
    settings = {
        "rounds": arguments.rounds,
        "steps": arguments.steps,
        "buckets": BUCKETS,
        "device": torch.cuda.get_device_name(),
    }
    packages = ["torch", "triton", "transformers"]
    print(write_result("train-speed-gpu", command, packages, settings=settings, results=results))
    print(table(results))


def table(results: dict[str, Any]) -> str:
    lines = []
    for case, report in results.items():
        for name, one in report["systems"].items():
            ratio, least, most = one["ours_over_it"]
            lines.append(
                f"{case if name == 'ours' else '':34}{name:24}{one['target_tokens_per_s']:>11,} tokens/s {one['mfu']:6.1%} "
                f"padding {one['padding']:.1%}  ours is {ratio:.2f}x ({least:.2f}-{most:.2f})"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
