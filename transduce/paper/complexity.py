"""Table 1 of the paper, measured: operations, time with its exponents in n and d, sequential steps, and path lengths.

Knows the layers, and no trained model. Time is that of a training pass (forward and backward): wall clock on a GPU, CPU
seconds of one thread on a CPU, which other work on the machine changes little.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from transduce.paper.layers import KINDS, Convolution, Kind, Recurrent, RestrictedSelfAttention, SelfAttention

Points = Sequence[tuple[float, float]]  # (size, time)
AT_EACH_END = 4  # sizes that an exponent is fitted to


@dataclass(frozen=True)
class Timing:
    """The time of one training pass over `batch` rows of `n` positions."""

    layer: str
    n: int
    d: int
    batch: int
    seconds: float


# --- operations ---------------------------------------------------------------------------------------------------


def counted_operations(kind: Kind, n: int, d: int) -> int:
    """The matrix products of a forward pass over one sentence, by torch's own counter, without computing them."""
    if kind.name == "recurrent":  # the counter sees nothing of a fused LSTM: one step of it, n times
        cell, state = nn.LSTMCell(d, d, bias=False, device="meta"), torch.empty(1, d, device="meta")
        return n * _counted(lambda: cell(state, (state, state)))
    layer, x = kind.make(d).to("meta"), torch.empty(1, n, d, device="meta")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return _counted(lambda: layer(x))


def _counted(run: Callable[[], Any]) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


# --- time ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stopwatch:
    """Measures passes on a device, for about `seconds` at every size."""

    device: str
    seconds: float = 0.1
    most: int = 20  # passes

    def measure(self, kind: Kind, n: int, d: int, batch: int) -> Timing:
        """The fastest of several passes, after one that warms up."""
        torch.manual_seed(1)
        dtype = torch.float16 if self.device == "cuda" else torch.float32
        layer = kind.make(d).to(self.device, dtype)
        x = torch.randn(batch, n, d, device=self.device, dtype=dtype, requires_grad=True)
        run = partial(_pass, layer, x)
        first = self._time(run)
        best = min((self._time(run) for _ in range(self._repeats(first))), default=first)
        return Timing(kind.name, n, d, batch, best)

    def _repeats(self, first: float) -> int:
        return max(2, min(self.most, round(self.seconds / max(first, 1e-6))))

    def _time(self, run: Callable[[], None]) -> float:
        if self.device != "cuda":
            begun = time.process_time()
            run()
            return time.process_time() - begun
        torch.cuda.synchronize()
        begun = time.perf_counter()
        run()
        torch.cuda.synchronize()
        return time.perf_counter() - begun


def _pass(layer: nn.Module, x: Tensor) -> None:
    layer(x).sum().backward()
    x.grad = None


def exponent(points: Points) -> float:
    """The slope of a straight line through the points in logarithms: 2 where time grows with the square."""
    xs, ys = [math.log(size) for size, _ in points], [math.log(time) for _, time in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum((x - mean_x) ** 2 for x in xs)


def ends(points: Points, count: int = AT_EACH_END) -> tuple[float, float]:
    """The exponents at the small and at the large end of a range of sizes."""
    ordered = sorted(points)
    return exponent(ordered[:count]), exponent(ordered[-count:])


# --- path length --------------------------------------------------------------------------------------------------

PATHS: dict[str, Callable[[int, int], nn.Module]] = {  # (number of the layer, width) -> layer
    "self-attention": lambda number, d: SelfAttention(d),
    "recurrent": lambda number, d: Recurrent(d),
    "convolutional": lambda number, d: Convolution(d),
    "convolutional, dilated": lambda number, d: Convolution(d, dilation=2**number),
    "restricted, r = 8": lambda number, d: RestrictedSelfAttention(d, 8),
}


@dataclass(frozen=True)
class Path:
    """How a signal gets from the first position to the last."""

    layer: str
    n: int
    layers: int  # the fewest layers at which the gradient is not zero
    steps: int  # operations one after the other on that way: a recurrent layer passes every position in between


def measure_path(name: str, n: int, d: int = 8) -> Path:
    """The fewest layers through which the last output has a gradient at the first input, by bisection."""
    make = PATHS[name]
    low, high = 0, 1
    while not _reaches(make, high, n, d):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _reaches(make, middle, n, d) else (middle, high)
    return Path(name, n, high, high * (n if name == "recurrent" else 1))


def _reaches(make: Callable[[int, int], nn.Module], layers: int, n: int, d: int) -> bool:
    torch.manual_seed(1)
    x = torch.randn(1, n, d, dtype=torch.float64, requires_grad=True)
    hidden: Tensor = x
    for number in range(layers):
        output = make(number, d).double()(hidden)
        hidden = (
            output / output.detach().norm()
        )  # a constant, so that hundreds of layers stay within the range of numbers
    hidden[0, -1].sum().backward()
    assert x.grad is not None
    return bool(x.grad[0, 0].abs().max() > 0)


# --- the table ----------------------------------------------------------------------------------------------------


def measure_grid(
    watch: Stopwatch, lengths: Iterable[int], widths: Iterable[int], batch: int, done: Callable[[Timing], None]
) -> list[Timing]:
    """Every layer at every length and width."""
    sizes = [(kind, n, d) for kind in KINDS for d in widths for n in lengths]
    return _measured(((kind, n, d, batch) for kind, n, d in sizes), watch, done)


def measure_constant(
    watch: Stopwatch, lengths: Iterable[int], d: int, positions: int, done: Callable[[Timing], None]
) -> list[Timing]:
    """Every layer with the same number of positions in all, in few long or many short rows: only steps in sequence make long ones slower."""
    return _measured(((kind, n, d, positions // n) for kind in KINDS for n in lengths), watch, done)


def _measured(
    sizes: Iterable[tuple[Kind, int, int, int]], watch: Stopwatch, done: Callable[[Timing], None]
) -> list[Timing]:
    found = []
    for kind, n, d, batch in sizes:
        found.append(watch.measure(kind, n, d, batch))
        done(found[-1])
    return found
