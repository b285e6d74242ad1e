"""How fast this machine trains, measured by timing a few real updates on random sentences.

A recipe for a budget in minutes is chosen from this before training. Knows settings and the device, but no data.
"""

import time
from dataclasses import dataclass, replace

import torch

from transduce.config import (
    Counts,
    FitRequest,
    Machine,
    ModelConfig,
    Time,
    TrainConfig,
    TransformerConfig,
    cpu_machine,
    gpu_machine,
)
from transduce.config.budget import REFERENCE, REFERENCE_LENGTH, REFERENCE_VOCABULARY
from transduce.config.fitted import may_take_long, spoken_hours
from transduce.cores import available_cores
from transduce.data.batches import Batch
from transduce.device import Device, choose_device
from transduce.model import Sequences, Tokens, make_model
from transduce.training.loss import batch_loss
from transduce.training.optimizer import make_optimizer
from transduce.training.update import PlainUpdate

TIMING_SHARE, TIMING_SECONDS = 0.01, 2.0  # time to measure: share of the budget, and upper limit
SECONDS_PER_PAIR = 45e-6  # to learn a vocabulary and to tokenise
SECONDS_PER_HOUR = 24.0  # of one core, to compute the features of an hour of speech at the three fitted speeds
CORE = cpu_machine(9_400.0).weights_per_second  # of the core on which that was measured
STARTING_SECONDS = {"cpu": 3.0, "cuda": 6.0}  # the model's first steps, in which a GPU also compiles kernels
TRAINING_SHARE = 0.9  # of the remaining time; the rest is for validations and checkpoints
GPU_SHARE = 0.9  # of the speed of a GPU that is left if several share the work (docs/scaling.md)
LEAST_SHARE = 0.2  # of the budget, however long preparing the data takes
POSITIONS = 1_024  # per side of one batch: close to what a CPU trains with, and quick even on a slow one
FEW_POSITIONS = 128  # to warm up
MATRIX = 4_096  # rows of the square matrices that a GPU multiplies


@dataclass(frozen=True)
class Sentences:
    """The vocabulary sizes and lengths, in tokens, of the random sentences."""

    source_vocabulary: int
    target_vocabulary: int
    source_length: int
    target_length: int

    def batch(self, positions: int = POSITIONS) -> Batch:
        rows = max(1, positions // max(self.source_length, self.target_length))
        source = torch.randint(3, self.source_vocabulary - 1, (rows, self.source_length))
        target = torch.randint(3, self.target_vocabulary - 1, (rows, self.target_length))
        full = [torch.full((rows,), width) for width in (self.source_length, self.target_length)]
        return Batch(Tokens.of_lengths(source, full[0]), Tokens.of_lengths(target, full[1]), target)


class Windows(Sentences):
    """Random windows of text for a language model: nothing as a source, and each row a single sequence."""

    def batch(self, positions: int = POSITIONS) -> Batch:
        made = super().batch(positions)
        target = made.target
        return replace(made, target=Sequences(target.ids, target.position, target.segment))


def time_for(train: TrainConfig, counts: Counts, requested: FitRequest, begun: float) -> Time | None:
    """The speed of the machine and its time for training; None if the recipe does not depend on them."""
    if not requested.minutes and (requested.steps or requested.epochs):
        return None
    device = choose_device(train.device, train.precision, train.threads)
    if not requested.minutes:
        return Time(measure_cpu(device)) if device.kind == "cpu" and may_take_long(counts, requested) else None
    seconds = 60 * requested.minutes
    machine = _gpus(device, requested.gpus) if device.kind == "cuda" else measure_cpu(device, TIMING_SHARE * seconds)
    left = seconds - (time.perf_counter() - begun) - _preparing(counts, machine, device) - STARTING_SECONDS[device.kind]
    return Time(machine, max(LEAST_SHARE * seconds, TRAINING_SHARE * left))


def _preparing(counts: Counts, machine: Machine, device: Device) -> float:
    """Seconds to prepare the data, as if nothing were in the cache; features take longer on a slow or busy CPU."""
    cores = machine.weights_per_second / CORE if device.kind == "cpu" else available_cores()
    features = spoken_hours(counts) * SECONDS_PER_HOUR / cores if counts.audio else 0.0
    return counts.pairs * SECONDS_PER_PAIR + features


def _gpus(device: Device, count: int) -> Machine:
    """Several GPUs like this one; they lose some time to communication and to waiting for each other."""
    one = gpu_machine(matrix_flops(device))
    return replace(one, weights_per_second=one.weights_per_second * count * GPU_SHARE) if count > 1 else one


def measure_cpu(device: Device, seconds: float = TIMING_SECONDS) -> Machine:
    """Measure this CPU under its current load: if other programs use it, training will be slower too."""
    shape = REFERENCE.d_model, REFERENCE.heads, REFERENCE.layers
    model = TransformerConfig(
        d_model=shape[0],
        d_ff=4 * shape[0],
        num_heads=shape[1],
        num_encoder_layers=shape[2],
        num_decoder_layers=shape[2],
    )
    sentences = Sentences(REFERENCE_VOCABULARY, REFERENCE_VOCABULARY, REFERENCE_LENGTH, REFERENCE_LENGTH)
    speed = tokens_per_second(model, TrainConfig(clip_norm=1.0), sentences, device, min(TIMING_SECONDS, seconds))
    return cpu_machine(speed)


def tokens_per_second(
    model: ModelConfig, train: TrainConfig, sentences: Sentences, device: Device, seconds: float
) -> float:
    """Target tokens per second in training, measured for about `seconds` and at least one update, after a warm-up."""
    update = _make_update(model, train, sentences, device)
    batch = sentences.batch()
    _update_once(update, sentences.batch(FEW_POSITIONS))
    begun, updates = time.perf_counter(), 0
    while not updates or time.perf_counter() - begun < seconds:
        _update_once(update, batch)
        updates += 1
    return updates * batch.tokens / (time.perf_counter() - begun)


def one_update(model: ModelConfig, train: TrainConfig, sentences: Sentences, device: Device) -> None:
    """Run a small update in the precision that training uses, to load and compile what training needs."""
    kind = torch.bfloat16 if device.bf16 else torch.float32
    network = make_model(model, sentences.source_vocabulary, sentences.target_vocabulary).to(device.torch, kind)
    batch = sentences.batch(2 * sentences.target_length).to(device.torch)
    batch_loss(network.train(), batch, train.label_smoothing, train).minimised.backward()
    make_optimizer(network, train).step()


def _make_update(model: ModelConfig, train: TrainConfig, sentences: Sentences, device: Device) -> PlainUpdate:
    network = make_model(model, sentences.source_vocabulary, sentences.target_vocabulary).to(device.torch)
    return PlainUpdate(network, make_optimizer(network, train), train, device)


def _update_once(update: PlainUpdate, batch: Batch) -> None:
    update.add(batch, batch.tokens)
    update.apply(1e-6)


def matrix_flops(device: Device, seconds: float = 0.2) -> float:
    """Floating-point operations per second of large matrix products, from which a GPU's training speed is estimated."""
    kind = torch.bfloat16 if device.bf16 else torch.float32
    a = torch.randn(MATRIX, MATRIX, device=device.torch, dtype=kind)
    products, begun = 0, 0.0
    while not products or time.perf_counter() - begun < seconds:
        for _ in range(10):
            _ = a @ a
        torch.cuda.synchronize()
        products += 10 if begun else 0  # the first ten warm up the device
        begun = begun or time.perf_counter()
    return products * 2 * MATRIX**3 / (time.perf_counter() - begun)
