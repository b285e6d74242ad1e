"""What a run tells: people on stderr, programs in `metrics.jsonl`, TensorBoard in its events.

Training calls this and knows nothing of how it looks. `Silent` is a report that tells nobody.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from transduce.checkpoint import disk_errors
from transduce.train.validation import Validation

PLAIN_EVERY_S = 15.0  # off a terminal: at most one line of progress in this time


@dataclass(frozen=True)
class StepReport:
    """The state of training at a step."""

    step: int
    last_step: int  # 0 while the budget in minutes is not yet turned into steps
    epoch: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    best: str  # the best score so far, or ""


class Voice(Protocol):
    """How people hear of a run."""

    def say(self, text: str) -> None: ...
    def step(self, report: StepReport) -> None: ...
    def validated(self, step: int, validation: Validation, better: bool) -> None: ...
    def close(self) -> None: ...


class Silent:
    """Nobody is listening."""

    def say(self, text: str) -> None: ...
    def step(self, report: StepReport) -> None: ...
    def validated(self, step: int, validation: Validation, better: bool) -> None: ...
    def close(self) -> None: ...


class Terminal:
    """Stderr: a progress bar on a terminal, plain lines off it."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._task: Any = None
        self._said = 0.0

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)

    def step(self, report: StepReport) -> None:
        if self.console.is_terminal:
            self._show(report)
        elif time.monotonic() - self._said > PLAIN_EVERY_S:
            self._said = time.monotonic()
            self.say(_line(report))

    def validated(self, step: int, validation: Validation, better: bool) -> None:
        mark = "  (best so far)" if better else ""
        self.say(
            f"step {step}: validation loss {validation.loss:.4f}, perplexity {validation.perplexity:.2f}, "
            f"{validation.scores}{mark}"
        )
        for sample in validation.samples:
            self.say(f"    source     {sample.source}\n    output     {sample.output}\n    reference  {sample.reference}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show(self, report: StepReport) -> None:
        if self._bar is None:
            columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()]
            self._bar = Progress(*columns, console=self.console, transient=True)
            self._task = self._bar.add_task("")
            self._bar.start()
        self._bar.update(
            self._task, description=_line(report), completed=report.step, total=report.last_step or None
        )


def _line(report: StepReport) -> str:
    of = f"/{report.last_step}" if report.last_step else ""
    best = f" | best {report.best}" if report.best else ""
    return (
        f"step {report.step}{of} | epoch {report.epoch + 1} | loss {report.loss:.3f} | "
        f"{report.tokens_per_second:,.0f} tokens/s{best}"
    )


class MetricsFile:
    """`metrics.jsonl`: one object a line, cut back to where a resumed run was when it was saved."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        with disk_errors(path):
            self._file = open(path, "ab")  # noqa: SIM115 - closed by `close`
            if self._file.tell() > size:
                self._file.truncate(size)

    def write(self, event: Mapping[str, Any]) -> None:
        with disk_errors(self._path):
            self._file.write(json.dumps(event, ensure_ascii=False).encode() + b"\n")
            self._file.flush()

    def size(self) -> int:
        """How much of it is safely on the disk once this returns."""
        with disk_errors(self._path):
            os.fsync(self._file.fileno())
            return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """The same figures as TensorBoard events; silent where that package is missing."""

    def __init__(self, path: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self._writer: Any = None
        else:
            self._writer = SummaryWriter(str(path), purge_step=step or None)  # type: ignore[no-untyped-call]

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def make_voice(quiet: bool) -> Voice:
    return Silent() if quiet else Terminal()


def warn(text: str) -> None:
    """What must be heard even when a run is quiet."""
    print(f"transduce: {text}", file=sys.stderr)
