"""Do the operations of a training step give the same bits every time on a GPU, also while other work shares it?

    python benchmarks/repeatable_gpu.py                       every operation 2,000 times, beside four processes of other work
    python benchmarks/repeatable_gpu.py --beside 0            alone
    python benchmarks/repeatable_gpu.py --steps 300           and whole steps of training, as in `transduce train`

Each operation runs on the same inputs again and again; its results are compared with those of the first time, on the device. Start the
Multi-Process Service first (`nvidia-cuda-mps-control -d`), so that kernels of several processes run at the same time. The exit status is 1 if something
differed.
"""

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from facts import write_result
from torch import Tensor
from torch.nn.functional import embedding

import transduce
from transduce.checkpoint import RunFolder, read_about
from transduce.model.kernels.attention import attend, attend_backward
from transduce.model.kernels.cross_entropy import to_gradient
from transduce.model.kernels.feed_forward import cut_product, relu_product
from transduce.model.kernels.residual import add, add_and_norm, add_and_norm_backward, add_backward, norm, norm_backward
from transduce.model.kernels.rotary import rotate_product

ROWS, WIDTH, D, HEADS, CLASSES = 40, 128, 256, 4, 101  # 5,120 positions: more tiles than a GPU has processors
Operation = Callable[[], tuple[Tensor, ...]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=2_000)
    parser.add_argument("--beside", type=int, default=4, help="processes of other work")
    parser.add_argument("--steps", type=int, default=0, help="steps of whole trainings, each done twice")
    parser.add_argument("--name", default="", help="write benchmarks/results/NAME.json")
    options = parser.parse_args()
    others = [multiprocessing.get_context("spawn").Process(target=work, daemon=True) for _ in range(options.beside)]
    for other in others:
        other.start()
    found = {name: differences(operation, options.times) for name, operation in operations()}
    if options.steps:
        found |= {name: trained_differently(settings, options.steps) for name, settings in TRAININGS.items()}
    for name, count in found.items():
        print(f"{name:24} {count}", flush=True)
    if options.name:
        command = f"python benchmarks/repeatable_gpu.py --times {options.times} --beside {options.beside}"
        print(write_result(options.name, command, ["torch", "triton"], differing=found))
    sys.exit(any(found.values()))


def work() -> None:
    """Other work: products of many sizes, until the parent ends."""
    matrices = [torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for n in (128, 512, 1_024, 4_096)]
    while True:
        for matrix in matrices:
            torch.softmax(matrix @ matrix, -1)
        torch.cuda.synchronize()


def differences(operation: Operation, times: int) -> int:
    """How often the results differ from those of the first time."""
    first = [result.clone() for result in operation()]
    count = torch.zeros((), dtype=torch.long, device="cuda")
    for _ in range(times):
        count += torch.stack([(one != other).any() for one, other in zip(operation(), first, strict=True)]).any()
    return int(count)


# --- operations -----------------------------------------------------------------------------------------------------


def operations() -> Iterator[tuple[str, Operation]]:
    """The kernels and products of a layer and of the loss, with the sizes of a small model."""
    torch.manual_seed(1)
    x, z, gradient = (draw(ROWS * WIDTH, D) for _ in range(3))
    weight, bias, gain, shift = draw(D, D), draw(D), draw(D), draw(D)
    inner, hidden = draw(4 * D, D), draw(ROWS * WIDTH, 4 * D).relu()
    seed = torch.randint(1 << 62, (1,), device="cuda")
    yield "product", lambda: (x @ weight.t(),)
    yield "gradient of weights", lambda: (gradient.t() @ x,)
    yield "wide gradient", lambda: (hidden.t() @ x,)
    yield "added product", lambda: (gradient.clone().addmm_(hidden, inner),)
    yield "product with ReLU", lambda: (relu_product(x, inner, draw_once("b", 4 * D)),)
    yield "backward of ReLU", lambda: cut_product(gradient, draw_once("w2", D, 4 * D), hidden)
    yield "sum over positions", lambda: (hidden.sum(0, dtype=torch.float32),)
    normed, post = norm(x, gain, shift, 1e-5), add_and_norm(x, z, bias, gain, shift, 0.3, seed, 1e-5)
    yield "norm", lambda: (norm(x, gain, shift, 1e-5).out,)
    yield "residual", lambda: (add(x, z, bias, 0.3, seed),)
    yield "backward of norm", lambda: norm_backward(gradient, z, normed, gain)
    yield "backward of residual", lambda: add_backward(gradient, bias, 0.3, seed)
    yield "backward of both", lambda: add_and_norm_backward(gradient, post, gain, 0.3, seed)
    yield from of_attention(gradient)
    yield from of_the_loss(x)
    yield from of_embeddings(gradient)


