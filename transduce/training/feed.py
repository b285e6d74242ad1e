"""The training data, and an iterator over the batches of each step that can start at any step.

On a GPU the batches are prefetched in a thread, so that the device never waits for data. The plan of the next window is made in
a thread too.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any, Generic

from transduce.config import Config
from transduce.data import Mixture, Store, Windows
from transduce.data.batches import Batch, CutText, Pairs, Planned, Planner, Recordings
from transduce.data.concatenation import ConcatenatedPairs
from transduce.text import Vocabularies
from transduce.threads import prefetch
from transduce.training.shards import Share
from transduce.translator.evaluation import TestSet

PREFETCHED_STEPS = 8  # steps whose batches are prepared ahead for a GPU


@dataclass(frozen=True)
class TrainingData:
    """The training pairs of a run and its validation data, with the settings and vocabularies to read them."""

    config: Config
    vocabularies: Vocabularies
    train: Pairs
    valid: Pairs
    valid_texts: TestSet

    @property
    def mixture(self) -> Mixture:
        """How often an epoch has each pair: once, or as often as the weight of its corpus demands."""
        return Mixture.of(self.train.groups, self.config.data.weights)

    def windows(self, pairs_per_window: int) -> Windows:
        """The pairs of all epochs, in random order."""
        return Windows(self.mixture, self.config.train.seed, pairs_per_window)

    @cached_property
    def first_epoch(self) -> Pairs:
        """The training pairs with the lengths that they have in the first epoch, which plans and estimates are made from."""
        return self._concatenated(self.train, 0)

    @property
    def epoch_size(self) -> "EpochSize":
        """The size of an epoch, on average."""
        pairs = self.first_epoch
        both = self.mixture.total(pairs.source_lengths), self.mixture.total(pairs.target_lengths)
        return EpochSize(max(1, round(sum(self.mixture.seen))), *both)

    def pairs(self, epoch: int) -> Pairs:
        """The training pairs; text is cut and recordings are augmented anew in each epoch, subwords where they are sampled,
        and pairs are followed by others where they are concatenated."""
        sampling, seed = self.config.data.subword_sampling, self.config.train.seed
        if isinstance(self.train, CutText):
            return self.train.at_epoch(seed, epoch)
        if isinstance(self.train, Recordings):
            return self.train.augmented(self.config.data, seed, epoch)
        pairs = self.train.resampled(self.vocabularies, sampling, seed, epoch) if sampling else self.train
        return self._concatenated(pairs, epoch)

    def forget_epochs(self, before: int) -> None:
        """Remove what was kept of these epochs, so that a checkpoint in one of them can resume."""
        if isinstance(self.train, Store):
            self.train.forget_sampled(before)

    def _concatenated(self, pairs: Pairs, epoch: int) -> Pairs:
        data = self.config.data
        if not data.concatenate:
            return pairs
        return ConcatenatedPairs(pairs, data.concatenate, data.max_length, self.config.train.seed, epoch)

    @property
    def one_per_row(self) -> bool:
        """Whether each training pair has a row to itself."""
        return isinstance(self.train, CutText) and self.train.one_per_row

    @property
    def validation_lines(self) -> int:
        """How many lines a whole validation translates; of text, how many windows it predicts."""
        return len(self.valid_texts.sources) or len(self.valid.target_lengths)


@dataclass(frozen=True)
class EpochSize:
    """How much there is in one epoch."""

    pairs: int
    source_tokens: int
    target_tokens: int


@dataclass(frozen=True)
class Place:
    """A step of a run by its place in the data: the epoch, the window of the epoch, and the step of the window."""

    epoch: int = 0
    window: int = 0
    position: int = 0


@dataclass(frozen=True)
class StepBatches:
    """The batches of one optimizer step, or the shards of it that this process computes."""

    batches: list[Any]
    source_tokens: int
    target_tokens: int
    next: Place  # of the step after this one


@dataclass(frozen=True)
class PlannedWindow(Generic[Planned]):
    """The steps of one window."""

    pairs: Pairs
    steps: list[list[Planned]]
    epoch: int
    number: int
    ends_epoch: bool

    def after(self, position: int) -> Place:
        """The place of the step after this one."""
        if position + 1 < len(self.steps):
            return Place(self.epoch, self.number, position + 1)
        return Place(self.epoch + 1) if self.ends_epoch else Place(self.epoch, self.number + 1)


def planned_windows(
    training_data: TrainingData, windows: Windows, planner: Planner[Planned], begin: Place
) -> Iterator[PlannedWindow[Planned]]:
    """Plan one window after the other, forever."""
    for epoch in count(begin.epoch):
        pairs = training_data.pairs(epoch)
        if isinstance(pairs, CutText):  # not every epoch has as many
            windows = replace(windows, mixture=Mixture.of(pairs.groups, ()))
        number = windows.count(epoch)
        for window in range(begin.window if epoch == begin.epoch else 0, number):
            steps = windows.plan(planner, pairs, epoch, window)
            yield PlannedWindow(pairs, steps, epoch, window, ends_epoch=window + 1 == number)


def step_batches(
    training_data: TrainingData,
    windows: Windows,
    planner: Planner[Planned],
    begin: Place,
    pinned: bool = False,
    share: Share | None = None,
) -> Iterator[StepBatches]:
    """Yield the batches of each step forever, starting at a place; or this process's share of them."""
    position, planned = begin.position, planned_windows(training_data, windows, planner, begin)
    with prefetch(planned, 1) if windows.pairs_per_window else nullcontext(planned) as ready:
        for plan in ready:
            for number, step in enumerate(plan.steps[position:], position):
                numbers = [planner.pairs_of(batch) for batch in step]
                yield StepBatches(
                    batches=step_work(training_data.vocabularies, planner, plan.pairs, step, pinned, share),
                    source_tokens=sum(int(plan.pairs.source_lengths[n].sum()) for n in numbers),
                    target_tokens=sum(int(plan.pairs.target_lengths[n].sum()) for n in numbers),
                    next=plan.after(number),
                )
            position = 0


def step_work(
    vocabularies: Vocabularies,
    planner: Planner[Planned],
    pairs: Pairs,
    step: list[Planned],
    pinned: bool = False,
    share: Share | None = None,
) -> list[Any]:
    """The batches of a planned step, or this process's shards of it in groups."""

    def make(planned: Planned) -> Batch:
        batch = planner.make(pairs, planned, vocabularies.source.pad, vocabularies.target.pad)
        return batch.pinned() if pinned else batch

    return [make(planned) for planned in step] if share is None else share.work(planner, step, make)
