"""The PyTorch engine for GPUs: sentences in slots, one recorded step for all of them, replayed.

A slot whose sentence is done takes the next one, so that the device works on full batches to the end of a file. The
search keeps everything on the device; every few steps one look says which slots are done. Results are those of
`TorchEngine`, which also serves what this does not: sampling, phrases that must occur, outputs without `<unk>`,
ensembles, and models the slots do not fit.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import ClassVar

import torch
from torch import Tensor

from transduce.model import Tokens, Transformer
from transduce.model.decoding import SlotDecoder, best_classes
from transduce.search import Hypothesis, Penalty, length_penalty
from transduce.search.fixed import FixedBeam, FixedWalk
from transduce.search.step import forced_tokens, hypotheses
from transduce.threads import ahead
from transduce.translator.engine import Block, Ids, Request
from transduce.translator.torch_engine import TorchEngine

LOOK_EVERY = 8  # steps
AHEAD = 2  # blocks of lines
READY = 2  # groups of sentences that wait at the door
REFILL = 1 / 8  # of the slots are given away at a time: fewer would be encoded no faster


@dataclass(frozen=True)
class Asked:
    """A sentence, what its output must begin with, and the longest it may become."""

    number: int
    source: Ids
    prefix: Ids
    limit: int


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

    def hypotheses(self, room: "Room", n_best: int) -> Iterator[tuple[int, list[Hypothesis]]]:
        if self.arrived:
            self.arrived.synchronize()
        if self.asked:
            found = hypotheses(room.fixed.paths(self.fetched), len(self.asked), room.engine.end, room.penalty)
            for one, best in zip(self.asked, found, strict=True):
                yield one.number, best[:n_best]


class SlotEngine(TorchEngine):
    """A model on a GPU."""

    ROWS: ClassVar = 2_048  # slots x beams, for outputs of up to WIDTH places; fewer where they may be longer
    WIDTH: ClassVar = 128

    @cached_property
    def worker(self) -> Transformer:
        """What decodes: in bfloat16 a model of its own, which has the other's weights whenever a search begins."""
        return copy.deepcopy(self.model).to(torch.bfloat16) if self.device.bf16 else self.model

    @cached_property
    def rooms(self) -> dict[tuple[object, ...], "Room"]:
        return {}

    @torch.inference_mode()
    def search(
        self,
        sources: Sequence[Ids],
        prefixes: Sequence[Ids],
        request: Request,
        phrases: Sequence[Sequence[Ids]] = (),
    ) -> list[list[Hypothesis]]:
        if not self._serves(request):
            return super().search(sources, prefixes, request, phrases)
        self._refresh()
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for asked in self._by_room(sources, prefixes, request):
            for number, best in self._room(asked, request).search(asked, request.n_best):
                found[number] = best
        return found

    def stream(self, blocks: Iterable[Block], request: Request) -> Iterator[list[list[Hypothesis]]]:
        """The same for each block in turn; the next are tokenised, and those before detokenised, while this is searched."""
        with ahead(blocks, AHEAD) as ready, ahead(super().stream(ready, request), AHEAD) as found:
            yield from found

    def _serves(self, request: Request) -> bool:
        other = request.sampling or request.constrained or not request.allow_unknown
        return not other and len(self.ensemble.models) == 1 and SlotDecoder.supports(self.model)

    def _refresh(self) -> None:
        """The worker has the model's weights of this moment."""
        self.model.eval()
        self.worker.eval()
        if self.worker is not self.model:
            theirs, ours = list(self.worker.parameters()), list(self.model.parameters())
            torch._foreach_copy_(theirs, ours)  # type: ignore[arg-type]

    def _by_room(self, sources: Sequence[Ids], prefixes: Sequence[Ids], request: Request) -> list[list[Asked]]:
        """Sentences that need rooms of one size together, each group longest first; a room is twice the next smaller."""
        longest = self.model.target_positions.limit
        groups: dict[int, list[Asked]] = {}
        for number, (source, prefix) in enumerate(zip(sources, prefixes, strict=True)):
            limit = max(len(source) + request.max_extra, len(prefix) + 1)
            limit = min(limit, longest or limit)
            size = self.WIDTH
            while size < max(limit, len(source)):
                size *= 2
            groups.setdefault(size, []).append(Asked(number, source, prefix, limit))
        return [sorted(groups[size], key=lambda one: -len(one.source)) for size in sorted(groups)]

    def _room(self, asked: list[Asked], request: Request) -> "Room":
        size = self.WIDTH
        while size < max(max(one.limit, len(one.source)) for one in asked):
            size *= 2
        slots = max(1, self.ROWS * self.WIDTH // (size * request.beam))
        while slots > 16 and slots // 2 >= len(asked):
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
        while self.rooms and places + sum(room.places for room in self.rooms.values()) > 2 * self.ROWS * self.WIDTH:
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

    def search(self, asked: list[Asked], n_best: int) -> list[tuple[int, list[Hypothesis]]]:
        """Every sentence through a slot; in the order they are done.

        What the host has to do for sentences that come and go it does while the device takes the next steps.
        """
        entries = self._entries(asked)
        ready: deque[Entry] = deque(islice(entries, 1))
        inside: dict[int, Asked] = {}
        found: list[tuple[int, list[Hypothesis]]] = []
        while ready or inside:
            free = self.fixed.finished.nonzero()[:, 0].tolist()  # the one look
            landing = self._landing({slot: inside.pop(slot) for slot in free if slot in inside})
            while ready and len(ready[0].asked) <= len(free):
                entry = ready.popleft()
                slots, free = free[: len(entry.asked)], free[len(entry.asked) :]
                self._put(slots, entry)
                inside |= zip(slots, entry.asked, strict=True)
                ready.extend(islice(entries, 0 if ready else 1))
            for _ in range(LOOK_EVERY if inside else 0):
                self.step()
            ready.extend(islice(entries, READY - len(ready)))
            found += landing.hypotheses(self, n_best)
        return found

    def _entries(self, asked: list[Asked]) -> Iterator["Entry"]:
        """The sentences in groups that enter together."""
        size = max(1, int(REFILL * len(self.fixed.place)))
        for begin in range(0, len(asked), size):
            yield Entry.of(asked[begin : begin + size], self.engine.source_pad, self.engine.end, self.pinned)

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
    with torch.cuda.graph(graph):
        step()
    return graph.replay
