"""The training data, and an iterator over the batches of each step that can start at any step.

On a GPU the batches are prefetched in a thread, so that the device never waits for data.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transduce.config import Config
from transduce.data import Mixture
from transduce.data.batches import Batch, Ids, Pairs, Planned, Planner
from transduce.text import Vocabularies
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

    def passes(self, epoch: int) -> Sequence[Ids]:
        """The numbers of the pairs in an epoch: each pair once, or as often as the weight of its corpus demands."""
        return Mixture.of(self.train.groups, self.config.data.weights).epoch(self.config.train.seed, epoch)

    def pairs(self, epoch: int) -> Pairs:
        """The training pairs; with subword sampling, they are segmented anew in each epoch."""
        sampling = self.config.data.subword_sampling
        if not sampling:
            return self.train
        return self.train.resampled(self.vocabularies, sampling, self.config.train.seed, epoch)


@dataclass(frozen=True)
class StepBatches:
    """The batches of one optimizer step, or the shards of it that this process computes."""

    batches: list[Any]
    source_tokens: int
    target_tokens: int
    ends_epoch: bool


def step_batches(
    training_data: TrainingData,
    planner: Planner[Planned],
    epoch: int,
    position: int,
    pinned: bool = False,
    share: Share | None = None,
) -> Iterator[StepBatches]:
    """Yield the batches of each step forever, starting at step `position` of an epoch; or this process's share of them."""
    while True:
        pairs = training_data.pairs(epoch)
        plan = planner.plan(pairs, epoch, training_data.passes(epoch))
        for number, step in enumerate(plan[position:], position + 1):
            numbers = [planner.pairs_of(batch) for batch in step]
            yield StepBatches(
                batches=step_work(training_data.vocabularies, planner, pairs, step, pinned, share),
                source_tokens=sum(int(pairs.source_lengths[n].sum()) for n in numbers),
                target_tokens=sum(int(pairs.target_lengths[n].sum()) for n in numbers),
                ends_epoch=number == len(plan),
            )
        epoch, position = epoch + 1, 0


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
