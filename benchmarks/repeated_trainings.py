"""Does a training give the same bits twice on a GPU, also while other work shares it? And if not, what differs first?

    python benchmarks/repeated_trainings.py                       each recipe twice, one training after the other in this process
    python benchmarks/repeated_trainings.py --apart               each training in a process of its own
    python benchmarks/repeated_trainings.py --seconds 240 --name repeated-trainings-gpu        both, again and again
    python benchmarks/repeated_trainings.py --device cpu --steps 5 --only "Adam"               to try it out

Every step leaves checksums of its batch on the device, of the gradient of each parameter and of the weights that it makes. The first one that differs says
where to look: a batch differs if copying it to the device goes wrong, a gradient if a kernel of the forward or backward pass does, weights if the
optimizer does. Losses would not show it: they hide differences in the last bits.

To share a GPU, start the Multi-Process Service (`nvidia-cuda-mps-control -d`) and other training runs first. The exit status is 1 if something differed.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from facts import write_result
from torch import Tensor

import transduce
from transduce.data.batches import Batch
from transduce.training import loop
from transduce.training.update import GraphedUpdate, PlainUpdate, TwinUpdate

COMMON = {
    "data.task": "symbols", "data.source_units": "char", "data.target_units": "char", "data.joint": True, "model.d_model": 256, "model.d_ff": 1_024,
    "model.dropout": 0.3,
    "train.tokens_per_batch": 4_800, "train.epochs": 0, "train.validate_every": 10**6, "train.checkpoint_every": 10**6, "train.average": 0,
    "train.validate_lines": 8,
}  # fmt: skip
TRANSFORMER = {"model.num_heads": 4, "model.num_encoder_layers": 4, "model.num_decoder_layers": 4, "model.norm": "pre"}
RECIPES: dict[str, dict[str, Any]] = {
    "Adam": TRANSFORMER,
    "R-Drop": TRANSFORMER | {"train.r_drop": 5.0},
    "rotary, Muon": TRANSFORMER | {"model.positions": "rotary", "train.optimizer": "muon", "train.learning_rate": 2e-3},
    "Adam, read at every step": TRANSFORMER | {"train.log_every": 1},
    "no dropout": TRANSFORMER | {"model.dropout": 0.0},
    "padded rows": TRANSFORMER | {"train.layout": "padded"},  # no captured steps
    "ff": {"model.family": "ff"},  # PyTorch's kernels only
}
Trace = list[tuple[str, list[int]]]  # what, and the checksums of its parts, in the order of the steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--only", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--apart", action="store_true", help="each training in a process of its own")
    parser.add_argument("--seconds", type=float, default=0.0, help="repeat all, in one process and apart, for so long")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--name", default="", help="write benchmarks/results/NAME.json")
    options = parser.parse_args()
    found: dict[str, list[str]] = {}
    end = time.perf_counter() + options.seconds
    while not found or time.perf_counter() < end:
        for apart in (False, True) if options.seconds else (options.apart,):
            for name in options.only:
                key = f"{name}, {'apart' if apart else 'in one process'}"
                found.setdefault(key, []).append(compared(name, apart, options))
                print(f"{key:44} {found[key][-1]}", flush=True)
    if options.name:
        command = " ".join(["python", *sys.argv])
        print(write_result(options.name, command, ["torch"], steps=options.steps, differing=found))
    sys.exit(any(result != SAME for results in found.values() for result in results))


SAME = "the same"


def compared(recipe: str, apart: bool, options: argparse.Namespace) -> str:
    """Train twice; what differs first, and at which step."""
    one, other = (trained(recipe, apart, options) for _ in range(2))
    assert len(one) == len(other), "the training runs have different numbers of batches"
    step = 1
    for (what, here), (_, there) in zip(one, other, strict=True):
        if differing := [number for number, pair in enumerate(zip(here, there, strict=True)) if pair[0] != pair[1]]:
            return f"{what} of step {step}: {len(differing)} of {len(here)} parts, the last one number {differing[-1]}"
        step += what == "weights"
    return SAME


def trained(recipe: str, apart: bool, options: argparse.Namespace) -> Trace:
    if not apart:
        return train(recipe, options.steps, options.device)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(train, recipe, options.steps, options.device).result()


def train(recipe: str, steps: int, device: str) -> Trace:
    """Train on random words and the same backwards."""
    trace: list[tuple[str, Tensor]] = []
    kinds = {kind.__name__: traced(kind, trace) for kind in (PlainUpdate, TwinUpdate, GraphedUpdate)}
    for name, kind in kinds.items():
        setattr(loop, name, kind)
    with tempfile.TemporaryDirectory() as folder:
        draws = torch.randint(26, (10_000, 12), generator=torch.Generator().manual_seed(1))
        words = ["".join(chr(ord("a") + n) for n in row) for row in draws.tolist()]
        table = Path(folder) / "train.tsv"
        table.write_text("".join(f"{word}\t{word[::-1]}\n" for word in words), encoding="utf-8")
        settings = COMMON | RECIPES[recipe] | {"train.steps": steps, "train.device": device}
        transduce.train(Path(folder) / "run", train=str(table), settings=settings, quiet=True)
    return [(what, checksum.tolist()) for what, checksum in trace]


def traced(kind: Any, trace: list[tuple[str, Tensor]]) -> Any:
    """The update, which also writes checksums from its first step on; they stay on the device, so that it does not wait for them."""

    class Traced(kind):  # type: ignore[misc]
        begun = False

        def begin(self, seed: int) -> None:
            self.begun = True
            super().begin(seed)

        def add(self, batch: Batch, tokens: int) -> None:
            super().add(batch, tokens)
            if self.begun:
                copied = getattr(self, "batches", {}).get(batch.shape, batch)
                trace.append(("batch", checksum(tensors_of(copied))))

        def apply(self, learning_rate: float) -> None:
            weights = list(self.model.parameters())
            trace.append(("gradient", checksum(weight.grad for weight in weights if weight.grad is not None)))
            super().apply(learning_rate)
            trace.append(("weights", checksum(weight.detach() for weight in weights)))

    return Traced


def tensors_of(batch: Batch) -> list[Tensor]:
    return [*vars(batch.source).values(), *vars(batch.target).values(), batch.labels]


def checksum(tensors: Iterable[Tensor]) -> Tensor:
    """For each tensor, the sum of its bits, read as integers: one that differs shows."""
    return torch.stack([tensor.contiguous().view(torch.int32).sum(dtype=torch.int64) for tensor in tensors])


if __name__ == "__main__":
    main()
