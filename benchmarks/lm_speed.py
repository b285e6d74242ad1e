"""Training speed of language models: ours beside a plain GPT-2 of the same size, compiled.

    python benchmarks/lm_speed.py --name lm-speed          on a GPU, under four minutes
    python benchmarks/lm_speed.py --device cpu             toy sizes, to see that everything runs

Sizes: nanoGPT's example (6 x 384, a context of 256) and GPT-2 small (12 x 768, a context of 1,024, 50,304 ids). All models
train in bfloat16 with AdamW on the same number of random tokens a step. Ours is `GraphedUpdate` as `train` runs it, with
positions that are added and with rotary ones, which `train --text` fits; the other is written here in plain PyTorch as GPT-2 is
described (pre-norm, GELU, learned positions), under `torch.compile` and autocast, with the fused AdamW. All take turns; a
ratio is the median over the rounds, with the smallest and the largest.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from facts import write_result
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from transduce.config import DecoderConfig, TrainConfig
from transduce.data.batches import Batch
from transduce.device import Device
from transduce.model import Sequences, Tokens, make_model
from transduce.training.optimizer import make_optimizer
from transduce.training.update import GraphedUpdate, PlainUpdate

Step = Callable[[], None]
OTHER = "GPT-2 (torch.compile)"


@dataclass(frozen=True)
class Size:
    """The shape of a model, and the rows of a step."""

    name: str
    layers: int
    width: int
    heads: int
    context: int
    ids: int
    rows: int
    dropout: float


SIZES = {
    "cuda": [Size("6x384", 6, 384, 6, 256, 66, 64, 0.2), Size("124M", 12, 768, 12, 1_024, 50_304, 16, 0.0)],
    "cpu": [Size("toy", 2, 32, 2, 16, 66, 4, 0.1)],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=list(SIZES), default="cuda")
    parser.add_argument("--steps", type=int, default=40, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--name", default="", help="write benchmarks/results/NAME.json")
    options = parser.parse_args()
    rows = [row for size in SIZES[options.device] for row in measure(size, options)]
    for row in rows:
        median, least, most = row["ratio"]
        ratio = "" if row["model"] == OTHER else f"  {median:.2f} ({least:.2f} to {most:.2f}) times the other"
        print(f"{row['size']:6}  {row['model']:24}  {row['tokens_per_second']:12,.0f} tokens/s{ratio}", flush=True)
    if options.name:
        command = f"python benchmarks/lm_speed.py --steps {options.steps} --rounds {options.rounds}"
        write_result(options.name, command, ["torch", "triton"], rows=rows)


def measure(size: Size, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Each model's speed, and the ratio of its speed to the other's in the same round."""
    tokens = torch.randint(2, size.ids - 1, (size.rows, size.context + 1))
    run = {
        "ours": our_step(size, "sinusoidal", tokens, options.device),
        "ours, rotary positions": our_step(size, "rotary", tokens, options.device),
        OTHER: other_step(size, tokens, options.device),
    }
    for model, step in run.items():
        print(f"{size.name}: {model}: {timed(step, 5, options.device):.1f} s a step while it compiles", flush=True)
    times: dict[str, list[float]] = {model: [] for model in run}
    for _ in range(options.rounds):
        for model, step in run.items():
            times[model].append(timed(step, options.steps, options.device))
    run.clear()
    gc.collect()  # a compiled model refers to itself
    if options.device == "cuda":
        torch.cuda.empty_cache()
    return [describe(size, model, found, times[OTHER]) for model, found in times.items()]


def describe(size: Size, model: str, times: list[float], other: list[float]) -> dict[str, Any]:
    ratios = [theirs / ours for ours, theirs in zip(times, other, strict=True)]
    return {
        "size": size.name,
        "model": model,
        "tokens_per_second": size.rows * size.context / statistics.median(times),
        "seconds_per_step": times,
        "ratio": [statistics.median(ratios), min(ratios), max(ratios)],
    }


def timed(step: Step, count: int, device: str) -> float:
    """Seconds per step."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    begun = time.perf_counter()
    for _ in range(count):
        step()
    wait()
    return (time.perf_counter() - begun) / count


def our_step(size: Size, positions: Any, tokens: Tensor, device: str) -> Step:
    config = DecoderConfig(
        family="decoder", d_model=size.width, d_ff=4 * size.width, num_heads=size.heads, num_decoder_layers=size.layers,
        context=size.context, dropout=size.dropout, norm="pre", positions=positions,
    )  # fmt: skip
    model = make_model(config, size.ids, size.ids).to(device)
    train = TrainConfig(optimizer="adamw", weight_decay=0.1, label_smoothing=0.0, clip_norm=1.0, beta2=0.99)
    on_gpu = device == "cuda"
    kind = GraphedUpdate if on_gpu else PlainUpdate
    update = kind(model, make_optimizer(model, train), train, Device("cuda" if on_gpu else "cpu", bf16=on_gpu))
    made = batch_of(tokens)
    batch = made.pinned() if on_gpu else made

    def step() -> None:
        update.begin(1)
        update.add(batch, size.rows * size.context)
        update.apply(1e-4)

    return step


def batch_of(tokens: Tensor) -> Batch:
    """Full rows as training makes them: no source, and each row a window of text."""
    inputs, labels = tokens[:, :-1].int().contiguous(), tokens[:, 1:].int().contiguous()
    position = torch.arange(inputs.shape[1], dtype=torch.int32).expand_as(inputs).contiguous()
    empty = torch.zeros(len(inputs), 2, dtype=torch.int32)
    return Batch(Tokens(empty, empty, empty), Sequences(inputs, position, torch.ones_like(inputs)), labels)


class Block(nn.Module):
    """A layer of GPT-2."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.stacked, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.stacked(self.norms[0](x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        heads = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.output(heads.transpose(1, 2).flatten(-2)))
        return x + self.drop(self.outer(gelu(self.inner(self.norms[1](x)))))


class Gpt2(nn.Module):
    """GPT-2 as its paper describes it; embeddings are tied."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(size.ids, size.width), nn.Embedding(size.context, size.width)
        self.drop = nn.Dropout(size.dropout)
        self.blocks = nn.ModuleList(Block(size.width, size.heads, size.dropout) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.drop(self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device)))
        for block in self.blocks:
            x = block(x)
        return cross_entropy((self.norm(x) @ self.tokens.weight.T).flatten(0, 1).float(), labels.flatten())


def other_step(size: Size, tokens: Tensor, device: str) -> Step:
    torch.set_float32_matmul_precision("high")
    model = Gpt2(size).to(device)
    on_gpu = device == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1, fused=on_gpu)
    compiled = torch.compile(model, backend="inductor" if on_gpu else "eager")
    inputs, labels = tokens[:, :-1].contiguous().to(device), tokens[:, 1:].contiguous().to(device)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=on_gpu):
            loss = compiled(inputs, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main()
