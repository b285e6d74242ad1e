"""Training speed of language models: ours beside a plain GPT-2 of the same size, compiled.

    python benchmarks/lm_speed.py --name lm-speed          on a GPU, under four minutes

Sizes: nanoGPT's example (6 x 384, a context of 256) and GPT-2 small (12 x 768, a context of 1,024, 50,304 ids). Both models
train in bfloat16 with AdamW on the same number of random tokens a step. Ours is `GraphedUpdate` as `train` runs it; the other is
written here in plain PyTorch as GPT-2 is described (pre-norm, GELU, learned positions), under `torch.compile` and autocast, with
the fused AdamW. Times are medians of steps, in turns.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from facts import write_result
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from transduce.config import DecoderConfig, TrainConfig
from transduce.data.batches import Batch
from transduce.device import Device
from transduce.model import Sequences, Tokens, make_model
from transduce.training.optimizer import make_optimizer
from transduce.training.update import GraphedUpdate

# name: layers, width, heads, context, ids, rows a step, dropout
SIZES = {"6x384": (6, 384, 6, 256, 66, 64, 0.2), "124M": (12, 768, 12, 1_024, 50_304, 16, 0.0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name", default="", help="write benchmarks/results/NAME.json")
    options = parser.parse_args()
    rows = [row for name in SIZES for row in measure(name, options.steps, options.rounds)]
    for row in rows:
        print(f"{row['size']:6}  {row['model']:24}  {row['tokens_per_second']:12,.0f} tokens/s")
    for name in SIZES:
        ours, other = (row["tokens_per_second"] for row in rows if row["size"] == name)
        print(f"{name}: ours is {ours / other:.2f} times the other")
    if options.name:
        write_result(options.name, "python benchmarks/lm_speed.py", ["torch", "triton"], rows=rows)


def measure(name: str, steps: int, rounds: int) -> list[dict]:
    layers, width, heads, context, ids, batch, dropout = SIZES[name]
    makers = {"ours": our_step, "GPT-2 (torch.compile)": other_step}
    tokens = torch.randint(2, ids - 1, (batch, context + 1), device="cuda")
    run = {model: make(layers, width, heads, context, ids, dropout, tokens) for model, make in makers.items()}
    for step in run.values():
        timed(step, 5)  # compiles and captures
    times: dict[str, list[float]] = {model: [] for model in run}
    for _ in range(rounds):
        for model, step in run.items():
            times[model].append(timed(step, steps))
    torch.cuda.empty_cache()
    return [
        {"size": name, "model": model, "tokens_per_second": batch * context / statistics.median(found)}
        for model, found in times.items()
    ]


def timed(step: Callable[[], None], count: int) -> float:
    """Seconds per step."""
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / count


def our_step(
    layers: int, width: int, heads: int, context: int, ids: int, dropout: float, tokens: Tensor
) -> Callable[[], None]:
    config = DecoderConfig(
        family="decoder", d_model=width, d_ff=4 * width, num_heads=heads, num_decoder_layers=layers, context=context,
        dropout=dropout, norm="pre",
    )  # fmt: skip
    model = make_model(config, ids, ids).to("cuda")
    train = TrainConfig(optimizer="adamw", weight_decay=0.1, label_smoothing=0.0, clip_norm=1.0, beta2=0.99)
    update = GraphedUpdate(model, make_optimizer(model, train), train, Device("cuda", bf16=True))
    inputs, labels = tokens[:, :-1].int().cpu(), tokens[:, 1:].int().cpu()
    rows, full = len(inputs), torch.ones_like(inputs)
    position = torch.arange(context, dtype=torch.int32).expand(rows, -1).contiguous()
    empty = torch.zeros(rows, 2, dtype=torch.int32)
    batch = Batch(Tokens(empty, empty, empty), Sequences(inputs, position, full), labels)
    pinned = batch.pinned()

    def step() -> None:
        update.begin(1)
        update.add(pinned, rows * context)
        update.apply(1e-4)

    return step


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

    def __init__(self, layers: int, width: int, heads: int, context: int, ids: int, dropout: float) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(ids, width), nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.drop(self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device)))
        for block in self.blocks:
            x = block(x)
        return cross_entropy((self.norm(x) @ self.tokens.weight.T).flatten(0, 1).float(), labels.flatten())


def other_step(
    layers: int, width: int, heads: int, context: int, ids: int, dropout: float, tokens: Tensor
) -> Callable[[], None]:
    torch.set_float32_matmul_precision("high")
    model = Gpt2(layers, width, heads, context, ids, dropout).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    compiled = torch.compile(model)
    inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(inputs, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main()
