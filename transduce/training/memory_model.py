"""How much memory training takes: weights, gradients, the optimizer's state, and activations by the size of a microbatch.

The parts that depend on the number of parameters are counted. Activations are predicted from the shape of the model, and
the prediction is scaled to a measurement where there is one. Knows settings and sizes, but no device and no data.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from transduce.config import ModelConfig
from transduce.continuous import ContinuousBatcher
from transduce.model import kept_activations
from transduce.model.chunked_loss import ROWS

Mode = Literal["cpu", "kernels", "autocast"]  # PlainUpdate on a CPU, GraphedUpdate, and the others on a GPU

GIB = 1 << 30
GPUS = (24, 40, 80, 141)  # memory of common GPUs, in GB as they are sold
USABLE = 0.98  # of the memory of a GPU: the driver keeps the rest
CUDA_CONTEXT = 600_000_000  # bytes of the driver's context, loaded kernels and libraries: an estimate
SMALLEST_MICROBATCH = 128  # positions

NUMBER = {"cpu": 4, "kernels": 2, "autocast": 3}  # bytes of a kept activation; under autocast, some are float32
LOGIT = {"kernels": 2, "autocast": 14}  # bytes per class; without kernels, PyTorch keeps several copies
# Bytes of gradients per parameter. GraphedUpdate has float32 vectors for the first and for further batches of a step, a copy
# of one of them while a graph is captured, and the gradients of its model in bfloat16.
GRADIENT = {"cpu": 4, "kernels": 14, "autocast": 4}
COPY = {"cpu": 0, "kernels": 2, "autocast": 2}  # bytes per parameter of the copy in bfloat16 that computes


@dataclass(frozen=True)
class Microbatch:
    """The positions of the largest batch that the device computes at once, padding included."""

    source: int
    target: int


@dataclass(frozen=True)
class MemoryUse:
    """The memory of training in bytes, by what it holds."""

    weights: int
    gradients: int
    optimizer: int
    average: int  # the moving average of the weights
    activations: int
    logits: int
    runtime: int  # libraries and data; on a GPU, the driver's context
    decoding: int = 0  # slots in which a GPU translates the validation data

    @property
    def total(self) -> int:
        return self.of_parameters + self.activations + self.logits + self.runtime + self.decoding

    @property
    def of_parameters(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.average


@dataclass(frozen=True)
class Workload:
    """What the size of a microbatch follows from: the settings and the lengths of the data."""

    tokens_per_batch: int
    source_per_target: float
    longest: Microbatch  # the longest source and target of a pair
    pages: bool  # whether several pairs share a row
    page_width: int = 128

    def microbatch(self, positions: int) -> Microbatch:
        """The largest batch if a side may have this many positions."""
        parts = -(-self.tokens_per_batch // positions)
        tokens = self.tokens_per_batch // parts if self.pages else min(self.tokens_per_batch, positions)
        source = round(tokens * self.source_per_target)
        if not self.pages:
            source = min(source, positions)
        return Microbatch(max(source, self.longest.source), max(tokens, self.longest.target))

    def graphs(self, positions: int) -> int:
        """How many graphs hold memory at once: the captured one, and the next that runs before it is captured."""
        several = positions < self.tokens_per_batch or max(self.longest.source, self.longest.target) > self.page_width
        return 2 if self.pages and several else 1


@dataclass(frozen=True)
class MemoryModel:
    """Predicts the memory of training one model on one kind of device."""

    config: ModelConfig
    mode: Mode
    parameters: int
    optimizer: int  # bytes of its state
    averages: bool  # whether a moving average of the weights is kept
    classes: int
    workload: Workload
    workers: int = 1  # replicas on a CPU, each with gradients of its own
    passes: int = 1  # two with R-Drop
    runtime: int = CUDA_CONTEXT
    scale: float = 1.0  # measured activations by predicted ones
    decoding: int = 0  # bytes of the slots that translate the validation data, if there is enough memory

    def use(self, positions: int, capacity: float = math.inf) -> MemoryUse:
        """The memory with microbatches of this many positions per side, on a device with so many bytes."""
        training = self._training(positions)
        decoding = self.decoding
        while decoding and decoding > ContinuousBatcher.MEMORY_SHARE * max(0.0, capacity - training.total):
            decoding //= 2
        return replace(training, decoding=decoding)

    def _training(self, positions: int) -> MemoryUse:
        size = self.workload.microbatch(positions)
        graphs = self.workload.graphs(positions) if self.mode == "kernels" else 1
        return MemoryUse(
            weights=(4 + COPY[self.mode]) * self.parameters,
            gradients=GRADIENT[self.mode] * self.parameters * self.workers,
            optimizer=self.optimizer,
            average=4 * self.parameters * self.averages,
            activations=round(self.scale * graphs * self.passes * self._activations(size)),
            logits=round(self.scale * graphs * self.passes * self._logits(size)),
            runtime=self.runtime,
        )

    def calibrated(self, positions: int, total: int) -> "MemoryModel":
        """The model that predicts a measured total, without decoding, for this size of microbatch."""
        plain = replace(self, scale=1.0)._training(positions)
        predicted = plain.activations + plain.logits
        measured = total - plain.of_parameters - plain.runtime
        return replace(self, scale=max(0.0, measured / predicted))

    def largest_fitting(self, capacity: float) -> int:
        """The largest power of two of positions per side that fits into this many bytes; 0 if none does."""
        positions = 1 << (self.workload.tokens_per_batch - 1).bit_length()
        while positions >= SMALLEST_MICROBATCH:
            if self.use(positions, capacity).total <= capacity:
                return positions
            positions //= 2
        return 0

    def _activations(self, size: Microbatch) -> float:
        masks = self.mode != "kernels"
        return NUMBER[self.mode] * kept_activations(self.config, size.source, size.target, masks)

    def _logits(self, size: Microbatch) -> float:
        if self.mode == "cpu":  # computed in chunks of rows
            return 4.0 * self.workers * 2 * ROWS * self.classes
        return float(LOGIT[self.mode] * self.classes * size.target)


def usable(gigabytes: int) -> float:
    """The bytes that a GPU sold with this memory has for a program."""
    return USABLE * gigabytes * GIB
