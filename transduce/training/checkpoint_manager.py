"""The checkpoint manager: saves checkpoints, restores the newest intact one, and writes the best and averaged weights.

If several processes train the run, all of them call it, and process 0 alone reads and writes files.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from transduce import checkpoint
from transduce.checkpoint import Checkpoint, RunFolder, Tensors, read_about
from transduce.config import TrainConfig
from transduce.errors import DamagedFile, RunError
from transduce.text import Vocabularies
from transduce.training.processes import Alone, Processes
from transduce.training.progress import Intervals, Progress
from transduce.training.report import Reporter
from transduce.training.state import TrainingState
from transduce.training.validation import ValidationResult
from transduce.translator import better_weights

RANKED = ("step", "rank", "ranked_by", "ranked_lines")  # what the header of weights says about how they were chosen


class CheckpointManager:
    """The checkpoints and weights in the folder of one run."""

    def __init__(
        self,
        folder: RunFolder,
        config: TrainConfig,
        vocabularies: Vocabularies,
        reporter: Reporter,
        processes: Processes = Alone(),  # noqa: B008 - it has no state
    ) -> None:
        self.folder, self.config, self.reporter, self.processes = folder, config, reporter, processes
        self.known = {
            "source_vocabulary": vocabularies.source.digest,
            "target_vocabulary": vocabularies.target.digest,
        }

    def save(self, progress: Progress, state: TrainingState, last_step: int) -> None:
        """Write a checkpoint, and delete older ones that are no longer needed."""
        progress.threads = torch.get_num_threads()
        saved = state.checkpoint(asdict(progress))

        def write() -> None:
            path = checkpoint.save(self.folder, progress.step, saved, self.known)
            checkpoint.link(path / "weights.safetensors", self.folder.weights("last"))
            checkpoint.prune(self.folder, set(self.to_average(progress, last_step)))

        self.processes.first(write)

    def finish(self) -> None:
        """After the run: keep only the newest full state, from which a larger budget resumes."""
        self.processes.first(lambda: checkpoint.prune(self.folder, set(), full_states=1))

    def restore(self, state: TrainingState) -> Progress:
        """Load the newest intact checkpoint into the state; without checkpoints, the run starts at step 0."""
        steps = self.processes.first(lambda: checkpoint.steps_saved(self.folder))
        for step in reversed(steps):
            try:
                saved = self._read(step)
                progress = Progress.of(saved.progress)
                state.restore(saved)
            except DamagedFile as error:
                self.reporter.say(f"{error}; trying the previous checkpoint")
                continue
            self.reporter.say(f"resuming at step {progress.step:,}")
            self._warn_of_threads(progress)
            return progress
        if steps:
            raise DamagedFile(
                f"{self.folder.checkpoints}: all checkpoints are damaged; move the run folder away to start over"
            )
        if self.has("last"):
            raise RunError(
                f"{self.folder.path}: its checkpoints were deleted, so this run cannot be resumed; to train its weights "
                f"further, start a new run: transduce train NEW_RUN --from {self.folder.path} --train ..."
            )
        return Progress()

    def _read(self, step: int) -> Checkpoint:
        """The checkpoint of a step, as process 0 reads it."""
        read: list[Checkpoint] = []

        def from_disk() -> dict[str, Any]:
            read.append(checkpoint.restore(checkpoint.checkpoint_path(self.folder, step)))
            return read[0].progress

        progress = self.processes.first(from_disk)
        weights, optimizer = ({}, {}) if not read else (read[0].weights, read[0].optimizer)
        return Checkpoint(self.processes.spread(weights), self.processes.spread(optimizer), progress)

    def _warn_of_threads(self, progress: Progress) -> None:
        threads = torch.get_num_threads()
        if progress.threads != threads and self.config.shards == 1:  # with several, threads do not matter
            self.reporter.say(
                f"the number of threads changed from {progress.threads} to {threads} since this run was saved: "
                "its result will not be bit-identical to an uninterrupted run"
            )

    def to_average(self, progress: Progress, last_step: int) -> list[int]:
        """The steps of the newest regular checkpoints, without those saved on a signal: stopping must not change the result."""
        every = Intervals.of(self.config, last_step, progress).checkpoint_every
        planned = {*progress.planned_checkpoints, last_step}
        regular = [step for step in checkpoint.steps_saved(self.folder) if step % every == 0 or step in planned]
        return regular[-self.config.average :] if self.config.average else []

    def averaged(self, progress: Progress, last_step: int) -> Tensors:
        """The mean of the last checkpoints; empty if there are fewer than two."""
        mean: Tensors = {}

        def average() -> None:
            whole = [path for path in map(self._weights, self.to_average(progress, last_step)) if self._is_whole(path)]
            mean.update(checkpoint.average(whole) if len(whole) > 1 else {})

        self.processes.first(average)
        return self.processes.spread(mean)

    def _weights(self, step: int) -> Path:
        return checkpoint.checkpoint_path(self.folder, step) / "weights.safetensors"

    def _is_whole(self, path: Path) -> bool:
        try:
            checkpoint.read_tensors(path)
        except DamagedFile as error:
            self.reporter.say(f"{error}; it is left out of the average")
            return False
        return True

    def has(self, which: str) -> bool:
        return self.processes.first(lambda: self.folder.weights(which).exists())

    def is_complete(self, progress: Progress, last_step: int) -> bool:
        """Whether the final weights exist and were written at this step."""

        def written(which: str) -> bool:
            path = self.folder.weights(which)
            return path.exists() and read_about(path).get("step") == str(progress.step)

        def complete() -> bool:
            wanted = ["last", "averaged"] if len(self.to_average(progress, last_step)) > 1 else ["last"]
            return self.folder.weights("best").exists() and all(map(written, wanted))

        return self.processes.first(complete)

    def give(self, which: str, weights: Tensors, step: int, validation: ValidationResult) -> None:
        """Write the best or averaged weights, with their step, scores and vocabularies as metadata."""
        ranked = {
            "rank": repr(validation.rank),
            "ranked_by": validation.decided_by,
            "ranked_lines": str(validation.lines),
        }
        about = {**self.known, "step": str(step), **_scored(validation), **ranked}
        self.processes.first(lambda: checkpoint.write_tensors(self.folder.weights(which), weights, about))

    def chosen(self) -> tuple[str, Tensors]:
        """The name of the better weights, and their tensors."""
        which = self.processes.first(lambda: better_weights(self.folder))
        read: Tensors = {}
        self.processes.first(lambda: read.update(checkpoint.read_tensors(self.folder.weights(which))))
        return which, self.processes.spread(read)

    def rescore(self, which: str, weights: Tensors, validation: ValidationResult) -> None:
        """Write weights again with a score of more lines; their rank stays, because only ranks on the same lines compare."""

        def write() -> None:
            path = self.folder.weights(which)
            kept = {name: value for name, value in read_about(path).items() if name in (*self.known, *RANKED)}
            checkpoint.write_tensors(path, weights, kept | _scored(validation))

        self.processes.first(write)


def _scored(validation: ValidationResult) -> dict[str, str]:
    main = validation.scores.main
    return {
        "metric": main.name,
        "score": f"{main.value:.4f}",
        "signature": main.signature,
        "lines": str(validation.lines),
        "all_lines": str(validation.all_lines),
        "loss": f"{validation.loss:.6f}",
    }
