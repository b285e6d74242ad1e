"""A rehearsal of a run for `transduce plan`: the largest batch, a dozen real steps, a validation and a checkpoint.

Trains a model that is then thrown away. Writes only into a temporary folder, which is removed, and into the cache of prepared
data, from which `train` continues.
"""

import time
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from transduce import checkpoint
from transduce.checkpoint import RunFolder
from transduce.device import choose_device
from transduce.memory import restart_peak
from transduce.training.card import draw_curves
from transduce.training.largest_batch import OutOfMemory
from transduce.training.layout import POSITIONS
from transduce.training.loop import Trainer
from transduce.training.planning import fitted_model, memory_figures, memory_used, plan_of, with_gpus
from transduce.training.prepare import Inspect, Prepared, no_findings, prepare_data
from transduce.training.report import MetricsLogger, Reporter, SilentReporter
from transduce.training.request import TrainingRequest, requested_settings
from transduce.training.resuming import for_run
from transduce.training.run import make_trainer
from transduce.training.run_plan import RunPlan
from transduce.training.scaling import Budget, Cluster, ClusterFigures, Steps, cluster_figures
from transduce.training.timing import validation_seconds
from transduce.training.together import for_processes

STEPS, WARM_UP_STEPS = 12, 2
MOST_SECONDS = 60.0  # for the steps; a slow machine makes fewer of them
VALIDATING_SECONDS = 3.0  # of a validation; a longer one is timed on a part of its lines
EXITING = 1.0  # seconds from the last line to the end of the process
SMALLEST_TRY = 1_024  # positions: a batch smaller than this is not tried after a lack of memory


def plan_run(
    run: str | Path,
    request: TrainingRequest,
    *,
    reporter: Reporter | None = None,
    begun: float | None = None,
    inspect: Inspect = no_findings,
    cluster: Cluster | None = None,
) -> RunPlan:
    """What `train` with the same arguments will take, here and on a cluster; writes nothing into the run folder."""
    begun = time.perf_counter() if begun is None else begun
    reporter = reporter or SilentReporter()
    requested = requested_settings(for_run(RunFolder(Path(run)), request) if run else request)
    given = requested.config.train
    choose_device(given.device, given.precision, given.threads)  # fail now rather than after reading the data
    with TemporaryDirectory() as scratch:
        folder = RunFolder(Path(run) if run else Path(scratch, "run"))
        if cluster and not folder.config.exists():
            requested = for_processes(requested, cluster.processes, on_gpus=True)
        prepared = prepare_data(folder, requested, reporter.say, begun, inspect, reporter.features)
        restart_peak()
        # `train` will find the vocabularies and the ids in the cache, so the time to make them does not count.
        trainer = _trainer_that_fits(folder, prepared, reporter, begun + prepared.caching_seconds)
        planned = _rehearsed(trainer, prepared, Path(scratch), reporter)
        return replace(planned, cluster=_on_cluster(cluster, trainer, planned)) if cluster else planned


def _on_cluster(cluster: Cluster, trainer: Trainer, planned: RunPlan) -> ClusterFigures:
    """The run on several GPUs, from the steps that were rehearsed here: all shards of a step, one after the other."""
    budget, config = planned.budget, trainer.config
    steps = Steps(
        parameters=trainer.parameters,
        tokens=trainer.layout.tokens_per_step,
        step_seconds=budget.step_seconds,
        measured=trainer.device.kind == "cuda",
        shards=config.shards,
        sends_bf16=config.tokens_per_batch <= config.shards * trainer.layout.positions("cuda"),
    )
    left = Budget(
        steps=budget.steps,
        minutes=bool(config.minutes),
        validating_seconds=budget.validations * budget.validation_seconds,
        other_seconds=budget.starting_seconds + budget.checkpoints * budget.checkpoint_seconds,
    )
    return cluster_figures(cluster, steps, left)


