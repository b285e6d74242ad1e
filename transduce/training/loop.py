"""The training loop: steps, validations and checkpoints until the budget ends.

A step is a function of (weights, seed, step) alone: its data come from the plan of its epoch, its dropout from a
generator seeded anew. So a run that was killed and resumed has the very same weights as one that was not.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from transduce.checkpoint import RunFolder, Tensors
from transduce.config import Config
from transduce.data import Mixture
from transduce.data.batches import Batching, Ids, Pairs, Step, make_batch, padding_share
from transduce.device import Device
from transduce.errors import TrainingError
from transduce.evaluate import TestSet
from transduce.model import Transformer
from transduce.text import Vocabularies
from transduce.training.keeper import Keeper
from transduce.training.kept import holding, kept_weights, weights_of
from transduce.training.loss import batch_loss
from transduce.training.optimizer import make_optimizer
from transduce.training.progress import last_step
from transduce.training.report import Recorder, Voice
from transduce.training.schedule import make_schedule
from transduce.training.stopping import StopSignals
from transduce.training.validation import validate
from transduce.translator import Translator, load_weights

PLACES = {"cpu": 2_048, "cuda": 65_536}  # of a padded batch: what fits a CPU's caches is also fastest there
WARMING_STEPS, TIMED_STEPS = 5, 20  # between these a budget in minutes is measured
SHARE_FOR_STEPS = 0.93  # of the minutes; the rest is for validations and the end


class Stopped(Exception):
    """A signal came and the run is saved."""

    def __init__(self, signal_number: int, step: int) -> None:
        super().__init__(f"stopped at step {step:,} and saved; the same command goes on from there")
        self.signal_number = signal_number


@dataclass(frozen=True)
class Material:
    """What a run learns from and is measured by."""

    config: Config
    vocabularies: Vocabularies
    train: Pairs
    valid: Pairs
    valid_texts: TestSet

    def passes(self, epoch: int) -> Sequence[Ids]:
        """The pairs of an epoch: every one once, or as often as its corpus's weight says."""
        return Mixture.of(self.train.groups, self.config.data.weights).epoch(self.config.train.seed, epoch)


