"""The training loop: from prepared data to best, last and averaged weights, resumable at any step.

Every step is a function of (seed, step, weights): its data from the plan of its epoch, its dropout from a generator
seeded anew. So a run that was killed and resumed has the very same weights as one that was not.
"""

import math
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce import checkpoint
from transduce.checkpoint import Checkpoint, RunFolder, Tensors
from transduce.config import Config
from transduce.data import Batch, Batching, Pairs, Step, make_batch, padding_share
from transduce.device import Device
from transduce.errors import DamagedFile, TrainingError
from transduce.evaluate import TestSet
from transduce.model import Transformer
from transduce.text import Vocabularies
from transduce.train.loss import batch_loss
from transduce.train.optimizer import load_optimizer, make_optimizer, optimizer_tensors
from transduce.train.report import MetricsFile, StepReport, TensorBoard, Voice
from transduce.train.schedule import make_schedule
from transduce.train.stopping import StopSignals
from transduce.train.validation import Validation, validate
from transduce.translator import Translator, load_weights

CPU_PLACES = 2_048  # padded places a side at once: what fits a CPU's caches is also fastest there
CUDA_PLACES = 65_536
TIMED_STEPS = 20  # steps after which a budget in minutes becomes one in steps
ENDING_SHARE = 0.93  # of the minutes for steps; the rest is for validation and the end


class Stopped(Exception):  # noqa: N818 - not an error: somebody asked
    """A signal was received and the run is saved."""

    def __init__(self, signal_number: int, step: int) -> None:
        super().__init__(f"stopped at step {step}; the same command goes on from there")
        self.signal_number = signal_number


@dataclass(frozen=True)
class Material:
    """What a run learns from."""

    config: Config
    vocabularies: Vocabularies
    train: Pairs
    valid: Pairs
    valid_texts: TestSet


