"""From a store of ids to padded batches under a token budget, in an order that can be recomputed.

The plan of an epoch, or of a window of it, is a pure function of (lengths, seed, epoch, window): a run that was killed recomputes
it and resumes at its position. This module knows ids and tensors (it makes the model's `Tokens`), and neither text nor files.

A *step* is what one optimizer update sees: about `tokens_per_batch` real target tokens. A *batch* is what the device
sees at once: at most `max_positions` positions on each side, padding included. A step is one batch, or several batches
whose gradients are added.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.config import DataConfig
from transduce.model import IGNORED, Sequences, Source, Tokens, collate
from transduce.text import Vocabularies

Ids = NDArray[np.integer]
Step = list[Ids]  # the pair numbers of each batch of the step

WINDOW = 1 << 20  # pairs sorted by length together: enough for tight batches, and bounded for any corpus


class Pairs(Protocol):
    """The pairs that batches are made from, such as a store."""

    source_lengths: NDArray[np.int32]
    target_lengths: NDArray[np.int32]
    groups: tuple[int, ...]  # how many pairs each corpus has, in order

    @property
    def size(self) -> int: ...  # bytes on disk
    def source(self, index: int) -> Ids: ...
    def target(self, index: int) -> Ids: ...
    def sources(self, numbers: Ids) -> Ids: ...  # of several pairs, end to end
    def targets(self, numbers: Ids) -> Ids: ...
    def resampled(self, vocabularies: Vocabularies, rate: float, seed: int, epoch: int) -> "Pairs": ...


@runtime_checkable
class Stored(Protocol):
    """Pairs in a folder of the cache."""

    path: Path


@runtime_checkable
class Recordings(Protocol):
    """Pairs whose sources are recordings, augmented differently in each epoch."""

    def augmented(self, data: DataConfig, seed: int, epoch: int) -> "Pairs": ...


@runtime_checkable
class CutText(Protocol):
    """Pairs whose targets are parts of a text, cut elsewhere in each epoch."""

    @property
    def one_per_row(self) -> bool: ...  # whether packing several of them into a row would save nothing
    def preceding(self, numbers: Ids) -> Ids: ...  # the token before each target, or -1 if a document begins there
    def at_epoch(self, seed: int, epoch: int) -> "Pairs": ...


@dataclass(frozen=True)
class Batch:
    """Sources, decoder inputs, and the token to predict at each position of the decoder inputs."""

    source: Source
    target: Tokens
    labels: Tensor

    @property
    def tokens(self) -> int:
        """Real target tokens, `</s>` included."""
        return int(self.target.real.sum())

    @property
    def padding(self) -> float:
        """The share of positions on both sides that hold no token."""
        positions = self.source.real.numel() + self.target.real.numel()
        return 1 - (int(self.source.real.sum()) + int(self.target.real.sum())) / positions

    @property
    def shape(self) -> tuple[int, ...]:
        """The shapes of both sides; a batch can be copied into another one of the same shape."""
        return (*self.source.shape, *self.target.shape)

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(self.source.to(device), self.target.to(device), self.labels.to(device, non_blocking=True))

    def shares(self, count: int) -> list["Batch"]:
        """The rows divided into `count` parts, or into one part per row if there are fewer rows."""
        parts = np.array_split(np.arange(len(self.labels)), min(count, len(self.labels)))
        return [self._rows(slice(int(rows[0]), int(rows[-1]) + 1)) for rows in parts]

    def _rows(self, rows: slice) -> "Batch":
        return Batch(self.source.rows(rows), self.target.rows(rows), self.labels[rows])

    def padded_to(self, rows: int, source_width: int, target_width: int) -> "Batch":
        """The same with more padding, and with rows that are nothing else."""
        more = (0, target_width - self.labels.shape[1], 0, rows - len(self.labels))
        labels = torch.nn.functional.pad(self.labels, more, value=IGNORED)
        return Batch(self.source.padded_to(rows, source_width), self.target.padded_to(rows, target_width), labels)

    def pinned(self) -> "Batch":
        """A copy in pinned memory, from which a GPU can copy asynchronously."""
        return Batch(self.source.pinned(), self.target.pinned(), self.labels.pin_memory())

    def copy_(self, other: "Batch") -> None:
        """Overwrite this batch with another one of the same shape."""
        self.source.copy_(other.source)
        self.target.copy_(other.target)
        self.labels.copy_(other.labels, non_blocking=True)


Planned = TypeVar("Planned")  # how a planner describes a batch


class Planner(Protocol[Planned]):
    """How pairs become steps: in padded rows (`Batching`) or in pages (`Paging`)."""

    def plan(
        self, pairs: Pairs, epoch: int, passes: Sequence[Ids] = (), window: int | None = None
    ) -> list[list[Planned]]: ...
    def make(self, pairs: Pairs, batch: Planned, source_pad: int, target_pad: int) -> Batch: ...
    def shards(self, step: list[Planned], count: int) -> list[list[Planned]]: ...  # some may be empty
    def pairs_of(self, batch: Planned) -> Ids: ...
    def positions_of(self, batch: Planned, pairs: Pairs) -> int: ...


@dataclass(frozen=True)
class Batching:
    """Batches with one pair per row; the fields are everything their order depends on."""

    tokens_per_batch: int
    max_positions: int  # of a batch on each side, padding included
    seed: int

    def plan(self, pairs: Pairs, epoch: int, passes: Sequence[Ids] = (), window: int | None = None) -> list[Step]:
        """The steps of an epoch or of a window in random order; a batch has pairs of similar length from one pass.

        Without `passes`, every pair is used once.
        """
        order = order_of(self.seed, epoch, window)
        batches: list[Ids] = []
        for numbers in passes or [np.arange(len(pairs.source_lengths))]:
            shuffled = order.permutation(numbers)
            for begin in range(0, len(shuffled), WINDOW):
                batches += self.cut(pairs, shuffled[begin : begin + WINDOW])
        order.shuffle(batches)
        return self._group(batches, pairs.target_lengths)

    def make(self, pairs: Pairs, batch: Ids, source_pad: int, target_pad: int) -> Batch:
        """The tensors of a batch of the plan."""
        return make_batch(pairs, batch, source_pad, target_pad)

    def shards(self, step: Step, count: int) -> list[Step]:
        """The rows of each batch divided into `count` parts; a batch with fewer rows leaves some shards without a part."""
        parts = [np.array_split(batch, count) for batch in step]
        return [[part[shard] for part in parts if len(part[shard])] for shard in range(count)]

    def pairs_of(self, batch: Ids) -> Ids:
        return batch

    def positions_of(self, batch: Ids, pairs: Pairs) -> int:
        """How many positions a batch of the plan has on both sides, padding included."""
        return len(batch) * int(pairs.source_lengths[batch].max() + pairs.target_lengths[batch].max())

    def cut(self, pairs: Pairs, numbers: Ids) -> list[Ids]:
        """Batches of these pairs, sorted by target and source length and cut where another row would exceed the budget."""
        source, target = pairs.source_lengths[numbers], pairs.target_lengths[numbers]
        by_length = np.lexsort((source, target))
        numbers, source, target = numbers[by_length], source[by_length], target[by_length]
        widths, totals = np.maximum(source, target), np.cumsum(target)
        batches, begin = [], 0
        while begin < len(numbers):
            following = slice(begin, begin + self.max_positions)
            width = np.maximum.accumulate(widths[following])
            tokens = totals[following] - (totals[begin] - target[begin])
            fits = (width * np.arange(1, len(width) + 1) <= self.max_positions) & (tokens <= self.tokens_per_batch)
            end = begin + max(1, int(np.argmin(fits)) if not fits.all() else len(fits))
            batches.append(numbers[begin:end])
            begin = end
        return batches

    def _group(self, batches: list[Ids], target_lengths: NDArray[np.int32]) -> list[Step]:
        """Batches grouped into steps, in order: each batch belongs to the step that its middle token falls into."""
        sizes = np.array([int(target_lengths[batch].sum()) for batch in batches])
        step_of = ((np.cumsum(sizes) - sizes / 2) // self.tokens_per_batch).astype(int)
        steps: dict[int, Step] = {}
        for step, batch in zip(step_of, batches, strict=True):
            steps.setdefault(int(step), []).append(batch)
        return list(steps.values())


def order_of(seed: int, epoch: int, window: int | None) -> np.random.Generator:
    """The generator that orders an epoch, or one window of it."""
    return np.random.default_rng([seed, epoch] if window is None else [seed, epoch, window])


def make_batch(pairs: Pairs, numbers: Ids, source_pad: int, target_pad: int) -> Batch:
    """A batch with one pair per row. The decoder's input is its target shifted right by one.

    Differs from the paper: the input begins with `<pad>`, whose embedding is zero; the paper does not specify it. A target that
    continues a text begins with the token before it.
    """
    targets = [pairs.target(int(n)) for n in numbers]
    labels = Tokens.padded(targets, IGNORED)
    inputs = torch.roll(labels.ids, 1, dims=1)
    inputs[:, 0] = torch.from_numpy(first_inputs(pairs, numbers, target_pad))
    inputs = torch.where(labels.real, inputs, target_pad)
    return Batch(
        source=collate([pairs.source(int(n)) for n in numbers], source_pad),
        target=Sequences(inputs, labels.position, labels.segment),
        labels=labels.ids,
    )


def first_inputs(pairs: Pairs, numbers: Ids, target_pad: int) -> Ids:
    """The decoder's first input for each target: `<pad>`, or the token before it in its text."""
    if not isinstance(pairs, CutText):
        return np.full(len(numbers), target_pad)
    before = pairs.preceding(numbers)
    return np.where(before < 0, target_pad, before)


def in_order(pairs: Pairs, max_positions: int, limit: int = 0) -> Iterator[Ids]:
    """Batches for validation, in a fixed order: of all pairs, or of `limit` pairs spread evenly over them."""
    batching = Batching(tokens_per_batch=max_positions, max_positions=max_positions, seed=0)
    every = max(1, len(pairs.source_lengths) // limit) if limit else 1
    numbers = np.arange(0, len(pairs.source_lengths), every)
    return iter(batching.cut(pairs, numbers[:limit] if limit else numbers))


def padding_share(planner: Planner[Planned], plan: list[list[Planned]], pairs: Pairs) -> float:
    """The share of positions without a token in these steps, computed from lengths alone."""
    batches = [batch for step in plan for batch in step]
    positions = sum(planner.positions_of(batch, pairs) for batch in batches)
    numbers = np.concatenate([planner.pairs_of(batch) for batch in batches])
    return 1 - float(pairs.source_lengths[numbers].sum() + pairs.target_lengths[numbers].sum()) / positions
