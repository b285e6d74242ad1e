"""Makes the plan of a run from its trainer: the figures of the data, memory, disk and the rest of its budget.

`train` calls `plan_of` before its first step with what it has measured by then, and `transduce plan` after a rehearsal
(`transduce/training/rehearsal.py`). Measures nothing but the memory in use.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from transduce.config import PRESETS, ModelConfig, TrainConfig, TransformerConfig
from transduce.continuous import decoding_memory, understands
from transduce.data import cache_folder
from transduce.data.packing import WIDTH
from transduce.memory import memory_limit, peak_resident
from transduce.model import fused, parameter_shapes, stored_tensors, training_flops
from transduce.training.memory_model import GIB, MemoryModel, Microbatch, Mode, Workload
from transduce.training.optimizer import optimizer_tensors
from transduce.training.run_plan import (
    DiskFigures,
    EpochFigures,
    MemoryFigures,
    ModelFigures,
    RunPlan,
    budget_figures,
    changes,
    check_disk,
    gpu_fits,
    largest_preset,
)
from transduce.training.sharded_state import ShardedState
from transduce.training.sharded_update import ShardedUpdate
from transduce.training.update import GraphedUpdate, PlainUpdate, Update
from transduce.translator.slot_engine import SlotEngine

if TYPE_CHECKING:
    from transduce.device import Device
    from transduce.training.loop import Trainer

LARGEST_FIRST = ("big", "base", "small", "tiny")  # presets
OTHER_FILES = 400_000  # bytes in a run folder besides weights: vocabularies, curves, model card
LOGGED = 500  # bytes for each logged step, in metrics.jsonl and TensorBoard's events
RANKS_ANEW = (
    "the best weights are chosen anew from the next validation on: earlier ones did not measure the same lines, so their scores "
    "cannot be compared"
)
HEADER = 150  # bytes of a file of weights for each tensor


def plan_messages(trainer: Trainer) -> Iterator[str]:
    """The plan of a run as `train` prints it before the first step, with warnings."""
    clock = trainer.clock
    planned = plan_of(trainer, memory_before_training(trainer), clock.spent - trainer.progress.spent)
    yield f"plan: {clock.describe()}; {planned.summary()}"
    if warning := trainer.processes.first(lambda: check_disk(planned.disk, trainer.checkpoints.folder.path)):
        yield warning
    yield trainer.validator.describe()
    if trainer.minutes.ranks_anew:
        yield RANKS_ANEW
    if warning := trainer.processes.first(clock.too_long):
        yield warning
    if warning := clock.few_epochs(trainer.model.config.fewest_epochs):
        yield warning


def plan_of(trainer: Trainer, memory: MemoryFigures, starting: float) -> RunPlan:
    """The plan of a run whose costs and memory are measured, `starting` seconds before its first step."""
    epoch, disk = epoch_figures(trainer), disk_figures(trainer)
    forecast = trainer.clock.forecast(trainer.progress.spent + starting)
    return RunPlan(
        model=ModelFigures(trainer.parameters, shape(trainer.model.config), trainer.device.name),
        epoch=epoch,
        budget=budget_figures(forecast, epoch, _flops(trainer, epoch), starting),
        memory=memory,
        disk=disk,
        changes=changes(memory, disk),
    )


def epoch_figures(trainer: Trainer) -> EpochFigures:
    """One pass over the training data, by lengths alone."""
    epoch = trainer.training_data.epoch_size
    return EpochFigures(
        pairs=epoch.pairs,
        source_tokens=epoch.source_tokens,
        target_tokens=epoch.target_tokens,
        steps=trainer.layout.steps_per_epoch,
        padding=trainer.layout.padding,
    )


def shape(config: ModelConfig) -> str:
    """The size of a model in words."""
    if not isinstance(config, TransformerConfig):
        return config.family
    return f"{config.num_encoder_layers} + {config.num_decoder_layers} layers, d_model {config.d_model}"


def _flops(trainer: Trainer, epoch: EpochFigures) -> float:
    passes, classes = _passes(trainer.config), trainer.training_data.vocabularies.target.size - 1
    tokens = passes * epoch.source_tokens, passes * epoch.target_tokens
    return training_flops(trainer.model.config, classes, *tokens, epoch.source_tokens / epoch.pairs)


def _passes(train: TrainConfig) -> int:
    return 2 if train.r_drop > 0 else 1


# --- memory ----------------------------------------------------------------------------------------------------


def memory_used(device: Device) -> int:
    """The most memory that training has taken so far: of the GPU, or of this process."""
    if device.kind == "cpu":
        return peak_resident()
    free, total = torch.cuda.mem_get_info()
    context = total - free - torch.cuda.memory_reserved()  # other processes count too, so it is limited
    return torch.cuda.max_memory_reserved() + min(max(0, context), GIB)


def memory_available(device: Device) -> int:
    return memory_limit() if device.kind == "cpu" else int(torch.cuda.get_device_properties(0).total_memory)


def memory_before_training(trainer: Trainer) -> MemoryFigures:
    """The memory that a run will take, as far as it is known before the first step.

    On a CPU, zeros take no memory before they are written to: neither the optimizer's state nor a moving average does yet.
    """
    later = 0 if trainer.progress.step or trainer.device.kind == "cuda" else _optimizer_size(trainer)
    average = 4 * trainer.parameters if trainer.config.ema and not trainer.progress.step else 0
    model = fitted_model(trainer, memory_used(trainer.device) + later + average)
    return memory_figures(trainer, model, trainer.layout.positions(trainer.device.kind))


def memory_figures(trainer: Trainer, model: MemoryModel, positions: int) -> MemoryFigures:
    """The memory of a run whose microbatches have this many positions per side."""
    limit = memory_available(trainer.device)
    use = model.use(positions, limit or math.inf)
    fits, fitting = not limit or use.total <= limit, model.largest_fitting(limit)
    return MemoryFigures(
        here=use,
        limit=limit,
        positions_per_microbatch=positions,
        fitting=fitting,
        preset="" if fits or fitting else largest_preset(presets(trainer, model), limit),
    )


def with_gpus(trainer: Trainer, model: MemoryModel, memory: MemoryFigures) -> MemoryFigures:
    """The figures with those of common GPUs, which follow from a measurement if this device is a GPU."""
    on_gpu = trainer.device.kind == "cuda"
    model = model if on_gpu else _model_on_gpu(trainer)
    positions = memory.positions_per_microbatch if on_gpu else trainer.layout.positions("cuda")
    return replace(memory, gpus=gpu_fits(model, positions, presets(trainer, model)), gpus_measured=on_gpu)


def fitted_model(trainer: Trainer, total: int) -> MemoryModel:
    """The memory model of a run, fitted to the `total` bytes that it took on this device."""
    model, positions = memory_model(trainer, _mode(trainer)), trainer.layout.positions(trainer.device.kind)
    if trainer.device.kind == "cuda":
        return model.calibrated(positions, total - _decoding_so_far(trainer))
    # The libraries take most of it: everything that is not predicted is counted as theirs.
    known = replace(model, runtime=0).use(positions).total
    return replace(model, runtime=max(0, total - known))


def memory_model(trainer: Trainer, mode: Mode) -> MemoryModel:
    """The memory model of a run on a device of this kind, from sizes alone."""
    config = trainer.config
    return MemoryModel(
        config=trainer.model.config,
        mode=mode,
        parameters=trainer.parameters,
        optimizer=_optimizer_size(trainer),
        averages=bool(config.ema),
        classes=trainer.training_data.vocabularies.target.size,
        workload=_workload(trainer, mode),
        workers=_workers(trainer.update) if mode == "cpu" else 1,
        passes=_passes(config),
        scale=_computed_at_once(trainer) if mode == "cpu" else 1.0,
        decoding=0 if mode == "cpu" else _decoding(trainer),
    )


def _computed_at_once(trainer: Trainer) -> float:
    """The part of a batch that a CPU computes at once: in padded rows, every shard has a part of each batch."""
    share = trainer.share
    return share.at_once / share.shards if share and trainer.progress.layout == "padded" else 1.0


def _decoding(trainer: Trainer) -> int:
    """Bytes of the slots that translate all validation lines on a GPU."""
    config, lines = trainer.model.config, len(trainer.training_data.valid_texts.sources)
    return decoding_memory(config, lines) if isinstance(config, TransformerConfig) and understands(config) else 0


def _decoding_so_far(trainer: Trainer) -> int:
    """Bytes of the slots that have translated some validation lines already."""
    engine = trainer.translator.engines.torch
    return engine.batcher.bytes_in_pools if isinstance(engine, SlotEngine) else 0


def _workers(update: Update) -> int:
    """How many copies of the model compute at the same time, each with gradients of its own."""
    if isinstance(update, ShardedUpdate):
        return len(update.replicas)
    return len(update.replicas.models) if isinstance(update, PlainUpdate) else 1


def _optimizer_size(trainer: Trainer) -> int:
    """Bytes of the optimizer's state; one divided among processes has two moments of each parameter."""
    if isinstance(trainer.state, ShardedState):
        return 8 * trainer.parameters
    return _bytes(optimizer_tensors(trainer.state.optimizer, trainer.model))


