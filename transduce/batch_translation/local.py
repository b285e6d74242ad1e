"""Workers on this machine: in this process, or in processes of their own that are replaced when they die."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transduce.batch_translation.progress import Progress
from transduce.batch_translation.schedule import Schedule
from transduce.batch_translation.worker import ShardError, ShardReport, Worker, would_repeat
from transduce.cores import available_cores
from transduce.errors import DataError, RunError

START_ATTEMPTS = 3


def run_here(worker: Worker, schedule: Schedule, progress: Progress) -> None:
    """Translate all shards in this process."""
    while (number := schedule.take()) is not None:
        written = Written(progress)
        try:
            progress.finished(worker.translate(number, written.add))
        except (DataError, ShardError, MemoryError, RuntimeError, OSError) as error:
            reason = str(error) or type(error).__name__
            written.take_back()
            progress.failed(number, reason, schedule.failed(number, reason, is_final=would_repeat(error)))


class Written:
    """The rows of one attempt that progress has counted."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.rows = progress, 0

    def add(self, rows: int) -> None:
        self.rows += rows
        self.progress.advanced(rows)

    def take_back(self) -> None:
        self.progress.advanced(-self.rows)
        self.rows = 0


def run_processes(
    folder: Path, workers: int, threads: int, gpus: list[str], schedule: Schedule, progress: Progress
) -> None:
    """Translate all shards in several processes, each on its share of the cores or on a GPU of its own."""
    share = threads or max(1, available_cores() // workers)
    group = [
        WorkerThread(folder, share, gpus[n % len(gpus)] if gpus else "", schedule, progress) for n in range(workers)
    ]
    try:
        for one in group:
            one.start()
        while any(one.is_alive() for one in group):
            for one in group:
                one.join(0.1)  # in short waits, so that signals are handled
                if one.fatal:
                    raise RunError(one.fatal)
    finally:
        for one in group:
            one.stop()


class WorkerThread(threading.Thread):
    """Hands shards to one process, and starts another when it dies."""

    def __init__(self, folder: Path, threads: int, gpu: str, schedule: Schedule, progress: Progress) -> None:
        super().__init__(daemon=True)
        self.folder, self.threads, self.gpu = folder, threads, gpu
        self.schedule, self.progress = schedule, progress
        self.process: subprocess.Popen[str] | None = None
        self.fatal, self.stopping = "", False

    def run(self) -> None:
        try:
            while not self.fatal and not self.stopping and (number := self.schedule.take()) is not None:
                if self._ready():
                    self._translate(number)
        except Exception as error:
            self.fatal = str(error) or type(error).__name__
        self.stop()

    def stop(self) -> None:
        """End the process; its unfinished shard is left to another attempt."""
        self.stopping = True
        if self.process is not None:
            _end(self.process)

    def _ready(self) -> bool:
        """Whether a process with a loaded model is there; starts one if not."""
        for _ in range(START_ATTEMPTS):
            if self.process is not None and self.process.poll() is None:
                return True
            if self.process is not None:
                _end(self.process)
            self.process = self._start()
            if self.stopping:  # `stop` may have looked before this process was there
                return False
            answer = self._answer()
            self.fatal = answer.get("fatal", "")
            if answer:
                return not self.fatal
        self.fatal = f"worker processes end before they have loaded the model ({self._ending()})"
        return False

    def _start(self) -> "subprocess.Popen[str]":
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "PYTHONPATH": path} | ({"CUDA_VISIBLE_DEVICES": self.gpu} if self.gpu else {})
        command = [
            sys.executable,
            "-m",
            "transduce.batch_translation.worker_process",
            str(self.folder),
            str(self.threads),
        ]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C reaches this process alone, which ends the others
        )

    def _translate(self, number: int) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        written = Written(self.progress)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{number}\n")
            self.process.stdin.flush()
        while "rows" in (answer := self._answer()):
            written.add(answer["rows"])
        if "report" in answer:
            self.progress.finished(ShardReport(**answer["report"]))
        elif "fatal" in answer:
            self.fatal = answer["fatal"]
        elif not self.stopping:
            self._failed(number, answer, written)

    def _failed(self, number: int, answer: dict[str, Any], written: Written) -> None:
        reason = answer.get("failed", "")
        if not reason:
            place = self.progress.manifest.place(number, written.rows)
            reason = f"{place}: the process died at or after this line ({self._ending()})"
        written.take_back()
        lost, is_final = "failed" not in answer, answer.get("is_final", False)
        self.progress.failed(number, reason, self.schedule.failed(number, reason, lost, is_final))

    def _answer(self) -> dict[str, Any]:
        """The next object from the process, notes aside; empty if it has died."""
        assert self.process is not None
        assert self.process.stdout is not None
        while (line := self.process.stdout.readline()).endswith("\n"):
            answer: dict[str, Any] = json.loads(line)
            if "note" not in answer:
                return answer
            self.progress.note(answer["note"])
        return {}

    def _ending(self) -> str:
        assert self.process is not None
        code = self.process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was written last may not have been read
                pipe.close()


def visible_gpus(device: str) -> list[str]:
    """The GPUs that workers may use, as values of CUDA_VISIBLE_DEVICES."""
    if device == "cpu":
        return []
    count = _gpu_count()
    given = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return (given or [str(number) for number in range(count)])[:count]


def _gpu_count() -> int:
    """The number of GPUs; CTranslate2 answers much sooner than torch, which may not be needed otherwise."""
    if find_spec("ctranslate2") is not None:
        import ctranslate2

        return int(ctranslate2.get_cuda_device_count())
    import torch

    return torch.cuda.device_count()
