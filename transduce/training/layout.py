"""The layout of a run's batches: padded rows, buckets or pages, how an epoch is planned, and how large it is.

Knows the lengths of pairs, the model's needs and the device; knows nothing of gradients, budgets or validation.
"""

from typing import Any

import numpy as np

from transduce.data.batches import Batching, Planner, Recordings, padding_share
from transduce.data.buckets import Bucketing
from transduce.data.pages import Paging
from transduce.data.windows import usual_window
from transduce.device import Device
from transduce.errors import SettingError
from transduce.model import Model
from transduce.training.feed import TrainingData, step_work
from transduce.training.progress import Progress
from transduce.training.shards import Share

POSITIONS = {"cpu": 2_048, "cuda": 131_072}  # per side and batch; on a CPU, what fits its caches is fastest
CAPTURED = ("pages", "buckets")  # layouts of few shapes, whose steps a GPU can record once and replay


class BatchLayout:
    """How a run makes batches of its pairs. A run keeps its layout, even if another machine resumes it."""

    def __init__(
        self, training_data: TrainingData, model: Model, device: Device, progress: Progress, share: Share | None
    ) -> None:
        self.training_data, self.config = training_data, training_data.config.train
        self.device, self.progress, self.share = device, progress, share
        progress.layout = progress.layout or self._chosen(model)
        progress.positions = self.config.positions_per_microbatch or progress.positions or self._usual_positions()
        if progress.pairs_per_window < 0:
            progress.pairs_per_window = usual_window(training_data.mixture)
        self.planner = self._make_planner(model)
        self.windows = training_data.windows(progress.pairs_per_window)
        self._measure_epoch()

    def _usual_positions(self) -> int:
        """What suits the device. On a CPU, a batch of recordings is so large that each shard has a row, however long it is."""
        usual, train = POSITIONS[self.device.kind], self.training_data.train
        if self.share is None or self.device.kind != "cpu" or not isinstance(train, Recordings):
            return usual
        return self.share.shards * max(usual, int(train.source_lengths.max()))

    def _chosen(self, model: Model) -> str:
        """What a GPU can capture, and padded rows on a CPU."""
        if self.config.layout != "auto":
            return self.config.layout
        if self.device.kind != "cuda":
            return "padded"
        return "pages" if model.page_width else "buckets" if model.captured_in_rows and self.share is None else "padded"

    def _make_planner(self, model: Model) -> Planner[Any]:
        config, positions, width = self.config, self.progress.positions, model.page_width
        if self.progress.layout == "padded":
            return Batching(config.tokens_per_batch, positions, config.seed)
        if self.progress.layout == "buckets":
            size = self.training_data.epoch_size
            return Bucketing(config.tokens_per_batch, positions, config.seed, size.source_tokens / size.target_tokens)
        if not width:
            raise SettingError(
                f"train.layout = pages: models of the family {model.config.family} need train.layout=padded"
            )
        packed = not self.training_data.one_per_row
        return Paging(config.tokens_per_batch, positions, config.seed, width, config.shards, packed)

    def _measure_epoch(self) -> None:
        """The steps, the padding and the largest batch of an epoch, from its first window."""
        train = self.training_data.first_epoch
        steps = self.windows.plan(self.planner, train, 0, 0)
        self.steps_per_epoch, self.padding = len(steps), padding_share(self.planner, steps, train)
        if self.windows.pairs_per_window:
            pairs = sum(map(len, self.windows.passes(0, 0)))
            self.steps_per_epoch = round(len(steps) * self.training_data.epoch_size.pairs / pairs)
            longest = np.unique([train.source_lengths.argmax(), train.target_lengths.argmax()])
            steps += self.planner.plan(train, 0, [longest])
        batches = (batch for step in steps for batch in step)
        self.largest = max(batches, key=lambda batch: self.planner.positions_of(batch, train))

    def positions(self, kind: str) -> int:
        """The most positions per side of a batch, on this device or on another kind of device."""
        if kind == self.device.kind:
            return self.progress.positions
        return self.config.positions_per_microbatch or POSITIONS[kind]

    @property
    def tokens_per_step(self) -> float:
        """The mean number of target tokens in a step."""
        return self.training_data.epoch_size.target_tokens / self.steps_per_epoch

    @property
    def positions_per_step(self) -> float:
        """The mean number of positions on both sides of a step, padding included."""
        epoch = self.training_data.epoch_size
        return (epoch.source_tokens + epoch.target_tokens) / (1 - self.padding) / self.steps_per_epoch

    def positions_of(self, planned: Any) -> int:
        """The positions of a planned batch."""
        return self.planner.positions_of(planned, self.training_data.first_epoch)

    def largest_step(self) -> list[Any]:
        """A step of the largest batch; with shards in pages, each of them has it."""
        return [self.largest] * (self.config.shards if self.progress.layout == "pages" else 1)

    def largest_work(self) -> list[Any]:
        """The batches of such a step, or this process's share of them."""
        data = self.training_data
        return step_work(data.vocabularies, self.planner, data.first_epoch, self.largest_step(), share=self.share)