def _workload(trainer: Trainer, mode: Mode) -> Workload:
    pairs, pages = trainer.training_data.first_epoch, trainer.progress.layout == "pages" or mode == "kernels"
    return Workload(
        tokens_per_batch=trainer.config.tokens_per_batch,
        source_per_target=float(pairs.source_lengths.sum() / pairs.target_lengths.sum()),
        longest=Microbatch(int(pairs.source_lengths.max()), int(pairs.target_lengths.max())),
        pages=pages,
        page_width=trainer.model.page_width or WIDTH,
    )


def _mode(trainer: Trainer) -> Mode:
    if trainer.device.kind == "cpu":
        return "cpu"
    packed = isinstance(trainer.update, GraphedUpdate) and trainer.progress.layout == "pages"
    return "kernels" if packed else "autocast"


def _model_on_gpu(trainer: Trainer) -> MemoryModel:
    """The memory model of the same run on a GPU, which nothing was measured on."""
    config = trainer.model.config
    has_kernels = isinstance(config, TransformerConfig) and fused.understands(config) and trainer.model.page_width
    return memory_model(trainer, "kernels" if has_kernels else "autocast")


def presets(trainer: Trainer, model: MemoryModel) -> dict[str, MemoryModel]:
    """The memory models of the presets with fewer parameters than this model, largest first."""
    both, config = trainer.training_data.vocabularies, trainer.model.config
    smaller = {}
    for name in LARGEST_FIRST if isinstance(config, TransformerConfig) else ():
        other = replace(config, **PRESETS[name]["model"])
        shapes = parameter_shapes(other, both.source.size, both.target.size)
        parameters = sum(one.numel() for one in shapes.values())
        if parameters < model.parameters:
            optimizer = round(model.optimizer * parameters / model.parameters)
            smaller[name] = replace(model, config=other, parameters=parameters, optimizer=optimizer)
    return smaller