def _trainer_that_fits(folder: RunFolder, prepared: Prepared, reporter: Reporter, begun: float) -> Trainer:
    """The trainer of the run; if its largest batch does not fit into memory, with smaller microbatches."""
    trainer = make_trainer(folder, prepared, reporter, begun)
    try:
        trainer.try_largest()
    except OutOfMemory:
        positions = trainer.layout.positions(trainer.device.kind) // 2
        if positions < SMALLEST_TRY:
            raise
        reporter.say(f"out of memory: trying microbatches of {positions:,} positions")
        del trainer  # and its memory
        torch.cuda.empty_cache()
        data = prepared.training_data
        train = replace(data.config.train, positions_per_microbatch=positions)
        smaller = replace(data, config=replace(data.config, train=train))
        return _trainer_that_fits(folder, replace(prepared, training_data=smaller), reporter, begun)
    return trainer


def _rehearsed(trainer: Trainer, prepared: Prepared, scratch: Path, reporter: Reporter) -> RunPlan:
    asked = prepared.training_data.config.train
    changed = trainer.config.positions_per_microbatch != asked.positions_per_microbatch
    kind = trainer.device.kind
    positions = asked.positions_per_microbatch or POSITIONS[kind] if changed else trainer.layout.positions(kind)
    trainer.plan_budget()
    starting, costs = trainer.clock.spent - trainer.progress.spent, trainer.clock.costs
    if trainer.clock.forecast().steps:
        reporter.say(f"measuring {STEPS} steps, a validation and a checkpoint")
        costs.step = seconds_per_step(trainer)
        costs.validation = validation_seconds(trainer, VALIDATING_SECONDS)
        costs.checkpoint = seconds_per_checkpoint(trainer, scratch)
        costs.closing = seconds_to_close(trainer, RunFolder(scratch))
        trainer.minutes.revise_as_of(starting + trainer.progress.spent)
    total = max(memory_used(trainer.device), prepared.reading_peak if kind == "cpu" else 0)
    model = fitted_model(trainer, total)
    memory = memory_figures(trainer, model, positions)
    return plan_of(trainer, with_gpus(trainer, model, memory), starting)


def seconds_per_step(trainer: Trainer) -> float:
    """The mean time of real updates, for a step with the mean number of tokens."""
    tokens, begun, ended = 0, 0.0, time.perf_counter() + MOST_SECONDS
    with trainer.fed() as fed:
        for number in range(WARM_UP_STEPS + STEPS):
            if number == WARM_UP_STEPS or not begun:
                trainer.update.measured()  # waits for the device
                tokens, begun = 0, time.perf_counter()
            data = next(fed)
            trainer.update.begin(number)
            for batch in data.batches:
                trainer.update.add(batch, data.target_tokens)
            trainer.update.apply(learning_rate=1e-6)
            trainer.state.update_average()
            tokens += data.target_tokens
            if time.perf_counter() > ended:
                break
        trainer.update.measured()
    return (time.perf_counter() - begun) / tokens * trainer.layout.tokens_per_step


def seconds_per_checkpoint(trainer: Trainer, scratch: Path) -> float:
    """The time to write a checkpoint, to the temporary folder; also averages it, since that takes memory too."""
    begun = time.perf_counter()
    state = trainer.state.checkpoint(asdict(trainer.progress))
    path = checkpoint.save(RunFolder(scratch), trainer.progress.step, state, trainer.checkpoints.known)
    seconds = time.perf_counter() - begun
    if trainer.config.average > 1:
        checkpoint.average([path / "weights.safetensors"] * 2)
    return seconds


def seconds_to_close(trainer: Trainer, folder: RunFolder) -> float:
    """The time to load what logs and draws the curves, to draw them, and to exit; it takes memory too."""
    begun = time.perf_counter()
    MetricsLogger(folder, trainer.progress, SilentReporter()).close()
    draw_curves(folder.metrics, folder.path / "curves.png", dropout=True)
    return time.perf_counter() - begun + EXITING
