"""The training loop: steps, validations and checkpoints until the budget ends.

A step is a function of (weights, seed, step) alone: its data come from the plan of its epoch, its dropout from a
generator seeded anew. So a run that was killed and resumed has the very same weights as one that was not.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from transduce.checkpoint import RunFolder, Tensors
from transduce.data.batches import Batching, Planner, padding_share
from transduce.data.growing import Growing
from transduce.data.pages import Paging
from transduce.device import Device
from transduce.errors import TrainingError
from transduce.model import Transformer
from transduce.threads import ahead
from transduce.training.feed import AHEAD, Material, Portion, portions
from transduce.training.keeper import Keeper
from transduce.training.kept import holding, kept_weights, weights_of
from transduce.training.optimizer import make_optimizer
from transduce.training.progress import Pace, last_step, pace_for
from transduce.training.report import Recorder, Voice
from transduce.training.schedule import make_schedule
from transduce.training.stopping import StopSignals
from transduce.training.update import GraphedUpdate, PlainUpdate, Update
from transduce.training.validation import time_validation, validate
from transduce.translator import Translator, load_weights

PLACES = {"cpu": 2_048, "cuda": 131_072}  # of a side at once: what fits a CPU's caches is also fastest there
WARMING_STEPS, TIMED_STEPS = 5, 20  # between these a budget in minutes is measured


class Stopped(Exception):
    """A signal came and the run is saved."""

    def __init__(self, signal_number: int, step: int) -> None:
        super().__init__(f"stopped at step {step:,} and saved; the same command goes on from there")
        self.signal_number = signal_number


class Trainer:
    """One run, from where it is to its end."""

    def __init__(self, folder: RunFolder, material: Material, model: Transformer, device: Device, voice: Voice) -> None:
        self.material, self.device, self.voice = material, device, voice
        self.config = material.config.train
        self.model = model.to(device.torch)
        self.translator = Translator.around(model, material.vocabularies, material.config, device)
        self.optimizer = make_optimizer(model, self.config)
        self.schedule = make_schedule(material.config)
        self.ema: Tensors = {}
        self.keeper = Keeper(folder, self.config, material.vocabularies, voice)
        self.progress = self.keeper.restore(self.model, self.optimizer, self.ema)
        self.planner = self._make_planner()
        self.update: Update = self._make_update()
        epoch = self._planned(self.config.ramp_epochs)  # the first one whose steps are whole
        small = range(min(self.config.ramp_epochs, math.ceil(self.config.epochs)))
        self.epochs = [*(len(self._planned(number)) for number in small), len(epoch)]  # steps of the first ones
        self.padding = padding_share(self.planner, epoch, material.train)
        batches = (batch for step in epoch for batch in step)
        self.largest = max(batches, key=lambda batch: self.planner.places_of(batch, material.train))
        self.steps_here, self.warm_at, self.begun = 0, 0.0, 0.0
        self.learning_rate = self.gradient_norm = 0.0

    def _make_planner(self) -> Planner[Any]:
        """Pages on a GPU, padded rows on a CPU; a run keeps what it began with, wherever it goes on."""
        by_device = "pages" if self.device.kind == "cuda" else "padded"
        layout = by_device if self.config.layout == "auto" else self.config.layout
        self.progress.layout = layout = self.progress.layout or layout
        places = self.config.tokens_per_microbatch or PLACES[self.device.kind]
        kind = Paging if layout == "pages" else Batching
        planner = kind(self.config.tokens_per_batch, places, self.config.seed)
        return Growing(planner, self.config.ramp_epochs) if self.config.ramp_epochs else planner

    def _planned(self, epoch: int) -> list[list[Any]]:
        return self.planner.plan(self.material.train, epoch, self.material.passes(epoch))

    def _make_update(self) -> Update:
        graphed = self.device.kind == "cuda" and self.device.bf16 and self.progress.layout == "pages"
        kind = GraphedUpdate if graphed else PlainUpdate
        return kind(self.model, self.optimizer, self.config, self.device)

    @property
    def steps_per_epoch(self) -> int:
        return self.epochs[-1]

    @property
    def last_step(self) -> int:
        return last_step(self.config, self.epochs, self.progress)

    def run(self) -> None:
        """Train to the end of the budget; raises `Stopped` when a signal asks for it."""
        if self._is_over() and self.keeper.is_complete(self.progress, self.last_step):
            self.keeper.finish()
            self.voice.say(f"already finished at step {self.progress.step:,}; a larger budget goes on from there")
            return
        self.recorder = Recorder(self.keeper.folder, self.progress, self.voice)
        self.begun = time.perf_counter() - self.progress.seconds
        try:
            with StopSignals() as signals, self._fed() as fed:
                self._try_largest()
                while not self._is_over():
                    if not self._step(next(fed), signals):
                        self._save()
                        raise Stopped(signals.received or 0, self.progress.step)
                    self._after_step()
                self._finish()
        finally:
            self.recorder.close()

    @contextmanager
    def _fed(self) -> Iterator[Iterator[Portion]]:
        on_gpu = self.device.kind == "cuda"
        items = portions(self.material, self.planner, self.progress.epoch, self.progress.position, pinned=on_gpu)
        if not on_gpu:
            yield items
        else:
            with ahead(items, AHEAD) as made:
                yield made

    def _is_over(self) -> bool:
        return self.progress.step >= self.last_step or self._out_of_patience()

    def _out_of_patience(self) -> bool:
        return 0 < self.config.patience <= self.progress.waited

    def _after_step(self) -> None:
        step, at_end = self.progress.step, self.progress.step == self.last_step
        if self.config.minutes and not self.progress.is_measured(self.config):
            self._measure_minutes()
        pace = Pace.of(self.config, self.progress)
        if step % self.config.log_every == 0:
            self._look()
            self.recorder.log(self.progress, self.learning_rate, self.gradient_norm)
        if step % pace.validate_every == 0 and not at_end:
            self._validate()
        if step % pace.checkpoint_every == 0 and not at_end:
            self._save()

    def _finish(self) -> None:
        """The last validation, the last checkpoint, and the average of the last few."""
        if self._out_of_patience():
            self.voice.say(f"no better score in {self.progress.waited} validations: stopping early (train.patience)")
        self._save()  # before the last validation, which may take long
        if self.progress.validated != self.progress.step or not self.keeper.has("best"):
            self._validate()
            self._save()
        self._average()
        self.keeper.finish()

    # --- one step ----------------------------------------------------------------------------------------------

    def _step(self, portion: Portion, signals: StopSignals) -> bool:
        """One optimizer update; False if a signal came first, and then nothing has changed."""
        progress = self.progress
        torch.manual_seed(int(np.random.SeedSequence([self.config.seed, progress.step]).generate_state(1)[0]))
        for batch in portion.batches:
            if signals.received is not None:
                self.update.forget()
                return False
            self.update.add(batch, portion.target_tokens)
        self.learning_rate = self.schedule(progress.step + 1, self.last_step)
        self.update.apply(self.learning_rate)
        self._update_ema()
        self._advance(portion)
        return True

    @torch.no_grad()
    def _update_ema(self) -> None:
        if self.config.ema:
            weights = weights_of(self.model)
            if not self.ema:
                self.ema |= {name: tensor.clone() for name, tensor in weights.items()}
            torch._foreach_lerp_([self.ema[name] for name in weights], list(weights.values()), 1 - self.config.ema)

    def _advance(self, portion: Portion) -> None:
        progress = self.progress
        progress.step += 1
        progress.position += 1
        progress.logged_tokens += portion.target_tokens
        progress.target_tokens += portion.target_tokens
        progress.source_tokens += portion.source_tokens
        if portion.ends_epoch:
            progress.epoch, progress.position = progress.epoch + 1, 0
        if self.device.kind == "cpu":  # looking costs a GPU's time: there it is done for the log
            self._look()
        self.recorder.step(progress, self.last_step, portion.target_tokens)

    def _look(self) -> None:
        """Fetch what the updates measured; a gradient that is not a number ends the run before anything is saved."""
        seen = self.update.measured()
        self.progress.logged_loss += seen.loss
        self.progress.logged_cross_entropy += seen.cross_entropy
        self.gradient_norm = seen.gradient_norm
        if not seen.finite:
            what = "gradient" if math.isfinite(seen.loss) else "loss"
            when = "it was not applied" if self.device.kind == "cpu" else "it began since the last line of the log"
            raise TrainingError(
                f"step {self.progress.step:,}: the {what} is not a number; {when} and the last checkpoint stands: "
                "lower train.learning_rate, raise train.warmup_steps, or set train.clip_norm=1"
            )

    def _try_largest(self) -> None:
        """Run the largest batch first: what does not fit fails now and not in an hour. On a GPU kernels compile here."""
        begun, train = time.perf_counter(), self.material.train
        pads = self.material.vocabularies.source.pad, self.material.vocabularies.target.pad
        try:
            self.update.add(self.planner.make(train, self.largest, *pads), tokens=1)
        except (MemoryError, RuntimeError) as error:
            if "memory" not in str(error).lower():
                raise
            places = self.planner.places_of(self.largest, train)
            raise TrainingError(
                f"the largest batch ({places:,} places) does not fit the memory of this device: "
                "lower train.tokens_per_microbatch or data.max_length"
            ) from None
        finally:
            self.update.forget()
        self.update.measured()
        if self.device.kind == "cuda":
            self.voice.say(f"kernels ready after {time.perf_counter() - begun:.1f} s")

    def _measure_minutes(self) -> None:
        """Turn minutes into steps once, early, and save it: a resumed run ends where an uninterrupted one does."""
        self.steps_here += 1
        if self.steps_here in (WARMING_STEPS, TIMED_STEPS):
            self._look()  # waits for the device
        now = time.perf_counter()
        if self.steps_here == WARMING_STEPS:
            self.warm_at = now
        elif self.steps_here == TIMED_STEPS:
            seconds = (now - self.warm_at) / (TIMED_STEPS - WARMING_STEPS)
            pause = time_validation(self.translator, self.material.valid, self.material.valid_texts)
            begun = time.perf_counter()
            self._save()
            pause += time.perf_counter() - begun
            left = self.config.minutes * 60 - (time.perf_counter() - self.begun)
            pace = pace_for(self.config, self.progress.step, left, seconds, pause)
            self.progress.measured, self.progress.pause_every = pace.last_step, pace.pause_every
            self.progress.measured_minutes = self.config.minutes
            self.voice.say(
                f"{self.config.minutes:g} minutes: {self.last_step:,} steps at {seconds:.4f} s a step, "
                f"a validation and checkpoint of {pause:.1f} s every {Pace.of(self.config, self.progress).validate_every:,}"
            )
            self._save()

    # --- validation and keeping --------------------------------------------------------------------------------

    def _validate(self) -> None:
        """Measure the weights to keep, and keep them if they are the best."""
        self._look()
        progress = self.progress
        weights = kept_weights(self.model, self.optimizer, self.ema)
        with holding(self.model, weights):
            validation = validate(self.translator, self.material.valid, self.material.valid_texts)
        if not math.isfinite(validation.loss):
            raise TrainingError(
                f"step {progress.step:,}: the validation loss is not a number; the last checkpoint before it stands: "
                "lower train.learning_rate or set train.clip_norm=1"
            )
        better = validation.rank > progress.best_rank or not self.keeper.has("best")
        progress.validated, progress.waited = progress.step, 0 if better else progress.waited + 1
        if better:
            progress.best_rank, progress.best_step = validation.rank, progress.step
            progress.best_score = str(validation.scores.main)
            self.keeper.give("best", weights, progress.step, validation)
        self.recorder.validated("valid", progress.step, validation, better)

    def _average(self) -> None:
        """`averaged`: the mean of the last checkpoints (section 6.1), validated like any other weights."""
        averaged = self.keeper.averaged(self.progress, self.last_step)
        if averaged:
            load_weights(self.model, averaged, "the averaged weights")
            validation = validate(self.translator, self.material.valid, self.material.valid_texts)
            self.keeper.give("averaged", averaged, self.progress.step, validation)
            self.recorder.validated("averaged", self.progress.step, validation, better=False)

    def _save(self) -> None:
        self._look()
        if not all(bool(tensor.isfinite().all()) for tensor in weights_of(self.model).values()):
            raise TrainingError(
                f"step {self.progress.step:,}: weights are not numbers and were not saved; the last checkpoint stands: "
                "lower train.learning_rate or set train.clip_norm=1"
            )
        self.progress.seconds = time.perf_counter() - self.begun
        self.progress.metrics_size = self.recorder.size()
        self.keeper.save(self.progress, self.model, self.optimizer, self.ema, self.last_step)
