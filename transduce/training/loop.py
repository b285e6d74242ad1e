"""The training loop: steps, validations and checkpoints until the budget ends.

A step depends only on (weights, seed, step): its data comes from the plan of its epoch, and the generator for dropout is
seeded again for each step. So a run that was killed and resumed is bit-identical to an uninterrupted run.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from transduce.checkpoint import FULL_STATES, RunFolder
from transduce.device import Device
from transduce.errors import TrainingError
from transduce.model import Model
from transduce.threads import prefetch
from transduce.training.assembly import make_share, make_state, make_update
from transduce.training.checkpoint_manager import CheckpointManager
from transduce.training.clock import Clock
from transduce.training.feed import PREFETCHED_STEPS, Place, StepBatches, TrainingData, step_batches
from transduce.training.largest_batch import try_largest_batch
from transduce.training.layout import BatchLayout
from transduce.training.minutes import MinutesBudget
from transduce.training.plan import Costs, Plan
from transduce.training.planning import plan_messages
from transduce.training.processes import Alone, Processes
from transduce.training.report import Reporter, make_logger
from transduce.training.schedule import make_schedule
from transduce.training.stopping import Stopped, StopSignals
from transduce.training.timing import step_seconds, validation_seconds
from transduce.training.validator import Validator
from transduce.translator import Translator, load_weights

VALIDATING_SECONDS = 0.5  # long enough for the plan that `train` prints
DIVERGED = (
    "Training stopped; the last checkpoint is intact. Start a new run with a lower train.learning_rate or with "
    "train.clip_norm=1 (these settings cannot change when a run is resumed)"
)


class Trainer:
    """Trains one run from its current step to the end of its budget."""

    def __init__(
        self,
        folder: RunFolder,
        training_data: TrainingData,
        model: Model,
        device: Device,
        reporter: Reporter,
        command_begun: float | None = None,  # from `time.perf_counter`: when a budget in minutes begins
        processes: Processes = Alone(),  # noqa: B008 - it has no state
    ) -> None:
        self.training_data, self.device, self.reporter = training_data, device, reporter
        self.config, self.processes = training_data.config.train, processes
        self.share = make_share(self.config.shards, device, processes)
        self.model = model.to(device.torch)
        self.translator = Translator.around(model, training_data.vocabularies, training_data.config, device)
        self.state = make_state(self.model, self.config, self.share, processes)
        self.schedule = make_schedule(training_data.config)
        self.checkpoints = CheckpointManager(folder, self.config, training_data.vocabularies, reporter, processes)
        self.progress = self.checkpoints.restore(self.state)
        self.layout = BatchLayout(training_data, self.model, device, self.progress, self.share)
        self.update = make_update(self.model, self.state, self.config, device, self.layout, processes)
        costs = Costs.before_measuring(self.parameters, device.kind, averages=self.config.average > 1)
        self.clock = Clock(self.config, self.progress, self.layout.steps_per_epoch, costs, command_begun)
        self.validator = Validator(self.translator, training_data, self.clock, processes)
        self.minutes = MinutesBudget(self.clock, processes, training_data.validation_lines)
        self.learning_rate = self.gradient_norm = 0.0
        self.epochs_saved = {self.progress.step: self.progress.epoch}  # of each checkpoint, by its step

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def run(self) -> None:
        """Train to the end of the budget; raises `Stopped` if a signal requests it."""
        if self._is_over() and self.checkpoints.is_complete(self.progress, self.clock.last_step):
            self.checkpoints.finish()
            self.reporter.say(
                f"already finished at step {self.progress.step:,}; to train further, {self._to_train_further()}"
            )
            return
        self.logger = make_logger(self.checkpoints.folder, self.progress, self.reporter, self.processes)
        if self.checkpoints.folder.card.exists():  # it is written at the end of a run
            self.logger.resumed(self.progress)
        self.clock.start()
        try:
            with StopSignals(once=self.processes.count == 1) as signals, self.fed() as fed:
                self._agreed(self.try_largest, signals)
                self._plan()
                while not self._is_over():
                    if not self._step(next(fed), signals):
                        raise self._stopped(signals)
                    self._after_step()
                self._finish()
        finally:
            self.logger.close()

    def _stopped(self, signals: StopSignals) -> Stopped:
        """Save a checkpoint, unless no step was done; the exception that tells the caller of the signal."""
        if self.progress.step:
            self._save()
        return Stopped(signals.received or 0, self.progress.step)

    # --- before the first step -----------------------------------------------------------------------------------

    def try_largest(self) -> None:
        """Compute the largest batch, which compiles the kernels of a GPU; raises `OutOfMemory` if it does not fit."""
        begun = time.perf_counter()
        try_largest_batch(self.update, self.layout)
        if self.device.kind == "cuda":
            self.reporter.say(f"GPU kernels ready after {time.perf_counter() - begun:.1f} s")

    def _plan(self) -> None:
        """Plan the rest of the run, and report the plan, before its first step."""
        self.plan_budget()
        if plan := self.clock.plan:
            self.logger.planned(self.progress.step, plan, self.clock.costs)
        self.clock.restart_pace()
        for message in plan_messages(self):
            self.reporter.say(message)

    def plan_budget(self) -> None:
        """Measure what a step and a validation take, and plan a budget in minutes from that."""
        self.clock.costs.step = step_seconds(self)
        self.clock.costs.validation = validation_seconds(self, VALIDATING_SECONDS)
        self.minutes.begin()

    # --- one step ------------------------------------------------------------------------------------------------

    @contextmanager
    def fed(self) -> Iterator[Iterator[StepBatches]]:
        """The batches of each step from the current one on."""
        on_gpu = self.device.kind == "cuda"
        here = Place(self.progress.epoch, self.progress.window, self.progress.position)
        layout = self.layout
        items = step_batches(self.training_data, layout.windows, layout.planner, here, on_gpu, self.share)
        if not on_gpu:
            yield items
        else:
            with prefetch(items, PREFETCHED_STEPS) as ready:
                yield ready

    def _step(self, data: StepBatches, signals: StopSignals) -> bool:
        """Run one optimizer update; returns False, with nothing changed, if a signal came first."""
        progress = self.progress
        self.update.begin(int(np.random.SeedSequence([self.config.seed, progress.step]).generate_state(1)[0]))
        self._agreed(lambda: self._add(data, signals), signals)
        if signals.received is not None:
            self.update.forget()
            return False
        self.learning_rate = self.schedule(progress.step + 1, self.clock.share_left(progress.step + 1))
        self.update.apply(self.learning_rate)
        self.state.update_average()
        self._advance(data)
        return True

    def _add(self, data: StepBatches, signals: StopSignals) -> None:
        for batch in data.batches:
            if signals.received is None:
                self.update.add(batch, data.target_tokens)

    def _agreed(self, work: Callable[[], None], signals: StopSignals) -> None:
        """Do some work in all processes; then each knows the signal that any of them received, or that one has failed."""
        failure: Exception | None = None
        try:
            work()
        except Exception as error:
            failure = error
        try:  # the other processes learn of a failure before it is raised here
            told = "" if failure is None else str(failure) or repr(failure)
            signals.received = self.processes.agreed_signal(signals.received, told)
        finally:
            if failure is not None:
                raise failure

    def _advance(self, data: StepBatches) -> None:
        progress = self.progress
        progress.step += 1
        progress.logged_tokens += data.target_tokens
        progress.target_tokens += data.target_tokens
        progress.source_tokens += data.source_tokens
        progress.epoch, progress.window, progress.position = data.next.epoch, data.next.window, data.next.position
        if self.device.kind == "cpu":  # reading figures stalls a GPU: there it waits for the next line of the log
            self._read_measurements()
        self.logger.step(progress, self.clock.last_step, data.target_tokens, self.clock.run_time())

    def _read_measurements(self) -> None:
        """Fetch what the updates measured; a NaN or infinite gradient ends the run before anything is saved."""
        seen = self.update.measured()
        self.progress.logged_loss += seen.loss
        self.progress.logged_cross_entropy += seen.cross_entropy
        self.gradient_norm = seen.gradient_norm
        if not seen.finite:
            what = "gradient" if math.isfinite(seen.loss) else "loss"
            problem = "is NaN or infinite"
            if self.device.kind != "cpu":  # it was not looked at in every step
                problem = "became NaN or infinite after the last logged step"
            raise TrainingError(f"step {self.progress.step:,}: the {what} {problem}. {DIVERGED}")

    # --- after a step --------------------------------------------------------------------------------------------

    def _after_step(self) -> None:
        step = self.progress.step
        if step % self.config.log_every == 0:
            self._read_measurements()
            self.logger.log(self.progress, self.learning_rate, self.gradient_norm)
        if plan := self.minutes.due():
            self._pause(plan)
        at_end, intervals = step >= self.clock.last_step, self.clock.intervals
        if step % intervals.validate_every == 0 and not at_end:
            self._validate()
        if step % intervals.checkpoint_every == 0 and not at_end:
            self._save()

    def _pause(self, plan: Plan) -> None:
        """Measure the pace, validate if the plan says so, revise the plan, and save a checkpoint."""
        self._read_measurements()
        self.clock.measure_pace()
        if plan.validates and not self.config.validate_every and plan.last_step <= self.clock.last_step:
            self._validate()
        self.progress.planned_checkpoints.append(self.progress.step)
        self.logger.planned(self.progress.step, self.minutes.revise(plan), self.clock.costs)
        if correction := self.minutes.correction():
            self.reporter.say(correction)
        self._save()
        self.clock.restart_pace()

    def _validate(self) -> None:
        """Validate the kept weights, and write them as `best` if they are."""
        self._read_measurements()
        progress = self.progress
        with self.state.holding_kept():
            validation = self.validator.validate()
        if not math.isfinite(validation.loss):
            raise TrainingError(
                f"step {progress.step:,}: the validation loss is NaN or infinite; the last checkpoint is intact: "
                "lower train.learning_rate or set train.clip_norm=1"
            )
        better = validation.is_better_than(progress.best_rank) or not self.checkpoints.has("best")
        progress.validated, progress.waited = progress.step, 0 if better else progress.waited + 1
        if better:
            progress.best_rank, progress.best_step = validation.rank, progress.step
            progress.best_score = validation.deciding
            self.checkpoints.give("best", self.state.kept, progress.step, validation)
        self.logger.validated("valid", progress.step, validation, better)

    def _save(self) -> None:
        self._read_measurements()
        if not self.state.is_finite:
            raise TrainingError(
                f"step {self.progress.step:,}: weights are NaN or infinite and were not saved. {DIVERGED}"
            )
        begun = time.perf_counter()
        self.clock.record()
        self.progress.metrics_size = self.logger.size()
        self.checkpoints.save(self.progress, self.state, self.clock.last_step)
        self._forget_epochs()
        self.clock.saved(time.perf_counter() - begun)

    def _forget_epochs(self) -> None:
        """Remove what the cache has of epochs before that of the oldest checkpoint that training can resume from."""
        self.epochs_saved[self.progress.step] = self.progress.epoch
        oldest, *_ = sorted(self.epochs_saved)[-FULL_STATES:]
        if self.processes.number == 0:
            self.training_data.forget_epochs(before=self.epochs_saved[oldest])

    # --- the end -------------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        return self.clock.is_over or self._out_of_patience()

    def _out_of_patience(self) -> bool:
        return 0 < self.config.patience <= self.progress.waited

    def _to_train_further(self) -> str:
        """What has to change before a finished run trains further."""
        changes = ["set a larger budget (--steps, --epochs or --minutes)"] * self.clock.is_over
        changes += [f"set train.patience above {self.progress.waited}, or to 0"] * self._out_of_patience()
        return " and ".join(changes)

    def _finish(self) -> None:
        """Save and validate the final weights, and average the last checkpoints."""
        if self._out_of_patience():
            self.reporter.say(f"no improvement in {self.progress.waited} validations: stopping early (train.patience)")
        self._save()  # before the last validation, which may take long
        if self.progress.validated != self.progress.step or not self.checkpoints.has("best"):
            self._validate()
            self._save()
        self._average()
        self._score_chosen()
        self.logger.finished(self.progress)
        self.checkpoints.finish()

    def _average(self) -> None:
        """Write and validate `averaged`, the mean of the last checkpoints (section 6.1)."""
        averaged = self.checkpoints.averaged(self.progress, self.clock.last_step)
        if averaged:
            load_weights(self.model, averaged, "the averaged weights")
            validation = self.validator.validate()
            self.checkpoints.give("averaged", averaged, self.progress.step, validation)
            self.logger.validated("averaged", self.progress.step, validation, better=False)

    def _score_chosen(self) -> None:
        """Score the chosen weights on as many lines as a budget in minutes leaves time for."""
        if lines := self.minutes.lines_for_final_score():
            which, weights = self.checkpoints.chosen()
            load_weights(self.model, weights, f"the {which} weights")
            validation = self.validator.validate(lines)
            self.checkpoints.rescore(which, weights, validation)
            self.logger.validated("final", self.progress.step, validation, better=False)
