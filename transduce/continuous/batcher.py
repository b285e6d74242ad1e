"""The batcher: a stream of blocks of sentences to a stream of their hypotheses, through pools of slots."""

import copy
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import ClassVar

import torch

from transduce.config import TransformerConfig
from transduce.continuous.decoder import SlotDecoder
from transduce.continuous.pool import SlotPool
from transduce.continuous.scheduler import Scheduler
from transduce.continuous.sentences import BeamOptions, SentenceBlock
from transduce.continuous.worker import Worker
from transduce.device import Device
from transduce.model import Transformer
from transduce.search import Hypothesis, Penalty, check_beam
from transduce.threads import POLL_S, prefetch

PREFETCHED_BLOCKS = 2  # that are tokenised before they are decoded, and decoded before they are detokenised

PoolKey = tuple[int, int, int, Penalty]  # slots, size, beam, penalty


def decoding_memory(config: TransformerConfig, sentences: int) -> int:
    """Bytes of the pool in which a GPU with enough memory decodes this many sentences greedily."""
    slots = min(ContinuousBatcher.MAX_ROWS, max(16, 1 << (sentences - 1).bit_length()))
    return slots * ContinuousBatcher.SMALLEST * SlotDecoder.bytes_per_position(config, torch.bfloat16)


class ContinuousBatcher:
    """Decodes with a model on a device; it owns a copy of the model's weights and the slot pools.

    Several threads may call `stream` at once: each call takes pools that no other call is using.
    """

    MAX_ROWS: ClassVar = 4_096  # slots x beams of the pool for the shortest outputs; pools for longer ones have fewer
    SMALLEST: ClassVar = 256  # positions of a slot in that pool
    MEMORY_SHARE: ClassVar = 0.25  # of the free memory that one pool may take

    def __init__(self, model: Transformer, device: Device, source_pad: int, start: int, end: int) -> None:
        self.model, self.device = model, device
        self.source_pad, self.start, self.end = source_pad, start, end
        self.lock = threading.Lock()  # for `idle_pools` and the weights of `worker`
        self.idle_pools: dict[PoolKey, SlotPool] = {}  # the most recently used one last

    @cached_property
    def worker(self) -> Worker:
        """A copy of the model in the precision that decodes fastest; it gets the current weights when a stream begins."""
        model = copy.deepcopy(self.model).to(torch.bfloat16 if self.device.bf16 else torch.float32)
        return Worker(model, self.device, self.source_pad, self.start, self.end)

    @cached_property
    def max_positions(self) -> int:
        """Rows x positions of the largest pool that the device's memory allows."""
        most = self.MAX_ROWS * self.SMALLEST
        if self.device.kind != "cuda":
            return most
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        while most > max(self.MEMORY_SHARE * free / self._bytes_per_position, self.SMALLEST):
            most //= 2
        return most

    @property
    def bytes_in_pools(self) -> int:
        """The memory of the pools that no stream is using."""
        return self._idle_positions() * self._bytes_per_position if self.idle_pools else 0

    @property
    def _bytes_per_position(self) -> int:
        return SlotDecoder.bytes_per_position(self.worker.model.config, self.worker.model.target_embedding.weight.dtype)

    def stream(self, blocks: Iterable[SentenceBlock], options: BeamOptions) -> Iterator[list[list[Hypothesis]]]:
        """The hypotheses of each block in turn.

        One thread iterates over `blocks`, a second one drives the device, and the caller's thread gets the results, so
        that texts are tokenised and detokenised while the device decodes.
        """
        with (
            # Its thread may be waiting for input that never comes.
            prefetch(blocks, PREFETCHED_BLOCKS, POLL_S) as ready,
            prefetch(self.decode(ready, options), PREFETCHED_BLOCKS) as found,
        ):
            try:
                yield from found
            finally:
                ready.cancelled.set()

    @torch.inference_mode()
    def decode(self, blocks: Iterator[SentenceBlock], options: BeamOptions) -> Iterator[list[list[Hypothesis]]]:
        """The same in the caller's thread: slots that the sentences of one block leave go to the next block."""
        check_beam(options.beam, options.n_best)
        self._copy_weights()
        scheduler = Scheduler(blocks, self.SMALLEST)
        while scheduler.receive():
            for size in scheduler.sizes():
                yield from self._through_a_pool(size, scheduler, options)
                if scheduler.cancelled:
                    return
            yield from scheduler.completed()
        if scheduler.error:
            raise scheduler.error

    def _through_a_pool(
        self, size: int, scheduler: Scheduler, options: BeamOptions
    ) -> Iterator[list[list[Hypothesis]]]:
        """Decode the sentences that need slots of this size until none waits; gives blocks that become complete."""
        with self._pool(size, len(scheduler.waiting[size]), options) as pool:
            for sentences, found in pool.run(partial(scheduler.take, size), options):
                for sentence, best in zip(sentences, found, strict=True):
                    sentence.block.put(sentence.number, best)
                if scheduler.cancelled:
                    return
                yield from scheduler.completed()

    def _copy_weights(self) -> None:
        """Give the worker the model's current weights: the model may be in training."""
        with self.lock:
            self.model.eval()
            self.worker.model.eval()
            theirs, ours = list(self.worker.model.parameters()), list(self.model.parameters())
            torch._foreach_copy_(theirs, ours)  # type: ignore[arg-type]

    @contextmanager
    def _pool(self, size: int, count: int, options: BeamOptions) -> Iterator[SlotPool]:
        """A pool with slots of this size, for at least `count` sentences; no other stream uses it inside the context."""
        slots = max(1, self.max_positions // (size * options.beam))
        while slots > 16 and slots // 2 >= count:
            slots //= 2
        key = (slots, size, options.beam, options.penalty)
        with self.lock:
            pool = self.idle_pools.pop(key, None)
            if pool is None:
                self._free_memory(slots * options.beam * size)
        if pool is None:
            pool = SlotPool(self.worker, slots, size, options.beam, options.penalty)
        try:
            yield pool
        finally:
            with self.lock:
                self.idle_pools[key] = pool

    def _free_memory(self, positions: int) -> None:
        """Drop the least recently used pools until all pools together are as large as two of the largest."""
        while self.idle_pools and positions + self._idle_positions() > 2 * self.max_positions:
            self.idle_pools.pop(next(iter(self.idle_pools)))

    def _idle_positions(self) -> int:
        return sum(pool.positions for pool in self.idle_pools.values())