# --- disk ------------------------------------------------------------------------------------------------------


def disk_figures(trainer: Trainer) -> DiskFigures:
    """The space that the run folder takes: three checkpoints while one is written, the weights to average, and the best."""
    folder, data = trainer.checkpoints.folder.path, trainer.training_data
    tensors = stored_tensors(trainer.model)
    weights = _bytes(tensors) + HEADER * len(tensors)
    state = _optimizer_size(trainer) + 3 * HEADER * len(tensors) + (weights if trainer.config.ema else 0)
    forecast, average = trainer.clock.forecast(), trainer.config.average
    # Distinct steps: the last one is saved twice, and may be averaged.
    checkpoints = max(1, forecast.checkpoints - forecast.costs.final_checkpoints + 1)
    averaged = min(average, checkpoints)
    other = OTHER_FILES + LOGGED * forecast.last_step // trainer.config.log_every
    full = min(3, checkpoints + 1)
    return DiskFigures(
        running=full * (weights + state) + max(0, averaged - 2) * weights + weights + other,
        finished=weights + state + weights * (2 if averaged > 1 else 1) + other,
        free=shutil.disk_usage(_existing(folder)).free,
        cache=data.train.size + data.valid.size,
        cache_folder=str(cache_folder(data.config.data.cache)),
        used=_used(folder),
        first=weights + state + (0 if trainer.checkpoints.folder.weights("best").exists() else weights),
    )


def _used(folder: Path) -> int:
    """Bytes of the files in a folder; linked ones count once."""
    files = {(one.st_dev, one.st_ino): one.st_size for one in (path.lstat() for path in folder.rglob("*"))}
    return sum(files.values())


def _existing(path: Path) -> Path:
    return next(parent for parent in (path.resolve(), *path.resolve().parents) if parent.exists())


def _bytes(tensors: dict[str, Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
