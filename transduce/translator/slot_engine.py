"""The PyTorch engine for GPUs: sentences in slots, one recorded step for all of them, replayed.

A slot whose sentence is done takes the next one, of the next block of lines too, so that the device works on full batches
to the end of a file. The search keeps everything on the device; every few steps a look says which slots are done, and
arrives while the next steps are under way. Results are those of `TorchEngine`, which also serves what this does not:
sampling, phrases that must occur, outputs without `<unk>`, ensembles, and models the slots do not fit.
"""

import copy
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import count, repeat
from operator import attrgetter
from typing import ClassVar

import torch

from transduce.model.decoding import SlotDecoder
from transduce.search import Hypothesis, check_beam, length_penalty
from transduce.threads import POLL_S, Prefetched, prefetch
from transduce.translator.engine import Block, Ids, Request
from transduce.translator.room import Asked, Results, Room, Worker
from transduce.translator.torch_engine import TorchEngine

AHEAD = 2  # blocks of lines
OPEN = 8  # blocks that are searched at once, at most
LIMIT = attrgetter("limit")
LOCK = threading.Lock()  # of an engine's rooms and its worker's weights: searches may overlap


class Arrivals:
    """The sentences of the blocks that come, by the size of the room they need, and the blocks that are not done."""

    def __init__(self, blocks: Iterator[Block], least: int, limits: Callable[[Block], list[int]]) -> None:
        self.blocks, self.least, self.limits = blocks, least, limits
        self.error: Exception | None = None  # that ended the blocks; those before it are answered first
        self.open: deque[Results] = deque()
        self.waiting: defaultdict[int, list[Asked]] = defaultdict(list)  # the longest last

    def receive(self) -> bool:
        """Let the next block in, if there is one."""
        try:
            block = None if self.error else next(self.blocks, None)
        except Exception as error:
            block, self.error = None, error
        if block is None:
            return False
        results, limits = Results(len(block.sources)), self.limits(block)
        self.open.append(results)
        # Thousands at a time: what calls a function of Python for each would take longer than the device.
        asked = map(Asked, repeat(results), count(), block.sources, block.prefixes, limits)
        for size, one in zip(self._sizes(block, limits), asked, strict=True):
            self.waiting[size].append(one)
        for sentences in self.waiting.values():
            sentences.sort(key=LIMIT)
        return True

    def sizes(self) -> Iterator[int]:
        """The rooms that sentences wait for, smallest first, until none does."""
        while sizes := [size for size, asked in self.waiting.items() if asked]:
            yield min(sizes)

    def take(self, size: int, count: int) -> list[Asked]:
        """Up to so many sentences for a room, the longest there are: who comes late then leaves soon, and few steps are
        for the last few. Blocks are let in for that, but not waited for."""
        while len(self.open) < OPEN and not self._late and self.receive():
            pass
        asked = self.waiting[size]
        taken = asked[-count:]
        del asked[-count:]
        return taken[::-1]

    def done(self) -> Iterator[list[list[Hypothesis]]]:
        """What was found for the next blocks of which nothing is missing."""
        while self.open and not self.open[0].missing:
            yield self.open.popleft().found

    @property
    def left(self) -> bool:
        """Whether nobody wants the answers any more."""
        return isinstance(self.blocks, Prefetched) and self.blocks.cancelled.is_set()

    @property
    def _late(self) -> bool:
        return isinstance(self.blocks, Prefetched) and self.blocks.pending

    def _sizes(self, block: Block, limits: list[int]) -> list[int]:
        """The room for each sentence: one is twice the next smaller."""
        places = map(max, limits, map(len, block.sources))
        return [self.least << ((n - 1) // self.least).bit_length() for n in places]


class SlotEngine(TorchEngine):
    """A model on a GPU."""

    spares_cores: ClassVar = True
    ROWS: ClassVar = 4_096  # slots x beams, for outputs of up to WIDTH places; fewer where they may be longer
    WIDTH: ClassVar = 256
    SHARE: ClassVar = 0.25  # of the free memory that a room may take

    @cached_property
    def worker(self) -> Worker:
        """What decodes: a model of its own, which has the other's weights whenever a search begins."""
        model = copy.deepcopy(self.model).to(torch.bfloat16 if self.device.bf16 else torch.float32)
        return Worker(model, self.device, self.source_pad, self.target_pad, self.end)

    @cached_property
    def rooms(self) -> dict[tuple[object, ...], Room]:
        """Those that nobody is in."""
        return {}

    def search(
        self,
        sources: Sequence[Ids],
        prefixes: Sequence[Ids],
        request: Request,
        phrases: Sequence[Sequence[Ids]] = (),
    ) -> list[list[Hypothesis]]:
        if not self._serves(request):
            return super().search(sources, prefixes, request, phrases)
        return next(self._flow(iter([Block(sources, prefixes)]), request))

    def stream(self, blocks: Iterable[Block], request: Request) -> Iterator[list[list[Hypothesis]]]:
        """The same for each block in turn; the next are tokenised, and those before detokenised, while this is searched."""
        if not self._serves(request):
            yield from super().stream(blocks, request)  # no thread: whoever gets the results may look into this model
            return
        with (
            prefetch(blocks, AHEAD, POLL_S) as ready,  # their text may never come, and nobody needs it any more
            prefetch(self._flow(ready, request), AHEAD) as found,
        ):
            try:
                yield from found
            finally:
                ready.cancelled.set()

    @cached_property
    def places(self) -> int:
        """Rows x places of the largest room: what the device has memory for."""
        most = self.ROWS * self.WIDTH
        if self.device.kind != "cuda":
            return most
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        while most > max(self.SHARE * free / SlotDecoder.bytes_a_place(self.worker.model), self.WIDTH):
            most //= 2
        return most

    @torch.inference_mode()
    def _flow(self, blocks: Iterator[Block], request: Request) -> Iterator[list[list[Hypothesis]]]:
        """What is found for each block, in their order; slots that one block leaves go to the next."""
        check_beam(request.beam, request.n_best)
        self._refresh()
        arrivals = Arrivals(blocks, self.WIDTH, partial(request.limits, longest=self.longest))
        while arrivals.receive():
            for size in arrivals.sizes():
                yield from self._through_a_room(size, arrivals, request)
                if arrivals.left:
                    return
            yield from arrivals.done()
        if arrivals.error:
            raise arrivals.error

    def _through_a_room(self, size: int, arrivals: Arrivals, request: Request) -> Iterator[list[list[Hypothesis]]]:
        """Sentences that need a room of this size, as long as there are any; what is found for whole blocks meanwhile."""
        with self._room(size, len(arrivals.waiting[size]), request) as room:
            for asked, found in room.search(partial(arrivals.take, size), request):
                for one, best in zip(asked, found, strict=True):
                    one.block.put(one.number, best)
                if arrivals.left:
                    return
                yield from arrivals.done()

    def _serves(self, request: Request) -> bool:
        other = request.sampling or request.constrained or not request.allow_unknown
        return not other and len(self.ensemble.models) == 1 and SlotDecoder.supports(self.model)

    def _refresh(self) -> None:
        """The worker has the model's weights of this moment."""
        with LOCK:
            self.model.eval()
            self.worker.model.eval()
            theirs, ours = list(self.worker.model.parameters()), list(self.model.parameters())
            torch._foreach_copy_(theirs, ours)  # type: ignore[arg-type]

    @contextmanager
    def _room(self, size: int, count: int, request: Request) -> Iterator[Room]:
        """A room of this size for so many sentences, and for nobody else meanwhile."""
        slots = max(1, self.places // (size * request.beam))
        while slots > 16 and slots // 2 >= count:
            slots //= 2
        key = (slots, size, request.beam, request.alpha, request.length_penalty)
        with LOCK:
            room = self.rooms.pop(key, None)
            if room is None:
                self._make_place(slots * request.beam * size)
        if room is None:
            room = Room(self.worker, slots, size, request.beam, length_penalty(request.length_penalty, request.alpha))
        try:
            yield room
        finally:
            with LOCK:
                self.rooms[key] = room  # the last one used is the last to go

    def _make_place(self, places: int) -> None:
        """Give back the memory of rooms not used for longest, until all together are no more than two large ones."""
        while self.rooms and places + sum(room.places for room in self.rooms.values()) > 2 * self.places:
            self.rooms.pop(next(iter(self.rooms)))
