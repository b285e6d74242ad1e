"""The PyTorch engine for GPUs: sentences in slots, one recorded step for all of them, replayed.

A slot whose sentence is done takes the next one, of the next block of lines too, so that the device works on full batches
to the end of a file. The search keeps everything on the device; every few steps one look says which slots are done. Results are those of
`TorchEngine`, which also serves what this does not: sampling, phrases that must occur, outputs without `<unk>`,
ensembles, and models the slots do not fit.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import torch
from torch import Tensor

from transduce.model import Tokens, Transformer
from transduce.model.decoding import SlotDecoder, best_classes
from transduce.search import Hypothesis, Penalty, check_beam, length_penalty
from transduce.search.fixed import FixedBeam, FixedWalk
from transduce.search.step import forced_tokens, hypotheses
from transduce.threads import Made, ahead, switching_often
from transduce.translator.engine import Block, Ids, Request
from transduce.translator.torch_engine import TorchEngine

LOOK_EVERY = 4  # steps
AHEAD = 2  # blocks of lines
OPEN = 4  # blocks that are searched at once, at most
READY = 2  # groups of sentences that wait at the door
REFILL = 1 / 16  # of the slots are given away at a time: fewer would be encoded no faster


class Results:
    """What was found for the sentences of a block."""

    def __init__(self, count: int) -> None:
        self.found: list[list[Hypothesis]] = [[] for _ in range(count)]
        self.missing = count

    def put(self, number: int, best: list[Hypothesis]) -> None:
        self.found[number] = best
        self.missing -= 1


@dataclass(frozen=True)
class Asked:
    """A sentence of a block, what its output must begin with, and the longest it may become."""

    block: Results
    number: int
    source: Ids
    prefix: Ids
    limit: int

    @property
    def places(self) -> int:
        return max(self.limit, len(self.source))


class Arrivals:
    """The sentences of the blocks that come, by the size of the room they need, and the blocks that are not done."""

    def __init__(self, blocks: Iterator[Block], least: int, limit: Callable[[Ids, Ids], int]) -> None:
        self.blocks, self.least, self.limit = blocks, least, limit
        self.open: deque[Results] = deque()
        self.waiting: dict[int, deque[Asked]] = {}

    def receive(self) -> bool:
        """Let the next block in, if there is one; its longest sentences go first."""
        block = next(self.blocks, None)
        if block is None:
            return False
        self.open.append(Results(len(block.sources)))
        pairs = enumerate(zip(block.sources, block.prefixes, strict=True))
        asked = [Asked(self.open[-1], n, s, prefix, self.limit(s, prefix)) for n, (s, prefix) in pairs]
        for one in sorted(asked, key=lambda one: -len(one.source)):
            self.waiting.setdefault(self._size(one.places), deque()).append(one)
        return True

    def sizes(self) -> Iterator[int]:
        """The rooms that sentences wait for, smallest first, until none does."""
        while sizes := [size for size, asked in self.waiting.items() if asked]:
            yield min(sizes)

    def take(self, size: int, count: int) -> list[Asked]:
        """Up to so many sentences for a room; blocks are let in for them, but not waited for."""
        asked = self.waiting[size]
        while len(asked) < count and len(self.open) < OPEN and not self._late and self.receive():
            pass
        return [asked.popleft() for _ in range(min(count, len(asked)))]

    def done(self) -> Iterator[list[list[Hypothesis]]]:
        """What was found for the next blocks of which nothing is missing."""
        while self.open and not self.open[0].missing:
            yield self.open.popleft().found

    @property
    def _late(self) -> bool:
        return isinstance(self.blocks, Made) and self.blocks.waiting

    def _size(self, places: int) -> int:
        """A room is twice the next smaller."""
        size = self.least
        while size < places:
            size *= 2
        return size


@dataclass(frozen=True)
class Entry:
    """Sentences that enter together, as tensors on the host."""

    asked: list[Asked]
    tokens: Tokens
    forced: Tensor
    limits: Tensor

    @staticmethod
    def of(asked: list[Asked], pad: int, end: int, pinned: bool) -> "Entry":
        tokens, limits = Tokens.padded([one.source for one in asked], pad), torch.tensor([one.limit for one in asked])
        forced = forced_tokens(limits, [one.prefix for one in asked], end)
        if pinned:
            tokens, forced, limits = tokens.pinned(), forced.pin_memory(), limits.pin_memory()
        return Entry(asked, tokens, forced, limits)


@dataclass(frozen=True)
class Landing:
    """What was found for sentences that left their slots, on its way to the host."""

    asked: list[Asked]
    fetched: list[Tensor]
    arrived: "torch.cuda.Event | None"

    @staticmethod
    def of(asked: list[Asked], fetched: list[Tensor], pinned: bool) -> "Landing":
        if not (asked and pinned):
            return Landing(asked, fetched, None)
        here = [torch.empty(t.shape, dtype=t.dtype, pin_memory=True).copy_(t, non_blocking=True) for t in fetched]
        arrived = torch.cuda.Event()
        arrived.record()
        return Landing(asked, here, arrived)

    def hypotheses(self, room: "Room", n_best: int) -> Iterator[tuple[Asked, list[Hypothesis]]]:
        if self.arrived:
            self.arrived.synchronize()
        if self.asked:
            found = hypotheses(room.fixed.paths(self.fetched), len(self.asked), room.engine.end, room.penalty)
            for one, best in zip(self.asked, found, strict=True):
                yield one, best[:n_best]


class SlotEngine(TorchEngine):
    """A model on a GPU."""

    ROWS: ClassVar = 2_048  # slots x beams, for outputs of up to WIDTH places; fewer where they may be longer
    WIDTH: ClassVar = 256
    SHARE: ClassVar = 0.25  # of the free memory that a room may take

    @cached_property
    def worker(self) -> Transformer:
        """What decodes: a model of its own, which has the other's weights whenever a search begins."""
        return copy.deepcopy(self.model).to(torch.bfloat16 if self.device.bf16 else torch.float32)

    @cached_property
    def rooms(self) -> dict[tuple[object, ...], "Room"]:
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
        with switching_often(), ahead(blocks, AHEAD) as ready, ahead(self._flow(ready, request), AHEAD) as found:
            yield from found

    @cached_property
    def places(self) -> int:
        """Rows x places of the largest room: what the device has memory for."""
        most = self.ROWS * self.WIDTH
        if self.device.kind != "cuda":
            return most
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        while most > max(self.SHARE * free / SlotDecoder.bytes_a_place(self.worker), self.WIDTH):
            most //= 2
        return most

    @torch.inference_mode()
    def _flow(self, blocks: Iterator[Block], request: Request) -> Iterator[list[list[Hypothesis]]]:
        """What is found for each block, in their order; slots that one block leaves go to the next."""
        check_beam(request.beam, request.n_best)
        self._refresh()
        arrivals = Arrivals(blocks, self.WIDTH, partial(self._limit, request))
        while arrivals.receive():
            for size in arrivals.sizes():
                room = self._room(size, len(arrivals.waiting[size]), request)
                for one, best in room.search(partial(arrivals.take, size), request.n_best):
                    one.block.put(one.number, best)
                    yield from arrivals.done()
            yield from arrivals.done()

    def _serves(self, request: Request) -> bool:
        other = request.sampling or request.constrained or not request.allow_unknown
        return not other and len(self.ensemble.models) == 1 and SlotDecoder.supports(self.model)

    def _refresh(self) -> None:
        """The worker has the model's weights of this moment."""
        self.model.eval()
        self.worker.eval()
        theirs, ours = list(self.worker.parameters()), list(self.model.parameters())
        torch._foreach_copy_(theirs, ours)  # type: ignore[arg-type]

    def _limit(self, request: Request, source: Ids, prefix: Ids) -> int:
        """The longest an output may become."""
        limit = max(len(source) + request.max_extra, len(prefix) + 1)
        return min(limit, self.model.target_positions.limit or limit)

    def _room(self, size: int, count: int, request: Request) -> "Room":
        """A room of this size for so many sentences."""
        slots = max(1, self.places // (size * request.beam))
        while slots > 16 and slots // 2 >= count:
            slots //= 2
        key = (slots, size, request.beam, request.alpha, request.length_penalty)
        room = self.rooms.pop(key, None)
        if room is None:
            self._make_place(slots * request.beam * size)
            room = Room(self, slots, size, request.beam, length_penalty(request.length_penalty, request.alpha))
        self.rooms[key] = room  # the last one used is the last to go
        return room

    def _make_place(self, places: int) -> None:
        """Give back the memory of rooms not used for longest, until all together are no more than two large ones."""
        while self.rooms and places + sum(room.places for room in self.rooms.values()) > 2 * self.places:
            self.rooms.pop(next(iter(self.rooms)))


class Room:
    """Slots of one size, and the step over all of them."""

    def __init__(self, engine: SlotEngine, slots: int, size: int, beam: int, penalty: Penalty) -> None:
        self.engine, self.beam, self.penalty = engine, beam, penalty
        self.places = slots * beam * size
        device = engine.device.torch
        self.decoder = SlotDecoder(engine.worker, slots, beam, size, size)
        self.fixed: FixedWalk | FixedBeam = FixedWalk(slots, size, engine.target_pad, engine.end, device)
        if beam > 1:
            self.fixed = FixedBeam(slots, size, engine.target_pad, engine.end, beam, penalty, device)
        self.pinned = engine.device.kind == "cuda"  # memory that is copied while the device works
        self.step = _recorded(self._step) if self.pinned else self._step

    def search(self, take: Callable[[int], list[Asked]], n_best: int) -> Iterator[tuple[Asked, list[Hypothesis]]]:
        """Every sentence that can be taken through a slot; in the order they are done.

        What the host has to do for sentences that come and go it does while the device takes the next steps.
        """
        self.fixed.clear()  # of sentences nobody asks for any more: a search may have been left
        ready = deque(self._entries(take, 1))
        inside: dict[int, Asked] = {}
        while ready or inside:
            free = self.fixed.finished.nonzero()[:, 0].tolist()  # the one look
            landing = self._landing({slot: inside.pop(slot) for slot in free if slot in inside})
            while ready and len(ready[0].asked) <= len(free):
                entry = ready.popleft()
                slots, free = free[: len(entry.asked)], free[len(entry.asked) :]
                self._put(slots, entry)
                inside |= zip(slots, entry.asked, strict=True)
                ready.extend(self._entries(take, 0 if ready else 1))
            for _ in range(LOOK_EVERY if inside else 0):
                self.step()
            ready.extend(self._entries(take, READY - len(ready)))
            yield from landing.hypotheses(self, n_best)

    def _entries(self, take: Callable[[int], list[Asked]], count: int) -> Iterator["Entry"]:
        """Up to so many groups of sentences that enter together."""
        size = max(1, int(REFILL * len(self.fixed.place)))
        for _ in range(count):
            if asked := take(size):
                yield Entry.of(asked, self.engine.source_pad, self.engine.end, self.pinned)

    def _put(self, slots: list[int], entry: "Entry") -> None:
        device = self.fixed.place.device
        at = torch.tensor(slots, device=device)
        self.decoder.put(at, self.engine.worker.encode(entry.tokens.to(device)))
        self.fixed.put(at, entry.forced.to(device, non_blocking=True), entry.limits.to(device, non_blocking=True))

    def _landing(self, leaving: dict[int, Asked]) -> "Landing":
        slots = torch.tensor(list(leaving), dtype=torch.long, device=self.fixed.place.device)
        places = max((one.limit for one in leaving.values()), default=0)
        fetched = self.fixed.fetch(slots, places) if leaving else []
        return Landing.of(list(leaving.values()), fetched, self.pinned)

    def _step(self) -> None:
        place = self.fixed.place.clone()
        hidden = self.decoder.step(self.fixed.tokens, place)
        count = 1 if self.beam == 1 else 2 * self.beam
        self.fixed.advance(*best_classes(self.engine.worker, hidden, count, self.fixed.must))
        if isinstance(self.fixed, FixedBeam):
            self.decoder.follow(self.fixed.parents, place)


def _recorded(step: Callable[[], None]) -> Callable[[], None]:
    """The step as a CUDA graph. All slots are empty yet, so that trying it changes nothing."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may use the device meanwhile
        step()
    return graph.replay