def of_attention(gradient: Tensor) -> Iterator[tuple[str, Operation]]:
    product, bias = draw(ROWS, WIDTH, 3 * D), draw(3 * D)
    segment = (torch.arange(WIDTH, device="cuda") // 16 + 1).repeat(ROWS, 1)
    inputs, biases = product.chunk(3, -1), bias.chunk(3)
    through = gradient.view(ROWS, WIDTH, D)
    for name, causal in (("attention", False), ("causal attention", True)):
        levels = attend(inputs, biases, segment, segment, HEADS, causal)[1]

        def backward(levels: Tensor = levels, causal: bool = causal) -> tuple[Tensor, ...]:
            out = torch.empty_like(product)
            sums = attend_backward(through, levels, inputs, biases, out.chunk(3, -1), segment, segment, HEADS, causal)
            return out, sums

        yield name, lambda causal=causal: attend(inputs, biases, segment, segment, HEADS, causal)
        yield f"backward of {name}", backward
    position = torch.arange(WIDTH, device="cuda").repeat(ROWS, 1)

    def rotated() -> tuple[Tensor, ...]:
        turned = product.clone()
        rotate_product(turned, position, HEADS)
        return (turned,)

    yield "rotary positions", rotated


def of_the_loss(x: Tensor) -> Iterator[tuple[str, Operation]]:
    for classes in (CLASSES, 10_001):
        logits = x @ draw(classes + 7 & ~7, D).t()
        labels = torch.randint(classes, (len(x),), device="cuda")

        def loss(logits: Tensor = logits, labels: Tensor = labels, classes: int = classes) -> tuple[Tensor, ...]:
            gradient = logits.clone()
            losses = to_gradient(gradient, labels, 0.1, classes)
            return gradient, losses

        yield f"loss of {classes:,} classes", loss


def of_embeddings(gradient: Tensor) -> Iterator[tuple[str, Operation]]:
    for size in (CLASSES, 10_001):
        ids, table = torch.randint(size, (len(gradient),), device="cuda"), draw(size, D).requires_grad_()

        def backward(ids: Tensor = ids, table: Tensor = table) -> tuple[Tensor, ...]:
            return torch.autograd.grad(embedding(ids, table), table, gradient)

        yield f"gradient of {size:,} embeddings", backward


_drawn: dict[str, Tensor] = {}


def draw_once(name: str, *shape: int) -> Tensor:
    return _drawn.setdefault(name, draw(*shape))


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16) / 4


# --- whole trainings ------------------------------------------------------------------------------------------------

COMMON = {
    "data.task": "symbols", "data.source_units": "char", "data.target_units": "char", "data.joint": True, "model.d_model": D, "model.d_ff": 4 * D,
    "model.num_heads": HEADS, "model.num_encoder_layers": 4, "model.num_decoder_layers": 4, "model.norm": "pre", "model.dropout": 0.3,
    "train.tokens_per_batch": 4_800, "train.epochs": 0, "train.validate_every": 10**6, "train.checkpoint_every": 10**6, "train.average": 0,
}  # fmt: skip
TRAININGS = {
    "trained, Adam": {},
    "trained, R-Drop": {"train.r_drop": 5.0},
    "trained, rotary, Muon": {"model.positions": "rotary", "train.optimizer": "muon", "train.learning_rate": 2e-3},
}


def trained_differently(settings: dict[str, object], steps: int) -> int:
    """1 if two trainings of random words and the same backwards end with different weights."""
    with tempfile.TemporaryDirectory() as name:
        folder, letters = Path(name), "abcdefghijklmnopqrstuvwxyz"
        draws = torch.randint(26, (10_000, 12), generator=torch.Generator().manual_seed(1)).tolist()
        words = ["".join(letters[n] for n in row) for row in draws]
        (folder / "train.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
        asked = COMMON | {"train.steps": steps} | settings
        runs = [folder / "one", folder / "other"]
        for run in runs:
            transduce.train(run, train=str(folder / "train.tsv"), settings=asked, quiet=True)
        one, other = (read_about(RunFolder(run).weights("last"))["sha256"] for run in runs)
    return int(one != other)


if __name__ == "__main__":
    main()
