"""One training run from its request to its result: prepare the data, train, write the model card."""

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from transduce.checkpoint import RunFolder, freed_by_deleting, read_about
from transduce.config import ModelConfig
from transduce.device import choose_device
from transduce.errors import DamagedFile, TrainingError, TransduceError
from transduce.model import make_model, stored_tensors
from transduce.run_lock import alone_in
from transduce.training.card import RunSummary, draw_curves, write_card
from transduce.training.choices import reads_text
from transduce.training.clock import duration
from transduce.training.loop import Trainer
from transduce.training.prepare import Inspect, Prepared, no_findings, prepare
from transduce.training.processes import Alone, Processes
from transduce.training.rendezvous import Launch
from transduce.training.report import Reporter, SilentReporter, lines_scored
from transduce.training.request import TrainingRequest, requested_settings
from transduce.training.result import Result
from transduce.training.resuming import for_run
from transduce.translator import better_weights, load_weights, read_config


def train(
    run: str | Path,
    request: TrainingRequest,
    *,
    reporter: Reporter | None = None,
    begun: float | None = None,
    inspect: Inspect = no_findings,
) -> Result:
    """Start or resume a run and train to the end of its budget; raises `Stopped` if a signal comes first.

    A budget in minutes counts from `begun`, a value of `time.perf_counter()`, or else from this call.
    """
    begun = time.perf_counter() if begun is None else begun
    folder, reporter = RunFolder(Path(run)), reporter or SilentReporter()
    requested = requested_settings(for_run(folder, request))
    given = requested.config.train
    choose_device(given.device, given.precision, given.threads)  # fail now rather than after reading the data
    launch = Launch.of_environment()
    new, known = not folder.config.exists(), set(folder.path.glob("*"))

    def run_training(prepared: Prepared, processes: Processes, reporter: Reporter, threads: int) -> Result:
        undo = partial(_remove_new, folder, known) if new and processes.number == 0 else lambda: None
        trainer = _trained(partial(make_trainer, folder, prepared, reporter, begun, processes, threads), undo)
        return Result(**processes.first(lambda: asdict(_conclude(folder, prepared, trainer))))

    if launch.count > 1:
        from transduce.training.together import train_together

        result = train_together(folder, requested, reporter, begun, launch, run_training, inspect)
    else:
        with alone_in(folder):
            prepared = prepare(folder, requested, reporter.say, begun, inspect, reporter.features)
            result = run_training(prepared, Alone(), reporter, 0)
    if launch.number == 0:  # other machines need no run folder
        _say_finished(folder, result, reporter, time.perf_counter() - begun)
    return result


def _trained(make: Callable[[], Trainer], undo: Callable[[], None]) -> Trainer:
    """A trainer that has run; if it is refused before its first step, `undo` makes room for other settings, as the error advises."""
    trainer: Trainer | None = None
    try:
        trainer = make()
        trainer.run()
    except TransduceError:
        if trainer is None or not trainer.progress.step:
            undo()
        raise
    return trainer


def _remove_new(folder: RunFolder, known: set[Path]) -> None:
    """Remove what a new run has written: a folder that holds a run keeps its settings."""
    for path in set(folder.path.glob("*")) - known:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not known:
        with suppress(OSError):  # such as a folder that a disk is mounted at
            folder.path.rmdir()


def _say_finished(folder: RunFolder, result: Result, reporter: Reporter, command_seconds: float) -> None:
    config = read_config(folder)
    program = _program(config.model)
    text, search = reads_text(config), " with greedy search"
    following = f"translate {result.run} < input > output"
    if text:
        search, following = "", f'generate {result.run} --prompt "..."'
    elif config.data.task == "speech":
        following = f"transcribe {result.run} recording.wav"
    else:
        following += f"\n   or: {program} evaluate {result.run} SOURCE REFERENCE"
    reporter.say(
        f"finished {result.steps:,} step{'s' * (result.steps != 1)} in {described_times(result.seconds, command_seconds)}: {result.metric} {result.score:.{4 if text else 2}f} on "
        f"{lines_scored(result.lines, result.all_lines)}{search} (weights: {result.weights}; {result.signature})\n"
        f"next: {program} {following}"
    )
    if size := freed_by_deleting(folder.checkpoints):
        reporter.say(
            f"you may delete {folder.checkpoints} ({size / 1e6:,.1f} MB): it is only needed to train this run further"
        )