@dataclass
class RunState:
    """Where a run is; with weights and moments, all that a checkpoint holds."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # steps of this epoch done
    last_step: int = 0  # 0: not known yet
    logged_loss: float = 0.0  # summed since the last line of the log
    logged_tokens: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    best_rank: float = -math.inf
    best_step: int = 0
    best_score: str = ""
    waited: int = 0  # validations since the best
    metrics_size: int = 0
    seconds: float = 0.0
    threads: int = 0
    finished: bool = False


class Trainer:
    """One run, from where it is to its end."""

    def __init__(self, folder: RunFolder, material: Material, model: Transformer, device: Device, voice: Voice) -> None:
        self.folder, self.material, self.device, self.voice = folder, material, device, voice
        self.config, self.train = material.config, material.config.train
        self.model = model.to(device.torch)
        self.translator = Translator(model, material.vocabularies, self.config, device)
        self.optimizer = make_optimizer(self.model, self.train)
        self.schedule = make_schedule(self.config)
        self.batching = Batching(self.train.tokens_per_batch, self._places(), self.train.seed)
        self.ema: Tensors = {}
        self.state = RunState()
        self.plan: list[Step] = []

    # --- the run as a whole ------------------------------------------------------------------------------------

    def run(self) -> RunState:
        """Train to the end of the budget; raises `Stopped` when a signal asks for it."""
        self._resume()
        if self.state.finished and self.state.step >= self._budget():
            self.voice.say(f"already finished at step {self.state.step}; raise train.steps to go on")
            return self.state
        self.metrics = MetricsFile(self.folder.metrics, self.state.metrics_size)
        self.board = TensorBoard(self.folder.path / "tensorboard", self.state.step)
        try:
            with StopSignals() as signals:
                self._steps(signals)
            self._finish()
        finally:
            self.voice.close()
            self.board.close()
            self.metrics.close()
        return self.state

    def _steps(self, signals: StopSignals) -> None:
        self._begin_epoch()
        self._try_largest()
        self._started = self._clock = time.perf_counter()
        self._clock_tokens = 0
        self.state.last_step = self._budget()
        while not self._is_over():
            if not self._step(signals):
                self._save()
                self.voice.close()
                raise Stopped(signals.received or 0, self.state.step)
            self._after_step()

    def _is_over(self) -> bool:
        if self.train.patience and self.state.waited >= self.train.patience:
            self.voice.say(f"no better score in {self.state.waited} validations: stopping early (train.patience)")
            return True
        return 0 < self.state.last_step <= self.state.step

    def _after_step(self) -> None:
        state = self.state
        self._measure_minutes()
        if state.step % self.train.log_every == 0:
            self._log()
        if state.step % self.train.validate_every == 0 and state.step != state.last_step:
            self._validate()
        if state.step % self.train.checkpoint_every == 0 and state.step != state.last_step:
            self._save()

    def _finish(self) -> None:
        """The last validation, the averaged weights, and the mark that the run is complete."""
        state = self.state
        if not state.finished:
            self._validate()
            state.finished = True
        self._save()
        self._average()

    # --- one step ----------------------------------------------------------------------------------------------

    def _step(self, signals: StopSignals) -> bool:
        """One optimizer update; False if a signal came first, and then nothing has changed."""
        state = self.state
        self.model.train()
        torch.manual_seed(int(np.random.SeedSequence([self.train.seed, state.step]).generate_state(1)[0]))
        batches = self.plan[state.position]
        tokens = sum(int(self.pairs.target_lengths[batch].sum()) for batch in batches)
        total = 0.0
        for numbers in batches:
            if signals.received is not None:
                self.optimizer.zero_grad()
                return False
            total += self._accumulate(numbers, tokens)
        self._update(total / tokens)
        state.step += 1
        state.position += 1
        self._count(batches, total, tokens)
        if state.position == len(self.plan):
            state.epoch, state.position = state.epoch + 1, 0
            self._begin_epoch()
        return True

    def _accumulate(self, numbers: np.ndarray[Any, Any], tokens: int) -> float:
        """Add a batch's gradient, already divided by the tokens of the whole step; its summed loss."""
        batch = self._batch(numbers)
        with self.device.mixed_precision():
            loss = batch_loss(self.model, batch, self.train.label_smoothing)
        (loss / tokens).backward()
        return float(loss.detach())

    def _update(self, loss: float) -> None:
        """Clip, check and apply the gradient; what is not a number is never applied."""
        limit = self.train.clip_norm or math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        if not math.isfinite(loss) or not math.isfinite(norm):
            self.optimizer.zero_grad()
            raise TrainingError(
                f"step {self.state.step + 1}: the {'loss' if not math.isfinite(loss) else 'gradient'} is not a number; "
                f"the step was not applied and the last checkpoint stands: lower train.learning_rate, raise "
                f"train.warmup_steps or set train.clip_norm=1"
            )
        self.gradient_norm = norm
        self.learning_rate = self.schedule(self.state.step + 1, self.state.last_step or self.state.step + 1)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._update_ema()

    @torch.no_grad()
    def _update_ema(self) -> None:
        if self.train.ema:
            for name, parameter in self.model.named_parameters():
                old = self.ema.setdefault(name, parameter.detach().clone())
                old.lerp_(parameter, 1 - self.train.ema)

    def _count(self, batches: Step, total: float, tokens: int) -> None:
        state = self.state
        state.logged_loss += total
        state.logged_tokens += tokens
        state.target_tokens += tokens
        state.source_tokens += sum(int(self.pairs.source_lengths[batch].sum()) for batch in batches)
        self._clock_tokens += tokens
        self._tell()

    def _batch(self, numbers: np.ndarray[Any, Any]) -> Batch:
        source, target = self.material.vocabularies.source, self.material.vocabularies.target
        return make_batch(self.pairs, numbers, source.pad, target.pad).to(self.device.torch)

    # --- data and budget ---------------------------------------------------------------------------------------

    def _places(self) -> int:
        default = CUDA_PLACES if self.device.kind == "cuda" else CPU_PLACES
        return self.train.tokens_per_microbatch or default

    def _begin_epoch(self) -> None:
        """The pairs and the plan of the current epoch; sampled segmentation makes the pairs new each time."""
        data = self.config.data
        self.pairs = self.material.train
        if data.sampling:
            self.pairs = self.pairs.resampled(self.material.vocabularies, data.sampling, self.train.seed, self.state.epoch)
        self.plan = self.batching.plan(self.pairs, self.state.epoch)

    def _budget(self) -> int:
        """The last step by steps and epochs; 0 while only a budget in minutes is set and not yet measured."""
        limits = [self.train.steps] if self.train.steps else []
        if self.train.epochs:
            plan = self.plan or self.batching.plan(self.material.train, 0)
            limits.append(max(1, round(self.train.epochs * len(plan))))
        if self.train.minutes and self.state.last_step:
            limits.append(self.state.last_step)  # turned into steps before the run was interrupted
        return min(limits, default=0)

    def _measure_minutes(self) -> None:
        """Turn minutes into steps once, early, so that a resumed run ends where an uninterrupted one does."""
        if not self.train.minutes or self.state.step != TIMED_STEPS:
            return
        per_step = (time.perf_counter() - self._started) / TIMED_STEPS
        steps = max(TIMED_STEPS, int(self.train.minutes * 60 * ENDING_SHARE / per_step))
        self.state.last_step = min(steps, self._budget() or steps)
        self.voice.say(f"{self.train.minutes:g} minutes are {self.state.last_step} steps at {per_step:.3f} s a step")

    def _try_largest(self) -> None:
        """Run the largest batch first: what does not fit fails now and not in an hour."""
        largest = max((batch for step in self.plan for batch in step), key=self._size)
        try:
            self._accumulate(largest, tokens=1)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if "memory" not in str(error).lower():
                raise
            raise TrainingError(
                f"the largest batch ({self._size(largest):,} places) does not fit the memory of this device: "
                f"lower train.tokens_per_microbatch (now {self._places()}) or data.max_length"
            ) from None
        finally:
            self.optimizer.zero_grad()

    def _size(self, numbers: np.ndarray[Any, Any]) -> int:
        widest = max(int(self.pairs.source_lengths[numbers].max()), int(self.pairs.target_lengths[numbers].max()))
        return len(numbers) * widest

    # --- telling -----------------------------------------------------------------------------------------------

    def _speed(self) -> float:
        return self._clock_tokens / max(1e-9, time.perf_counter() - self._clock)

    def _tell(self) -> None:
        state = self.state
        loss = state.logged_loss / max(1, state.logged_tokens)
        self.voice.step(
            StepReport(
                step=state.step,
                last_step=state.last_step,
                epoch=state.epoch,
                loss=loss,
                learning_rate=self.learning_rate,
                gradient_norm=self.gradient_norm,
                tokens_per_second=self._speed(),
                best=state.best_score,
            )
        )

    def _log(self) -> None:
        state = self.state
        loss = state.logged_loss / state.logged_tokens
        figures = {"loss": loss, "learning_rate": self.learning_rate, "gradient_norm": self.gradient_norm}
        speed = self._speed()
        self.metrics.write(
            {"event": "train", "step": state.step, "epoch": state.epoch, **figures,
             "target_tokens": state.target_tokens, "tokens_per_second": round(speed)}
        )  # fmt: skip
        self.board.write(state.step, {f"train/{name}": value for name, value in figures.items()})
        self.board.write(state.step, {"train/tokens_per_second": speed})
        state.logged_loss, state.logged_tokens = 0.0, 0

    def _validate(self) -> None:
        state, begun = self.state, time.perf_counter()
        weights = self.ema or self._weights()
        validation = self._validation_of(weights)
        better = validation.rank > state.best_rank
        state.waited = 0 if better else state.waited + 1
        if better:
            state.best_rank, state.best_step, state.best_score = validation.rank, state.step, str(validation.scores.main)
            checkpoint.write_tensors(self.folder.weights("best"), weights, about(state.step, validation))
        self._record("valid", validation, time.perf_counter() - begun)
        self.voice.validated(state.step, validation, better)
        self._clock += time.perf_counter() - begun  # validation is not training time
        self._started += time.perf_counter() - begun

    def _validation_of(self, weights: Tensors) -> Validation:
        current = self._weights() if weights is self.ema else {}
        if current:
            current = {name: tensor.clone() for name, tensor in current.items()}
            load_weights(self.model, weights, "the moving average")
        validation = validate(self.translator, self.material.valid, self.material.valid_texts)
        if current:
            load_weights(self.model, current, "the weights")
        return validation

    def _record(self, event: str, validation: Validation, seconds: float) -> None:
        step, scores = self.state.step, validation.scores
        self.metrics.write(
            {"event": event, "step": step, "loss": validation.loss, "perplexity": validation.perplexity,
             "scores": scores.as_dict(), "samples": [asdict(sample) for sample in validation.samples],
             "seconds": round(seconds, 2)}
        )  # fmt: skip
        figures = {"loss": validation.loss, "perplexity": validation.perplexity}
        figures |= {score.name: score.value for score in scores.all}
        self.board.write(step, {f"{event}/{name}": value for name, value in figures.items()})

    # --- keeping -----------------------------------------------------------------------------------------------

    def _weights(self) -> Tensors:
        return {name: parameter.detach() for name, parameter in self.model.named_parameters()}

    def _save(self) -> None:
        state = self.state
        now = time.perf_counter()
        state.seconds, self._clock_started = state.seconds + now - getattr(self, "_clock_started", self._started), now
        state.metrics_size, state.threads = self.metrics.size(), torch.get_num_threads()
        moments = optimizer_tensors(self.optimizer, self.model)
        moments |= {f"ema.{name}": tensor for name, tensor in self.ema.items()}
        path = checkpoint.save(self.folder, state.step, Checkpoint(self._weights(), moments, asdict(state)))
        checkpoint.link(path / "weights.safetensors", self.folder.weights("last"))
        checkpoint.prune(self.folder, set(self._to_average()))

    def _to_average(self) -> list[int]:
        """The newest regular checkpoints; one that a signal made is none of them, or stopping would change the run."""
        every, last = self.train.checkpoint_every, self.state.last_step
        regular = [s for s in checkpoint.steps_saved(self.folder) if s % every == 0 or s == last]
        return regular[-self.train.average :] if self.train.average else []

    def _average(self) -> None:
        """`averaged`: the mean of the last checkpoints, validated like any other weights."""
        steps = self._to_average()
        if len(steps) < 2:
            return
        paths = [checkpoint.checkpoint_path(self.folder, step) / "weights.safetensors" for step in steps]
        averaged, begun = checkpoint.average(paths), time.perf_counter()
        load_weights(self.model, averaged, "the averaged weights")
        validation = validate(self.translator, self.material.valid, self.material.valid_texts)
        checkpoint.write_tensors(self.folder.weights("averaged"), averaged, about(self.state.step, validation))
        self._record("averaged", validation, time.perf_counter() - begun)
        self.voice.say(f"average of {len(steps)} checkpoints: loss {validation.loss:.4f}, {validation.scores}")

    def _resume(self) -> None:
        """Go on from the newest checkpoint that is whole."""
        for step in reversed(checkpoint.steps_saved(self.folder)):
            path = checkpoint.checkpoint_path(self.folder, step)
            try:
                self._restore(checkpoint.restore(path))
            except DamagedFile as error:
                self.voice.say(f"{error}; trying the checkpoint before it")
                continue
            self.voice.say(f"resuming at step {self.state.step}")
            return

    def _restore(self, saved: Checkpoint) -> None:
        state = RunState(**saved.progress)
        load_weights(self.model, saved.weights, "the checkpoint")
        self.ema = {n.removeprefix("ema."): t for n, t in saved.optimizer.items() if n.startswith("ema.")}
        load_optimizer(self.optimizer, self.model, saved.optimizer)
        threads = torch.get_num_threads()
        if self.device.kind == "cpu" and state.threads != threads:
            self.voice.say(f"this run had {state.threads} threads and now has {threads}: bits will differ slightly")
        if state.finished:
            state = replace(state, finished=False, waited=0) if self._goes_on(state) else state
        self.state = state

    def _goes_on(self, state: RunState) -> bool:
        return bool(self.train.steps > state.step or self.train.epochs)


def about(step: int, validation: Validation) -> dict[str, str]:
    """What weights files say of themselves."""
    main = validation.scores.main
    return {
        "step": str(step),
        "metric": main.name,
        "score": f"{main.value:.4f}",
        "signature": main.signature,
        "loss": f"{validation.loss:.6f}",
        "rank": repr(validation.rank),
    }
