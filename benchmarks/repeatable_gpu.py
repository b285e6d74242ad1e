"""Do the operations of a training step give the same bits every time on a GPU, also while other work shares it?

    python benchmarks/repeatable_gpu.py --whole 12            one step of training again and again, in 12 processes at once
    python benchmarks/repeatable_gpu.py --whole 12 --no-fence the same without the fence of attention's backward pass
    python benchmarks/repeatable_gpu.py                       every operation 2,000 times, beside four processes that train
    python benchmarks/repeatable_gpu.py --beside 0            alone

Start with `--whole`, which takes a minute and a half. Every process captures the same step (47 rows of 128 and 102 positions, so that attention has more
tiles than a GPU has processors) and replays it with the same batch and seed. Two questions are answered: do the replays of a process differ, and
if so in the gradients of which parameters? They are listed from the last layer to the first, so the first one is next to the cause. And do
processes differ from each other although each of them repeats its own bits? Then a library has chosen other kernels.

Each operation runs on the same inputs again and again, captured in a graph; its results are compared with those of the first time, on the
device. `repeated_trainings.py` compares whole training runs.

Start the Multi-Process Service first (`nvidia-cuda-mps-control -d`), so that kernels of several processes run at the same time. The exit status is 1 if
something differed.
"""

import argparse
import hashlib
import math
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch
from facts import write_result
from torch import Tensor
from torch.nn.functional import embedding

from transduce.config import TrainConfig, TransformerConfig
from transduce.cores import fix_workspace
from transduce.data.batches import Batch
from transduce.device import captured, choose_device
from transduce.model import Tokens, make_model
from transduce.model.kernels import attention
from transduce.model.kernels.attention import attend, attend_backward
from transduce.model.kernels.cross_entropy import to_gradient
from transduce.model.kernels.feed_forward import cut_product, relu_product
from transduce.model.kernels.residual import add, add_and_norm, add_and_norm_backward, add_backward, norm, norm_backward
from transduce.model.kernels.rotary import rotate_product
from transduce.training.optimizer import make_optimizer
from transduce.training.update import GraphedUpdate

ROWS, WIDTH, D, HEADS, CLASSES = 40, 128, 256, 4, 101  # 5,120 positions: more tiles than a GPU has processors
Operation = Callable[[], tuple[Tensor, ...]]
SPAWN = multiprocessing.get_context("spawn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whole", type=int, default=0, metavar="N", help="a step of training in N processes at once")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the replays with --whole")
    parser.add_argument("--no-fence", action="store_true", help="leave out the fence of attention's backward pass")
    parser.add_argument("--times", type=int, default=2_000, help="of each operation")
    parser.add_argument("--beside", type=int, default=4, help="processes that train beside the operations")
    parser.add_argument("--name", default="", help="write benchmarks/results/NAME.json")
    options = parser.parse_args()
    fix_workspace()  # before the first product, as in training
    if options.no_fence:
        leave_out_fence()
    found = whole_steps(options) if options.whole else one_by_one(options)
    for name, value in found.items():
        print(f"{name:32} {value}", flush=True)
    if options.name:
        print(write_result(options.name, " ".join(["python", *sys.argv]), ["torch", "triton"], differing=found))
    sys.exit(any(found.values()))


def one_by_one(options: argparse.Namespace) -> dict[str, int]:
    """How often each operation differed."""
    for number in range(options.beside):
        SPAWN.Process(target=replayed, args=(number, math.inf, options.no_fence), daemon=True).start()
    return {name: differences(operation, options.times) for name, operation in operations()}


def leave_out_fence() -> None:
    """Compile attention's backward pass as for a GPU that needs no fence, in this process."""
    chip_of = attention.chip_of
    attention.chip_of = lambda device: replace(chip_of(device), has_async_proxy=False)  # type: ignore[assignment]


def differences(operation: Operation, times: int) -> int:
    """How often the results differ from those of the first time, in replays of a graph as in training."""
    first = [result.clone() for result in operation()]
    count = torch.zeros((), dtype=torch.long, device="cuda")

    def compare() -> None:
        count.add_(torch.stack([(one != other).any() for one, other in zip(operation(), first, strict=True)]).any())

    replay = captured(compare)
    for _ in range(times):
        replay()
    return int(count)


