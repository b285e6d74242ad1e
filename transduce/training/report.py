"""Reports on a run: to people on stderr, to programs in `metrics.jsonl`, and to TensorBoard.

Training calls a `Reporter` and does not know how its reports look. `SilentReporter` prints nothing.
"""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from transduce.audio.recording import Recording
from transduce.checkpoint import RunFolder, disk_errors
from transduce.config.columns import features_as_written
from transduce.data.feature_progress import ShowFeatures, unwatched
from transduce.training.clock import RunTime
from transduce.training.expert_shares import shares_line
from transduce.training.feature_display import PLAIN_EVERY_S, shown_features
from transduce.training.plan import Costs, Plan
from transduce.training.processes import Alone, Processes
from transduce.training.progress import UNKNOWN_END
from transduce.training.progress import Progress as RunProgress
from transduce.training.validation import SampleOutput, ValidationResult

SAMPLE_CHARACTERS = 60  # of each side of a sample output, unless `--verbose` is given


@dataclass(frozen=True)
class StepReport:
    """The figures of one training step."""

    step: int
    last_step: int
    epoch: int
    loss: float
    tokens_per_second: float
    best: str  # the best score so far, or ""
    processes: int = 1
    waiting: float = 0.0  # share of the time that this process waits for others
    standing_by: int = 0  # processes that were started, but do not train
    time: RunTime | None = None


class Reporter(Protocol):
    """Shows the progress of a run to people."""

    def say(self, text: str) -> None: ...
    def features(self, recordings: int) -> AbstractContextManager[ShowFeatures]: ...
    def step(self, report: StepReport) -> None: ...
    def validated(self, event: str, step: int, validation: ValidationResult, better: bool) -> None: ...
    def close(self) -> None: ...


class SilentReporter:
    """Prints nothing."""

    def say(self, text: str) -> None: ...

    def features(self, recordings: int) -> AbstractContextManager[ShowFeatures]:
        return unwatched(recordings)

    def step(self, report: StepReport) -> None: ...
    def validated(self, event: str, step: int, validation: ValidationResult, better: bool) -> None: ...
    def close(self) -> None: ...


class Terminal:
    """Prints to stderr: a progress bar on a terminal, plain lines otherwise; `verbose` shows all sample outputs in full."""

    def __init__(self, verbose: bool = False) -> None:
        self.verbose = verbose
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._task: Any = None
        self._last_line = 0.0

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)

    def features(self, recordings: int) -> AbstractContextManager[ShowFeatures]:
        return shown_features(self.console, recordings)

    def step(self, report: StepReport) -> None:
        if self.console.is_terminal:
            self._show(report)
        elif time.monotonic() - self._last_line > PLAIN_EVERY_S:
            self._last_line = time.monotonic()
            self.say(_line(report))

    def validated(self, event: str, step: int, validation: ValidationResult, better: bool) -> None:
        what = _validated_weights(event, step, validation)
        mark = f"  (best so far{', by loss' * validation.lacks_points})" if better else ""
        self.say(
            f"{what}: validation loss {validation.loss:.4f}, perplexity {validation.perplexity:.2f}, "
            f"{validation.scores}{mark}{_cut(validation)}"
        )
        for line in self._sample_lines(_as_written(validation)) if event == "valid" else []:
            self.say(f"    {line}")
        if event == "valid" and validation.counts:
            self.say(f"    {shares_line(validation.counts)}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _sample_lines(self, samples: Sequence[SampleOutput]) -> list[str]:
        if not self.verbose:
            return [line for one in samples[:1] for line in _short_lines(one)]
        return [
            f"{name:<11}{_shown(text)}"
            for one in samples
            for name, text in (("source", one.source), ("output", one.output), ("reference", one.reference))
        ]

    def _show(self, report: StepReport) -> None:
        if self._bar is None:
            columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn()]
            self._bar = Progress(*columns, console=self.console, transient=True)
            self._task = self._bar.add_task("")
            self._bar.start()
        done, total = _share(report)
        self._bar.update(self._task, description=_line(report), completed=done, total=total)


def _as_written(validation: ValidationResult) -> list[SampleOutput]:
    """The samples with sources as they are in the user's data; a recording is shown by the name of its file."""
    if validation.of_recordings:
        return [replace(one, source=Path(Recording.parse(one.source).path).name) for one in validation.samples]
    if not validation.with_features:
        return validation.samples
    return [replace(one, source=features_as_written(one.source)) for one in validation.samples]


def _short_lines(sample: SampleOutput) -> tuple[str, str]:
    """The output of a sample, and its reference below, each in one short line."""
    output = f"{_shortened(sample.source)} -> {_shortened(sample.output)}"
    return output, f"reference: {_shortened(sample.reference)}"


