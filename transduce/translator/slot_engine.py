"""The PyTorch engine for GPUs: sentences in slots, one recorded step for all of them, replayed.

A slot whose sentence is done takes the next one, so that the device works on full batches to the end of a file. The
search keeps everything on the device; every few steps one look says which slots are done. Results are those of
`TorchEngine`, which also serves what this does not: sampling, phrases that must occur, outputs without `<unk>`,
ensembles, and models the slots do not fit.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from transduce.device import Device
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
REFILL = 1 / 8  # of the slots are empty before new sentences are encoded for them


@dataclass(frozen=True)
class Asked:
    """A sentence, what its output must begin with, and the longest it may become."""

    number: int
    source: Ids
    prefix: Ids
    limit: int


class SlotEngine(TorchEngine):
    """A model on a GPU."""

    ROWS: ClassVar = 2_048  # slots x beams, for outputs of up to WIDTH places; fewer where they may be longer
    WIDTH: ClassVar = 128

    def __init__(
        self,
        model: Transformer,
        device: Device,
        source_pad: int,
        target_pad: int,
        end: int,
        others: Sequence[Transformer] = (),
    ) -> None:
        super().__init__(model, device, source_pad, target_pad, end, others)
        self.worker = model
        self.rooms: dict[tuple[object, ...], Room] = {}

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
        """The worker has the model's weights of this moment, in bfloat16 where that is chosen."""
        self.model.eval()
        if not self.device.bf16:
            return
        if self.worker is self.model:
            self.worker = copy.deepcopy(self.model).to(torch.bfloat16)
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
        self.step = _recorded(self._step) if engine.device.kind == "cuda" else self._step

    def search(self, asked: list[Asked], n_best: int) -> list[tuple[int, list[Hypothesis]]]:
        """Every sentence through a slot; in the order they are done."""
        waiting = asked[::-1]
        inside: dict[int, Asked] = {}
        found: list[tuple[int, list[Hypothesis]]] = []
        while waiting or inside:
            done = self.fixed.finished.nonzero()[:, 0].tolist()  # the one look
            ready = [slot for slot in done if slot in inside]
            if ready:
                paths = self.fixed.paths(torch.tensor(ready, device=self.fixed.place.device))
                for slot, best in zip(ready, hypotheses(paths, len(ready), self.engine.end, self.penalty), strict=True):
                    found.append((inside.pop(slot).number, best[:n_best]))
            if waiting and (len(done) >= REFILL * len(self.fixed.place) or not inside):
                entering = {slot: waiting.pop() for slot in done[: len(waiting)]}
                self._put(entering)
                inside |= entering
            for _ in range(LOOK_EVERY if inside else 0):
                self.step()
        return found

    def _put(self, entering: dict[int, Asked]) -> None:
        device = self.fixed.place.device
        slots = torch.tensor(list(entering), device=device)
        tokens = Tokens.padded([one.source for one in entering.values()], self.engine.source_pad).to(device)
        limits = torch.tensor([one.limit for one in entering.values()])
        forced = forced_tokens(limits, [one.prefix for one in entering.values()], self.engine.end)
        self.decoder.put(slots, self.engine.worker.encode(tokens))
        self.fixed.put(slots, forced.to(device), limits.to(device))

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