class Trainer:
    """One run, from where it is to its end."""

    def __init__(self, folder: RunFolder, material: Material, model: Transformer, device: Device, voice: Voice) -> None:
        self.material, self.device, self.voice = material, device, voice
        self.config = material.config.train
        self.model = model.to(device.torch)
        self.translator = Translator(model, material.vocabularies, material.config, device)
        self.optimizer = make_optimizer(model, self.config)
        self.schedule = make_schedule(material.config)
        self.ema: Tensors = {}
        self.keeper = Keeper(folder, self.config, material.vocabularies, voice)
        self.progress = self.keeper.restore(self.model, self.optimizer, self.ema)
        places = self.config.tokens_per_microbatch or PLACES[device.kind]
        self.batching = Batching(self.config.tokens_per_batch, places, self.config.seed)
        first_epoch = self.batching.plan(material.train, 0, material.passes(0))
        self.steps_per_epoch = len(first_epoch)
        self.padding = padding_share(first_epoch, material.train)
        self.steps_here, self.warm_at, self.begun = 0, 0.0, 0.0
        self.learning_rate = self.gradient_norm = 0.0
        self.pairs: Pairs = material.train
        self.plan: list[Step] = []

    @property
    def last_step(self) -> int:
        return last_step(self.config, self.steps_per_epoch, self.progress)

    def run(self) -> None:
        """Train to the end of the budget; raises `Stopped` when a signal asks for it."""
        if self._is_over() and self.keeper.is_complete(self.progress.step, self.last_step):
            self.voice.say(f"already finished at step {self.progress.step:,}; a larger budget goes on from there")
            return
        self.recorder = Recorder(self.keeper.folder, self.progress, self.voice)
        self.begun = time.perf_counter() - self.progress.seconds
        try:
            with StopSignals() as signals:
                self._begin_epoch()
                self._try_largest()
                while not self._is_over():
                    if not self._step(signals):
                        self._save()
                        raise Stopped(signals.received or 0, self.progress.step)
                    self._after_step()
                self._finish()
        finally:
            self.recorder.close()

    def _is_over(self) -> bool:
        return self.progress.step >= self.last_step or self._out_of_patience()

    def _out_of_patience(self) -> bool:
        return 0 < self.config.patience <= self.progress.waited

    def _after_step(self) -> None:
        step, at_end = self.progress.step, self.progress.step == self.last_step
        if self.config.minutes and not self.progress.is_measured(self.config):
            self._measure_minutes()
        if step % self.config.log_every == 0:
            self.recorder.log(self.progress, self.learning_rate, self.gradient_norm)
        if step % self.config.validate_every == 0 and not at_end:
            self._validate()
        if step % self.config.checkpoint_every == 0 and not at_end:
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

    # --- one step ----------------------------------------------------------------------------------------------

    def _step(self, signals: StopSignals) -> bool:
        """One optimizer update; False if a signal came first, and then nothing has changed."""
        progress = self.progress
        self.model.train()
        torch.manual_seed(int(np.random.SeedSequence([self.config.seed, progress.step]).generate_state(1)[0]))
        batches = self.plan[progress.position]
        tokens = sum(int(self.pairs.target_lengths[numbers].sum()) for numbers in batches)
        loss = 0.0
        for numbers in batches:
            if signals.received is not None:
                self.optimizer.zero_grad()
                return False
            loss += self._accumulate(numbers, tokens)
        self._update(loss)
        self._advance(batches, loss, tokens)
        return True

    def _accumulate(self, numbers: Ids, tokens: int) -> float:
        """Add a batch's gradient, divided by the tokens of the whole step; the batch's loss, summed."""
        source, target = self.material.vocabularies.source, self.material.vocabularies.target
        batch = make_batch(self.pairs, numbers, source.pad, target.pad).to(self.device.torch)
        with self.device.mixed_precision():
            loss = batch_loss(self.model, batch, self.config.label_smoothing, self.config)
        (loss / tokens).backward()
        return float(loss.detach())

    def _update(self, loss: float) -> None:
        """Clip and apply the gradient; what is not a number is never applied."""
        step = self.progress.step + 1
        self.gradient_norm = float(
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm or math.inf)
        )
        if not math.isfinite(loss) or not math.isfinite(self.gradient_norm):
            raise TrainingError(
                f"step {step:,}: the {'gradient' if math.isfinite(loss) else 'loss'} is not a number; it was not "
                "applied and the last checkpoint stands: lower train.learning_rate, raise train.warmup_steps, "
                "or set train.clip_norm=1"
            )
        self.learning_rate = self.schedule(step, self.last_step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._update_ema()

    @torch.no_grad()
    def _update_ema(self) -> None:
        if self.config.ema:
            for name, parameter in self.model.named_parameters():
                self.ema.setdefault(name, parameter.detach().clone()).lerp_(parameter, 1 - self.config.ema)

    def _advance(self, batches: Step, loss: float, tokens: int) -> None:
        progress = self.progress
        progress.step += 1
        progress.position += 1
        progress.logged_loss += loss
        progress.logged_tokens += tokens
        progress.target_tokens += tokens
        progress.source_tokens += sum(int(self.pairs.source_lengths[numbers].sum()) for numbers in batches)
        self.recorder.step(progress, self.last_step, tokens)
        if progress.position == len(self.plan):
            progress.epoch, progress.position = progress.epoch + 1, 0
            self._begin_epoch()

    def _begin_epoch(self) -> None:
        """The pairs and the plan of the current epoch; sampled segmentation makes the pairs new each time."""
        sampling, epoch = self.material.config.data.sampling, self.progress.epoch
        self.pairs = self.material.train
        if sampling:
            self.pairs = self.pairs.resampled(self.material.vocabularies, sampling, self.config.seed, epoch)
        self.plan = self.batching.plan(self.pairs, epoch, self.material.passes(epoch))

    def _try_largest(self) -> None:
        """Run the largest batch first: what does not fit fails now and not in an hour."""
        largest = max((numbers for step in self.plan for numbers in step), key=self._places)
        try:
            self._accumulate(largest, tokens=1)
        except (MemoryError, RuntimeError) as error:
            if "memory" not in str(error).lower():
                raise
            raise TrainingError(
                f"the largest batch ({self._places(largest):,} places) does not fit the memory of this device: "
                f"lower train.tokens_per_microbatch (now {self.batching.places}) or data.max_length"
            ) from None
        finally:
            self.optimizer.zero_grad()

    def _places(self, numbers: Ids) -> int:
        widths = self.pairs.source_lengths[numbers].max(), self.pairs.target_lengths[numbers].max()
        return len(numbers) * int(max(widths))

    def _measure_minutes(self) -> None:
        """Turn minutes into steps once, early, and save it: a resumed run ends where an uninterrupted one does."""
        now = time.perf_counter()
        self.steps_here += 1
        if self.steps_here == WARMING_STEPS:
            self.warm_at = now
        elif self.steps_here == TIMED_STEPS:
            seconds = (now - self.warm_at) / (TIMED_STEPS - WARMING_STEPS)
            left = self.config.minutes * 60 * SHARE_FOR_STEPS - (now - self.begun)
            self.progress.measured = self.progress.step + max(0, int(left / seconds))
            self.progress.measured_minutes = self.config.minutes
            self.voice.say(f"{self.config.minutes:g} minutes: {self.last_step:,} steps at {seconds:.3f} s a step")
            self._save()

    # --- validation and keeping --------------------------------------------------------------------------------

    def _validate(self) -> None:
        """Measure the weights to keep, and keep them if they are the best."""
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
        averaged = self.keeper.averaged(self.last_step)
        if averaged:
            load_weights(self.model, averaged, "the averaged weights")
            validation = validate(self.translator, self.material.valid, self.material.valid_texts)
            self.keeper.give("averaged", averaged, self.progress.step, validation)
            self.recorder.validated("averaged", self.progress.step, validation, better=False)

    def _save(self) -> None:
        if not all(bool(tensor.isfinite().all()) for tensor in weights_of(self.model).values()):
            raise TrainingError(
                f"step {self.progress.step:,}: weights are not numbers and were not saved; the last checkpoint stands: "
                "lower train.learning_rate or set train.clip_norm=1"
            )
        self.progress.seconds = time.perf_counter() - self.begun
        self.progress.metrics_size = self.recorder.size()
        self.keeper.save(self.progress, self.model, self.optimizer, self.ema, self.last_step)
