"""One training run from its request to its result: prepare the data, train, write the model card."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from transduce.checkpoint import RunFolder, freed_by_deleting, read_about
from transduce.device import choose_device
from transduce.errors import DamagedFile, RunError
from transduce.model import make_model, stored_tensors
from transduce.training.card import RunSummary, draw_curves, write_card
from transduce.training.loop import Trainer
from transduce.training.prepare import Prepared, prepare
from transduce.training.report import Reporter, SilentReporter
from transduce.training.request import TrainingRequest, requested_settings
from transduce.translator import better_weights, load_weights


@dataclass(frozen=True)
class Result:
    """A finished run."""

    run: str
    steps: int
    seconds: float
    weights: str  # which weights are the better ones: best or averaged
    metric: str
    score: float
    signature: str
    lines: int  # of the validation data, translated greedily, that the score is of


def train(
    run: str | Path, request: TrainingRequest, *, reporter: Reporter | None = None, begun: float | None = None
) -> Result:
    """Start a run or resume it, until its budget ends; raises `Stopped` if a signal comes first.

    A budget in minutes counts from `begun`, a moment of `time.perf_counter`, or else from this call.
    """
    begun = time.perf_counter() if begun is None else begun
    folder, reporter = RunFolder(Path(run)), reporter or SilentReporter()
    requested = requested_settings(request)
    asked = requested.config.train
    choose_device(asked.device, asked.precision, asked.threads)  # refused now rather than when the data are ready
    with _alone_in(folder):
        prepared = prepare(folder, requested, reporter.say, begun)
        trainer = make_trainer(folder, prepared, reporter, begun)
        trainer.run()
        result = _conclude(folder, prepared, trainer)
    reporter.say(
        f"done after {result.steps:,} steps and {result.seconds / 60:.1f} minutes: {result.metric} {result.score:.2f} "
        f"on {result.lines:,} validation lines, greedy search ({result.weights} weights; {result.signature})\n"
        f"next: transduce translate {run} < input > output"
    )
    if size := freed_by_deleting(folder.checkpoints):
        reporter.say(
            f"{folder.checkpoints}: {size / 1e6:,.1f} MB, needed only to train this run further; "
            "delete that folder to free the space"
        )
    return result


@contextmanager
def _alone_in(folder: RunFolder) -> Iterator[None]:
    """Two processes must not train one run; the lock goes with the process, however it ends."""
    lock = folder.lock
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The one who had it before may have removed the name since we opened it: then it locks nothing.
            if not lock.exists() or os.fstat(file.fileno()).st_ino != lock.stat().st_ino:
                raise BlockingIOError
        except OSError:
            raise RunError(f"{folder.path}: another process is training this run") from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def make_trainer(folder: RunFolder, prepared: Prepared, reporter: Reporter, begun: float | None = None) -> Trainer:
    """The model in its first state, or the state it was saved in, with all that trains it."""
    training_data, config = prepared.training_data, prepared.training_data.config
    device = choose_device(config.train.device, config.train.precision, config.train.threads)
    start = (
        None if prepared.start is None else prepared.start.model()
    )  # refused before ours, of the same size, is built
    torch.manual_seed(config.train.seed)
    model = make_model(config.model, training_data.vocabularies.source.size, training_data.vocabularies.target.size)
    if start is not None and prepared.start is not None:
        load_weights(model, stored_tensors(start), str(prepared.start.folder.path))
    trainer = Trainer(folder, training_data, model, device, reporter, begun)
    reporter.say(
        f"model: {trainer.parameters / 1e6:.2f} M parameters on {device.name}{', bf16' if device.bf16 else ''}; "
        f"{trainer.steps_per_epoch:,} steps an epoch, {100 * trainer.padding:.1f} % padding"
    )
    return trainer


def _conclude(folder: RunFolder, prepared: Prepared, trainer: Trainer) -> Result:
    """The card and the curves, and what the run came to."""
    training_data, progress = prepared.training_data, trainer.progress
    lengths = training_data.train.source_lengths[np.concatenate(training_data.passes(0))]
    summary = RunSummary(
        data=prepared.about_data,
        parameters=trainer.parameters,
        source_size=training_data.vocabularies.source.size,
        target_size=training_data.vocabularies.target.size,
        source_tokens=progress.source_tokens,
        target_tokens=progress.target_tokens,
        mean_length=float(lengths.mean()),
        steps=progress.step,
        seconds=progress.seconds,
        device=trainer.device.name,
    )
    write_card(folder, training_data.config, summary)
    try:
        draw_curves(folder.metrics, folder.path / "curves.png")
    except DamagedFile as error:  # no reason to end a finished run with an error
        trainer.reporter.say(f"{error}; the curves are not drawn")
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
    )