def _shown(text: str) -> str:
    """Replace characters that are not safe to print: control characters could move the cursor or worse."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _validated_weights(event: str, step: int, validation: ValidationResult) -> str:
    if event == "final":
        return f"the chosen weights on {lines_scored(validation.lines, validation.all_lines)}"
    return "average of the last checkpoints" if event == "averaged" else f"step {step:,}"


def lines_scored(lines: int, all_lines: int) -> str:
    """How many lines a score is of; `all_lines` is 0 for weights of older versions, which do not record it."""
    if lines == all_lines:
        return f"all {lines:,} validation lines" if lines > 1 else "the validation line"
    return f"{lines:,}{f' of {all_lines:,}' if all_lines else ''} validation lines"


def _cut(validation: ValidationResult) -> str:
    if not validation.outputs_at_limit:
        return ""
    return f"; {validation.outputs_at_limit:,} output{'s' * (validation.outputs_at_limit > 1)} reached the length limit"


def _shortened(text: str) -> str:
    shown = _shown(text)
    return shown if len(shown) <= SAMPLE_CHARACTERS else shown[: SAMPLE_CHARACTERS - 1] + "\u2026"


def _total(report: StepReport) -> int | None:
    return report.last_step if report.last_step != UNKNOWN_END else None


def _share(report: StepReport) -> tuple[float, float | None]:
    """How much is done, and of how much: in seconds if minutes end the run, in steps otherwise."""
    if report.time and report.time.minutes:
        return report.time.passed, 60 * report.time.minutes
    return report.step, _total(report)


def _line(report: StepReport) -> str:
    best = f" | best {report.best}" if report.best else ""
    loss = "..." if math.isnan(report.loss) else f"{report.loss:.3f}"
    return (
        f"{_how_far(report)} | epoch {report.epoch + 1} | loss {loss} | "
        f"{report.tokens_per_second:,.0f} tokens/s{_shared(report)}{best}"
    )


def _how_far(report: StepReport) -> str:
    """Minutes if these end the run: its last step is only planned, and changes while the pace is measured."""
    if report.time and report.time.minutes:
        return f"{report.time.passed / 60:.1f} of {report.time.minutes:.1f} minutes | step {report.step:,}"
    of = f"/{total:,}" if (total := _total(report)) else ""
    left = f" | about {_rounded(report.time.left)} left" if report.time else ""
    return f"step {report.step:,}{of}{left}"


def _rounded(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _shared(report: StepReport) -> str:
    """The speed of one of several processes, and how much of its time goes into exchanges with the others."""
    if report.processes == 1 and not report.standing_by:
        return ""
    each = report.tokens_per_second / report.processes
    standing_by = f" and {report.standing_by} standing by" if report.standing_by else ""
    many = f"{report.processes} process{'es' * (report.processes > 1)}"
    return f" ({many}{standing_by}, {each:,.0f} each, {report.waiting:.0%} waiting)"


class MetricsLogger:
    """Writes the figures of a run to `metrics.jsonl` and TensorBoard, and passes them to the reporter."""

    def __init__(
        self,
        folder: RunFolder,
        progress: RunProgress,
        reporter: Reporter,
        processes: Processes = Alone(),  # noqa: B008 - it has no state
    ) -> None:
        self.reporter, self.processes = reporter, processes
        self._path = folder.metrics
        self._open(folder, progress)
        self._tokens, self._since, self._waited = 0, time.perf_counter(), processes.waited
        # The last known figures: on a GPU they are read only when a line is logged. In between, steps are only queued, so
        # their speed cannot be measured.
        self._loss, self._known_speed, self._known_waiting = math.nan, 0.0, 0.0

    def _open(self, folder: RunFolder, progress: RunProgress) -> None:
        with disk_errors(self._path):
            self._file = open(self._path, "ab")  # noqa: SIM115 - closed by `close`
            # A resumed run writes the lines after its last checkpoint again.
            os.truncate(self._path, min(progress.metrics_size, os.path.getsize(self._path)))
        self._board = _tensorboard(folder.path / "tensorboard", progress.step)

    def step(self, progress: RunProgress, last_step: int, tokens: int, passed: RunTime | None = None) -> None:
        self._tokens += tokens
        if progress.logged_cross_entropy:
            self._loss = progress.logged_cross_entropy / progress.logged_tokens
        self.reporter.step(
            StepReport(
                step=progress.step,
                last_step=last_step,
                epoch=progress.epoch,
                loss=self._loss,
                tokens_per_second=self._known_speed or self._speed(),
                best=progress.best_score,
                processes=self.processes.count,
                waiting=self._known_waiting if self._known_speed else self._waiting(),
                standing_by=self.processes.standing_by,
                time=passed,
            )
        )

    def log(self, progress: RunProgress, learning_rate: float, gradient_norm: float) -> None:
        """Log the training figures since the last call."""
        tokens = progress.logged_tokens
        losses = {"loss": progress.logged_loss / tokens, "cross_entropy": progress.logged_cross_entropy / tokens}
        self._loss = losses["cross_entropy"]
        figures = {**losses, "learning_rate": learning_rate, "gradient_norm": gradient_norm}
        progress.logged_loss, progress.logged_cross_entropy, progress.logged_tokens = 0.0, 0.0, 0
        self._known_speed, self._known_waiting = self._speed(), self._waiting()
        speed = {"tokens_per_second": round(self._known_speed, 1)}
        if self.processes.count > 1:
            speed["waiting"] = round(self._known_waiting, 4)
        where = {"event": "train", "step": progress.step, "epoch": progress.epoch}
        self._write({**where, **figures, "target_tokens": progress.target_tokens, **speed})
        self._plot(progress.step, "train", figures | speed)
        self._restart_clock()

    def planned(self, step: int, plan: Plan, costs: Costs) -> None:
        """Log a new or revised plan."""
        self._write({"event": "plan", "step": step, **asdict(plan), "seconds": asdict(costs)})
        self._restart_clock()

    def validated(self, event: str, step: int, validation: ValidationResult, better: bool) -> None:
        """Log a validation, and pass it to the reporter."""
        figures = {"loss": validation.loss, "perplexity": validation.perplexity}
        samples = [asdict(sample) for sample in validation.samples]
        self._write(
            {
                "event": event,
                "step": step,
                **figures,
                "scores": validation.scores.as_dict(),
                "lines": validation.lines,
                "all_lines": validation.all_lines,
                "decided_by": validation.decided_by,
                "outputs_at_limit": validation.outputs_at_limit,
                "samples": samples,
                **({"tokens_of_experts": dict(validation.counts)} if validation.counts else {}),
            }
        )
        self._plot(step, event, figures | {score.name: score.value for score in validation.scores.all})
        self.reporter.validated(event, step, validation, better)
        self._restart_clock()

    def resumed(self, progress: RunProgress) -> None:
        """Log that a run that had finished is trained further."""
        self._write({"event": "resumed", "step": progress.step})

    def finished(self, progress: RunProgress) -> None:
        """Log the end of the run; a larger budget resumes at the last checkpoint, which is before this line."""
        self._write({"event": "finished", "step": progress.step, "seconds": round(progress.seconds, 1)})

    def size(self) -> int:
        """Flush the log to disk and return its size in bytes."""
        with disk_errors(self._path):
            os.fsync(self._file.fileno())
            return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self.reporter.close()
        self._file.close()
        if self._board is not None:
            self._board.close()

    def _write(self, event: Mapping[str, Any]) -> None:
        with disk_errors(self._path):
            self._file.write(json.dumps(event, ensure_ascii=False).encode() + b"\n")
            self._file.flush()

    def _plot(self, step: int, event: str, figures: Mapping[str, float]) -> None:
        for name, value in figures.items() if self._board is not None else ():
            self._board.add_scalar(f"{event}/{name}", value, step)

    def _speed(self) -> float:
        return self._tokens / max(1e-9, time.perf_counter() - self._since)

    def _waiting(self) -> float:
        return (self.processes.waited - self._waited) / max(1e-9, time.perf_counter() - self._since)

    def _restart_clock(self) -> None:
        self._tokens, self._since, self._waited = 0, time.perf_counter(), self.processes.waited


class SilentLogger(MetricsLogger):
    """The logger of a process that writes no files."""

    def _open(self, folder: RunFolder, progress: RunProgress) -> None:
        self._board = None

    def size(self) -> int:
        return 0

    def close(self) -> None: ...

    def _write(self, event: Mapping[str, Any]) -> None: ...


def make_logger(folder: RunFolder, progress: RunProgress, reporter: Reporter, processes: Processes) -> MetricsLogger:
    """The logger of a process; of several processes, the first writes the log."""
    kind = MetricsLogger if processes.number == 0 else SilentLogger
    return kind(folder, progress, reporter, processes)


def _tensorboard(path: Path, step: int) -> Any:
    """A TensorBoard writer, or None if that package is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(path), purge_step=step or None)


def make_reporter(quiet: bool, verbose: bool = False) -> Reporter:
    return SilentReporter() if quiet else Terminal(verbose)
