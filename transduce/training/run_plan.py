"""The plan of a run: parameters, tokens, steps, time, operations, memory and disk, and what to change if it does not fit.

`train` prints a line of this before its first step, and `transduce plan` all of it. Knows numbers only: the trainer and the
rehearsal (`transduce/training/rehearsal.py`) measure them.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transduce.config.rounding import rounded
from transduce.errors import TrainingError
from transduce.training.clock import Forecast, duration
from transduce.training.memory_model import GPUS, MemoryModel, MemoryUse, usable
from transduce.training.scaling import ClusterFigures


@dataclass(frozen=True)
class ModelFigures:
    """The model and the device it is trained on."""

    parameters: int
    shape: str
    device: str


@dataclass(frozen=True)
class EpochFigures:
    """One pass over the training data."""

    pairs: int
    source_tokens: int
    target_tokens: int
    steps: int
    padding: float  # share of positions that hold no token


@dataclass(frozen=True)
class BudgetFigures:
    """The rest of the run, from now to the end of its budget."""

    last_step: int
    steps: int  # left to do
    epochs: float
    target_tokens: int
    flops: float
    seconds: float  # of the whole command
    starting_seconds: float  # before the first step
    step_seconds: float
    validations: int
    validation_seconds: float
    checkpoints: int
    checkpoint_seconds: float


@dataclass(frozen=True)
class GpuFit:
    """Whether the run fits on a GPU of this size, and with which setting it would."""

    gigabytes: int
    needed: int  # bytes
    fits: bool
    positions_per_microbatch: int  # the largest that fits; 0 if none does
    preset: str = ""  # the largest preset that fits, if no microbatch does


@dataclass(frozen=True)
class MemoryFigures:
    """The memory of this device and of common GPUs, in bytes."""

    here: MemoryUse
    limit: int  # of this device; 0 if unknown
    positions_per_microbatch: int
    fitting: int  # the largest positions_per_microbatch that fits here; 0 if none does
    preset: str  # the largest preset that fits here, if no microbatch does
    gpus: tuple[GpuFit, ...] = ()
    gpus_measured: bool = False  # whether the figures for GPUs follow from a measurement on a GPU

    @property
    def fits(self) -> bool:
        return not self.limit or self.here.total <= self.limit


@dataclass(frozen=True)
class DiskFigures:
    """The space on disk in bytes."""

    running: int  # the most that the run folder takes while it trains
    finished: int
    free: int  # where the run folder is or would be
    cache: int
    cache_folder: str
    used: int = 0  # by the run folder already
    first: int = 0  # for the next checkpoint, and for the best weights if there are none yet

    @property
    def missing(self) -> int:
        """How much space is too little for the whole run."""
        return max(0, self.running - self.used - self.free)


@dataclass(frozen=True)
class RunPlan:
    """Everything that a run will take."""

    model: ModelFigures
    epoch: EpochFigures
    budget: BudgetFigures
    memory: MemoryFigures
    disk: DiskFigures
    changes: tuple[str, ...] = field(default=())  # what to change if it does not fit
    cluster: ClusterFigures | None = None  # the same run on several GPUs, if that was asked for

    def as_dict(self) -> dict[str, Any]:
        """The plan for `--json`."""
        memory = self.memory
        figures = asdict(self)
        figures["memory"] |= {"fits": memory.fits, "here": {**asdict(memory.here), "total": memory.here.total}}
        figures["cluster"] = self.cluster.as_dict() if self.cluster else None
        return figures

    def summary(self) -> str:
        """The part of the line that `train` prints, and what to change; for the disk, see `check_disk`."""
        here = f"about {size(self.memory.here.total)} of memory and {size(self.disk.running)} of disk"
        return "; ".join([here, *(change for change in self.changes if change != _disk_change(self.disk))])

    def lines(self) -> list[str]:
        """The plan as text, one topic per line."""
        return [f"{name:<8} {text}" for name, text in self._topics()]

    def _topics(self) -> list[tuple[str, str]]:
        model, epoch, budget, memory = self.model, self.epoch, self.budget, self.memory
        changes = self.changes or ("nothing: the run fits on this machine",)
        return [
            ("model", f"{model.parameters / 1e6:.2f} M parameters ({model.shape}) on {model.device}"),
            (
                "epoch",
                f"{epoch.pairs:,} pairs, {_count(epoch.source_tokens)} source and {_count(epoch.target_tokens)} target tokens "
                f"in {epoch.steps:,} steps; {100 * epoch.padding:.1f} % padding",
            ),
            (
                "budget",
                f"{budget.steps:,} steps{f' up to step {budget.last_step:,}' * (budget.steps < budget.last_step)}: "
                f"{rounded(budget.epochs, 3)} epochs, "
                f"{_count(budget.target_tokens)} target tokens, {budget.flops:.2g} FLOPs",
            ),
            ("time", f"{duration(budget.seconds)}: {_time(budget)}"),
            ("memory", f"{size(memory.here.total)} of {size(memory.limit)}: {_parts(memory.here)}"),
            ("gpus", f"{_gpus(memory)}"),
            ("disk", _disk(self.disk)),
            *(("change", change) for change in changes),
            *(self.cluster.topics() if self.cluster else ()),
        ]


def budget_figures(forecast: Forecast, epoch: EpochFigures, flops_per_epoch: float, starting: float) -> BudgetFigures:
    """The rest of a run, `starting` seconds before its first step included."""
    epochs = forecast.steps / epoch.steps
    return BudgetFigures(
        last_step=forecast.last_step,
        steps=forecast.steps,
        epochs=epochs,
        target_tokens=round(epochs * epoch.target_tokens),
        flops=epochs * flops_per_epoch,
        seconds=starting + forecast.seconds,
        starting_seconds=starting,
        step_seconds=forecast.costs.step,
        validations=forecast.validations,
        validation_seconds=forecast.costs.validation,
        checkpoints=forecast.checkpoints,
        checkpoint_seconds=forecast.costs.checkpoint,
    )


def gpu_fits(model: MemoryModel, positions: int, smaller: dict[str, MemoryModel]) -> tuple[GpuFit, ...]:
    """Whether the run fits on common GPUs; `smaller` has the models of the presets, largest first."""
    fits = []
    for gigabytes in GPUS:
        needed = model.use(positions, usable(gigabytes)).total
        fitting = positions if needed <= usable(gigabytes) else model.largest_fitting(usable(gigabytes))
        preset = "" if fitting else largest_preset(smaller, usable(gigabytes))
        fits.append(GpuFit(gigabytes, needed, needed <= usable(gigabytes), fitting, preset))
    return tuple(fits)


def largest_preset(presets: dict[str, MemoryModel], capacity: float) -> str:
    """The first of these presets that fits into so many bytes with some microbatch; an empty string if none does."""
    return next((name for name, model in presets.items() if model.largest_fitting(capacity)), "")


def changes(memory: MemoryFigures, disk: DiskFigures) -> tuple[str, ...]:
    """What to change so that the run fits."""
    found = []
    if not memory.fits and memory.fitting:
        found.append(f"it does not fit into memory: --set train.positions_per_microbatch={memory.fitting} does")
    elif not memory.fits:
        model = f"--preset {memory.preset}" if memory.preset else "a smaller model"
        found.append(f"it does not fit into memory with any microbatch: {model} or a lower data.max_length does")
    for gpu in memory.gpus if memory.fits else ():
        if not gpu.fits:
            found.append(f"on a GPU with {gpu.gigabytes} GB: {_setting(gpu)}")
    if disk.missing:
        found.append(_disk_change(disk))
    return tuple(found)


def _disk_change(disk: DiskFigures) -> str:
    return f"the disk has too little space: free {size(disk.missing)}, or lower train.average"


def check_disk(disk: DiskFigures, folder: Path) -> str:
    """A warning if the disk may become full, or nothing; without space for the next checkpoint, the run is refused."""
    if disk.first > disk.free:
        raise TrainingError(
            f"{folder}: the disk has too little space: the first checkpoint and the best weights need {size(disk.first)}, and "
            f"{size(disk.free)} are free. Free some space, give a run folder on another disk, or train a smaller model (model.d_model)"
        )
    if not disk.missing:
        return ""
    return (
        f"warning: the disk may become full: this run needs up to {size(disk.running - disk.used)}, and {size(disk.free)} are "
        f"free: free {size(disk.missing)} more, give a run folder on another disk, or lower train.average"
    )


def _setting(gpu: GpuFit) -> str:
    if gpu.positions_per_microbatch:
        return f"--set train.positions_per_microbatch={gpu.positions_per_microbatch}"
    return f"--preset {gpu.preset}" if gpu.preset else "no preset fits"


def _time(budget: BudgetFigures) -> str:
    return (
        f"{duration(budget.starting_seconds)} to start, {budget.steps:,} steps of {rounded(budget.step_seconds)} s, "
        f"{budget.validations:,} validations of {rounded(budget.validation_seconds)} s, "
        f"{budget.checkpoints:,} checkpoints of {rounded(budget.checkpoint_seconds)} s"
    )


def _parts(use: MemoryUse) -> str:
    parts = {
        "weights": use.weights,
        "gradients": use.gradients,
        "optimizer": use.optimizer,
        "moving average": use.average,
        "activations and logits": use.activations + use.logits,
        "libraries and data": use.runtime,
        "decoding": use.decoding,
    }
    return ", ".join(f"{name} {size(value)}" for name, value in parts.items() if value)


def _gpus(memory: MemoryFigures) -> str:
    if not memory.gpus:
        return "not predicted for this model"
    fits = [f"{gpu.gigabytes} GB {'fits' if gpu.fits else 'too small'}" for gpu in memory.gpus]
    basis = "" if memory.gpus_measured else " (predicted without a GPU: not measured)"
    return f"{size(memory.gpus[-1].needed)} needed{basis}: {', '.join(fits)}"


def _disk(disk: DiskFigures) -> str:
    return (
        f"run folder up to {size(disk.running)}, {size(disk.finished)} when finished ({size(disk.free)} free); "
        f"cache {size(disk.cache)} in {disk.cache_folder}"
    )


def _count(number: float) -> str:
    return f"{number / 1e6:.2f} M" if number >= 1e6 else f"{number:,.0f}"


def size(amount: float) -> str:
    """Bytes as a person would write them."""
    return f"{amount / 1e9:.1f} GB" if amount >= 1e9 else f"{rounded(amount / 1e6, 3)} MB"
