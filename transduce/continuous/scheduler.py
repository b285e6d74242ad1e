"""The scheduler: which sentences enter the slots next, and which blocks are complete."""

from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import count, repeat
from operator import attrgetter

from transduce.continuous.sentences import BlockResults, PendingSentence, SentenceBlock
from transduce.search import Hypothesis
from transduce.threads import Prefetched

MAX_OPEN_BLOCKS = 8  # blocks that are decoded at the same time
LIMIT = attrgetter("limit")


class Scheduler:
    """Sorts incoming sentences by the size of slot they need, and hands out results block by block."""

    def __init__(self, blocks: Iterator[SentenceBlock], smallest: int) -> None:
        self.blocks, self.smallest = blocks, smallest
        self.error: Exception | None = None  # raised by `blocks`; the blocks before it are answered first
        self.open: deque[BlockResults] = deque()
        self.waiting: defaultdict[int, list[PendingSentence]] = defaultdict(list)  # by slot size; the longest last

    def receive(self) -> bool:
        """Take in the next block and wait for it if necessary; False if there are no more."""
        try:
            block = None if self.error else next(self.blocks, None)
        except Exception as error:
            block, self.error = None, error
        if block is None:
            return False
        results = BlockResults(len(block.sources))
        self.open.append(results)
        # A block has thousands of sentences: a Python function called for each would take longer than the device.
        pending = map(PendingSentence, repeat(results), count(), block.sources, block.prefixes, block.limits)
        for size, sentence in zip(self._sizes(block), pending, strict=True):
            self.waiting[size].append(sentence)
        for sentences in self.waiting.values():
            sentences.sort(key=LIMIT)
        return True

    def sizes(self) -> Iterator[int]:
        """The slot sizes that sentences wait for, smallest first, until none waits."""
        while sizes := [size for size, sentences in self.waiting.items() if sentences]:
            yield min(sizes)

    def take(self, size: int, count: int) -> list[PendingSentence]:
        """Up to `count` sentences for slots of this size, longest first.

        A sentence that starts late is then a short one, so that few steps run with only a few slots occupied. Blocks
        that are ready are taken in first; this never waits for a block.
        """
        while len(self.open) < MAX_OPEN_BLOCKS and not self._would_wait and self.receive():
            pass
        waiting = self.waiting[size]
        taken = waiting[-count:]
        del waiting[-count:]
        return taken[::-1]

    def completed(self) -> Iterator[list[list[Hypothesis]]]:
        """The hypotheses of the next blocks, in their order, as far as they are complete."""
        while self.open and not self.open[0].missing:
            yield self.open.popleft().found

    @property
    def cancelled(self) -> bool:
        """Whether the caller has stopped reading results."""
        return isinstance(self.blocks, Prefetched) and self.blocks.cancelled.is_set()

    @property
    def _would_wait(self) -> bool:
        return isinstance(self.blocks, Prefetched) and self.blocks.pending

    def _sizes(self, block: SentenceBlock) -> list[int]:
        """The positions a slot needs for each sentence: the smallest size, or a power of two times it."""
        positions = map(max, block.limits, map(len, block.sources))
        return [self.smallest << ((n - 1) // self.smallest).bit_length() for n in positions]