# --- a whole step ---------------------------------------------------------------------------------------------------

SOURCE, TARGET, PAGES, LENGTH = 128, 102, 47, 16  # widths, rows, and tokens of a sentence
AT_ONCE = 50  # replays between two looks at the clock
MODEL = {
    "d_model": D,
    "d_ff": 4 * D,
    "num_heads": HEADS,
    "num_encoder_layers": 4,
    "num_decoder_layers": 4,
    "dropout": 0.3,
    "norm": "pre",
}


@dataclass(frozen=True)
class Replayed:
    """The replays of one process: those whose gradient is not that of the first, and the parameters where it differs."""

    positions: str
    replays: int
    differing: int
    parameters: list[str]  # from the last layer to the first
    digest: str  # of the first gradient


def whole_steps(options: argparse.Namespace) -> dict[str, int]:
    """How many replays differed from the first one of their process, and how many other gradients processes have."""
    with ProcessPoolExecutor(options.whole, mp_context=SPAWN) as pool:
        done = list(
            pool.map(partial(replayed, seconds=options.seconds, no_fence=options.no_fence), range(options.whole))
        )
    digests: dict[str, set[str]] = defaultdict(set)
    for one in done:
        print(asdict(one), flush=True)
        digests[one.positions].add(one.digest)
    others = {f"other gradients, {positions}": len(found) - 1 for positions, found in digests.items()}
    return {"replays that differ": sum(one.differing for one in done)} | others


def replayed(number: int, seconds: float, no_fence: bool) -> Replayed:
    """Replay one step for so long; every other process has sinusoids instead of rotary positions."""
    if no_fence:
        leave_out_fence()
    positions, step = ("rotary", "sinusoidal")[number % 2], 0
    update, batch = make_step(positions)
    first = gradient_of(update, batch).clone()
    apart, count = torch.zeros_like(first, dtype=torch.bool), torch.zeros((), dtype=torch.long, device="cuda")
    end = time.perf_counter() + seconds
    while step % AT_ONCE or time.perf_counter() < end:
        differs = gradient_of(update, batch) != first
        apart |= differs
        count += differs.any()
        step += 1
        if not step % AT_ONCE:
            torch.cuda.synchronize()
    named = zip(update.model.named_parameters(), update._views(apart), strict=True)
    where = [name for (name, _), differs in named if differs.any()]
    digest = hashlib.sha256(first.cpu().numpy().tobytes()).hexdigest()
    return Replayed(positions, step, int(count), where[::-1], digest[:16])


def make_step(positions: str) -> tuple[GraphedUpdate, Batch]:
    """A model and a batch that are the same in every process."""
    device, train = choose_device("cuda"), TrainConfig(clip_norm=1.0)
    torch.manual_seed(1)
    model = make_model(TransformerConfig(**MODEL, positions=positions), CLASSES + 1, CLASSES + 1).to("cuda")  # type: ignore[arg-type]
    source, target = pages(SOURCE), pages(TARGET)
    batch = Batch(source, target, target.ids.roll(-1, 1).contiguous())
    return GraphedUpdate(model, make_optimizer(model, train), train, device), batch.pinned()


def pages(width: int) -> Tokens:
    """Rows of short random sentences, in the types that training has."""
    column = torch.arange(width).repeat(PAGES, 1)
    parts = torch.randint(CLASSES, column.shape), column % LENGTH, column // LENGTH + 1
    return Tokens(*(part.int() for part in parts))


def gradient_of(update: GraphedUpdate, batch: Batch) -> Tensor:
    """The gradients of all parameters, as one vector that the next call overwrites."""
    update.begin(1)
    update.add(batch, PAGES * TARGET)
    update.forget()
    return update.gradient


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
        ids, table = torch.randint(size, (len(gradient),), device="cuda").int(), draw(size, D).requires_grad_()

        def backward(ids: Tensor = ids, table: Tensor = table) -> tuple[Tensor, ...]:
            return torch.autograd.grad(embedding(ids, table), table, gradient)

        yield f"gradient of {size:,} embeddings", backward


_drawn: dict[str, Tensor] = {}


def draw_once(name: str, *shape: int) -> Tensor:
    return _drawn.setdefault(name, draw(*shape))


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16) / 4


if __name__ == "__main__":
    main()