def _program(model: ModelConfig) -> str:
    """What runs a model of this family: `transduce`, or the user's file that registers it."""
    if type(model).__module__.partition(".")[0] == "transduce":
        return "transduce"
    return f"python {sys.argv[0] if sys.argv[0].endswith('.py') else 'FILE.py'}"


def described_times(training: float, command: float) -> str:
    """The seconds of training, and those of the whole command where they differ."""
    of_training, of_command = duration(training), duration(command)
    return f"{of_training} of training" + (f" (this command took {of_command})" if of_command != of_training else "")


def make_trainer(
    folder: RunFolder,
    prepared: Prepared,
    reporter: Reporter,
    begun: float | None = None,
    processes: Processes = Alone(),  # noqa: B008 - it has no state
    threads: int = 0,  # if the settings do not say how many
) -> Trainer:
    """The trainer of a run, with its model newly initialised, loaded for fine-tuning or restored from a checkpoint."""
    training_data, config = prepared.training_data, prepared.training_data.config
    device = choose_device(config.train.device, config.train.precision, config.train.threads or threads)
    # Load the other model first: if it is damaged, it is refused before a model of the same size is built.
    start = None if prepared.start is None else prepared.start.model()
    torch.manual_seed(config.train.seed)
    model = make_model(config.model, training_data.vocabularies.source.size, training_data.vocabularies.target.size)
    if start is not None and prepared.start is not None:
        load_weights(model, stored_tensors(start), str(prepared.start.folder.path))
    if processes.count > 1:
        load_weights(model, processes.spread(stored_tensors(model)), "the model of process 0")
    trainer = Trainer(folder, training_data, model, device, reporter, begun, processes)
    reporter.say(
        f"model: {trainer.parameters / 1e6:.2f} M parameters on {device.name}{', bf16' if device.bf16 else ''}; "
        f"{trainer.layout.steps_per_epoch:,} step{'s' * (trainer.layout.steps_per_epoch != 1)} per epoch, {100 * trainer.layout.padding:.1f} % padding"
    )
    if prepared.before and (message := trainer.clock.cut_short(prepared.before)):
        reporter.say(message)
    if device.kind == "cuda" and config.train.shards == 1 and not trainer.progress.step:
        reporter.say(
            "this run can use only one GPU, now and later: to share it among several with torchrun, start a new run with "
            f"train.shards={max(2, torch.cuda.device_count())} or more"
        )
    return trainer


def _conclude(folder: RunFolder, prepared: Prepared, trainer: Trainer) -> Result:
    """Write the model card and the curves, and return the result."""
    training_data, progress = prepared.training_data, trainer.progress
    epoch = training_data.epoch_size
    summary = RunSummary(
        data=prepared.about_data,
        parameters=trainer.parameters,
        source_size=training_data.vocabularies.source.size,
        target_size=training_data.vocabularies.target.size,
        source_tokens=progress.source_tokens,
        target_tokens=progress.target_tokens,
        mean_length=epoch.source_tokens / epoch.pairs,
        steps=progress.step,
        seconds=progress.seconds,
        device=trainer.device.name,
    )
    write_card(folder, training_data.config, summary)
    try:
        draw_curves(folder.metrics, folder.path / "curves.png", training_data.config.model.dropout > 0)
    except (DamagedFile, TrainingError) as error:  # a finished run should not end with an error
        trainer.reporter.say(f"{error}; curves.png was not drawn")
    which = better_weights(folder)
    about = read_about(folder.weights(which), needed=("metric", "score", "signature"))
    return Result(
        run=str(folder.path),
        steps=progress.step,
        seconds=progress.seconds,
        weights=which,
        metric=about["metric"],
        score=float(about["score"]),
        signature=about["signature"],
        lines=int(about.get("lines", 0)),
        all_lines=int(about.get("all_lines", 0)),
    )
