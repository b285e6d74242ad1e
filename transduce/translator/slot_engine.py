"""The PyTorch engine for GPUs: sentences in slots, one recorded step for all of them, replayed.

A slot whose sentence is done takes the next one, of the next block of lines too, so that the device works on full batches
to the end of a file. The search keeps everything on the device; every few steps a look says which slots are done, and
arrives while the next steps are under way. Results are those of `TorchEngine`, which also serves what this does not:
sampling, phrases that must occur, outputs without `<unk>`, ensembles, and models the slots do not fit.
"""

import copy
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from transduce.device import recorded
from transduce.model import Tokens, Transformer
from transduce.model.decoding import Read, SlotDecoder, best_classes
from transduce.search import Hypothesis, Penalty, check_beam, length_penalty
from transduce.search.fixed import FixedBeam, FixedWalk
from transduce.search.step import Paths, forced_tokens, hypotheses, outputs
from transduce.threads import GLANCE_S, Made, ahead, hurrying
from transduce.translator.engine import Block, Ids, Request
from transduce.translator.torch_engine import TorchEngine

T = TypeVar("T")

LOOK_EVERY = 2  # steps
AHEAD = 2  # blocks of lines
OPEN = 4  # blocks that are searched at once, at most
REFILL = 1 / 16  # of the slots are given away at a time: fewer would cost the host more
LOCK = threading.Lock()  # of an engine's rooms and its worker's weights: searches may overlap
READ = 1 / 4  # as many sentences as this share of the slots are read at a time: fewer would be read no faster


class Results:
    """What was found for the sentences of a block."""

    def __init__(self, count: int) -> None:
        self.found: list[list[Hypothesis]] = [[] for _ in range(count)]
        self.missing = count

    def put(self, number: int, best: list[Hypothesis]) -> None:
        self.found[number] = best
        self.missing -= 1


class Asked(NamedTuple):
    """A sentence of a block, what its output must begin with, and the longest it may become."""

    block: Results
    number: int
    source: Ids
    prefix: Ids
    limit: int


Take = Callable[[int], list[Asked]]  # up to so many sentences
Answers = tuple[list[Asked], list[list[Hypothesis]]]


class Arrivals:
    """The sentences of the blocks that come, by the size of the room they need, and the blocks that are not done."""

    def __init__(self, blocks: Iterator[Block], least: int, limit: Callable[[Ids, Ids], int]) -> None:
        self.blocks, self.least, self.limit = blocks, least, limit
        self.error: Exception | None = None  # that ended the blocks; those before it are answered first
        self.open: deque[Results] = deque()
        self.waiting: dict[int, deque[Asked]] = {}

    def receive(self) -> bool:
        """Let the next block in, if there is one; its longest sentences go first."""
        try:
            block = None if self.error else next(self.blocks, None)
        except Exception as error:
            block, self.error = None, error
        if block is None:
            return False
        self.open.append(Results(len(block.sources)))
        pairs = enumerate(zip(block.sources, block.prefixes, strict=True))
        asked = [Asked(self.open[-1], n, s, prefix, self.limit(s, prefix)) for n, (s, prefix) in pairs]
        for one in sorted(asked, key=lambda one: -len(one.source)):
            self.waiting.setdefault(self._size(max(one.limit, len(one.source))), deque()).append(one)
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
    def left(self) -> bool:
        """Whether nobody wants the answers any more."""
        return isinstance(self.blocks, Made) and self.blocks.left.is_set()

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
    """Sentences that were read and wait for slots, which they enter together."""

    asked: list[Asked]
    read: Read
    forced: Tensor
    limits: Tensor

    def parts(self, size: int) -> "Iterator[Entry]":
        for begin in range(0, len(self.asked), size):
            rows = slice(begin, begin + size)
            yield Entry(self.asked[rows], self.read.rows(rows), self.forced[rows], self.limits[rows])


class Sent:
    """Copies of tensors on their way to the host, which does other things meanwhile."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        pinned = tensors[0].is_cuda
        self.copies = [
            torch.empty_like(t, device="cpu", pin_memory=pinned).copy_(t, non_blocking=True) for t in tensors
        ]
        self.arrived = torch.cuda.Event() if pinned else None
        if self.arrived:
            self.arrived.record()

    def received(self) -> list[Tensor]:
        if self.arrived:
            self.arrived.synchronize()
        return self.copies


class Occupancy:
    """Who is in which slot, as far as the host knows: it hears of the device a little later."""

    def __init__(self, slots: int) -> None:
        self.free = list(range(slots))
        self.inside: dict[int, tuple[int, Asked]] = {}  # with the turn they entered
        self.done: dict[int, Asked] = {}  # and not fetched yet
        self.looks: deque[tuple[int, Sent]] = deque()  # with the turn after whose steps it was taken
        self.turn = 0

    def enter(self, asked: list[Asked]) -> list[int]:
        slots, self.free = self.free[: len(asked)], self.free[len(asked) :]
        self.inside |= {slot: (self.turn, one) for slot, one in zip(slots, asked, strict=True)}
        return slots

    def look(self, finished: Tensor) -> None:
        """Ask which slots are done. The answer to the look before this has arrived by now, or soon does."""
        self.looks.append((self.turn, Sent([finished])))
        self.turn += 1
        if len(self.looks) > 1:
            turn, sent = self.looks.popleft()
            slots = sent.received()[0].nonzero()[:, 0].tolist()
            done = [slot for slot in slots if slot in self.inside and self.inside[slot][0] <= turn]
            self.done |= {slot: self.inside.pop(slot)[1] for slot in done}

    def leave(self) -> dict[int, Asked]:
        """Those who are done; their slots are free."""
        left, self.done = self.done, {}
        self.free += left
        return left


class SlotEngine(TorchEngine):
    """A model on a GPU."""

    spares_cores: ClassVar = True
    ROWS: ClassVar = 2_048  # slots x beams, for outputs of up to WIDTH places; fewer where they may be longer
    WIDTH: ClassVar = 256
    SHARE: ClassVar = 0.25  # of the free memory that a room may take

    @cached_property
    def worker(self) -> Transformer:
        """What decodes: a model of its own, which has the other's weights whenever a search begins."""
        return copy.deepcopy(self.model).to(torch.bfloat16 if self.device.bf16 else torch.float32)

    @cached_property
    def rooms(self) -> dict[tuple[object, ...], "Room"]:
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
            hurrying(),
            ahead(blocks, AHEAD, GLANCE_S) as ready,  # their text may never come, and nobody needs it any more
            ahead(self._flow(ready, request), AHEAD) as found,
        ):
            try:
                yield from found
            finally:
                ready.left.set()

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
        arrivals = Arrivals(blocks, self.WIDTH, self._limit(request))
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
            self.worker.eval()
            theirs, ours = list(self.worker.parameters()), list(self.model.parameters())
            torch._foreach_copy_(theirs, ours)  # type: ignore[arg-type]

    def _limit(self, request: Request) -> Callable[[Ids, Ids], int]:
        """The longest that the output for a source and with a prefix may become."""
        extra, most = request.max_extra, self.model.target_positions.limit or 10**9
        return lambda source, prefix: min(max(len(source) + extra, len(prefix) + 1), most)

    @contextmanager
    def _room(self, size: int, count: int, request: Request) -> "Iterator[Room]":
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
            room = Room(self, slots, size, request.beam, length_penalty(request.length_penalty, request.alpha))
        try:
            yield room
        finally:
            with LOCK:
                self.rooms[key] = room  # the last one used is the last to go

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
        self.group = max(1, int(REFILL * slots))  # sentences that come or go together, at most
        self.at = torch.zeros(self.group, dtype=torch.long, device=device)  # the slots they come to, or go from
        self.forced = torch.full((self.group, size), engine.end, device=device)
        self.limits = torch.ones_like(self.at)
        self.step = self._recorded(self._step)
        self.begin = self._recorded(lambda: self.fixed.put(self.at, self.forced, self.limits))
        self.finders: dict[int, Callable[[], Paths]] = {}

    def search(self, take: Take, request: Request) -> Iterator[Answers]:
        """Every sentence that can be taken through a slot; in the order they are done.

        While others wait, slots are given away some at a time, and what was found in them is fetched then.
        """
        find = self._finder(request.n_best)
        self.fixed.clear()  # of sentences nobody asks for any more: a search may have been left
        slots, waiting = Occupancy(len(self.fixed.place)), deque(self._read(take))
        while waiting or slots.inside or slots.done:
            left: dict[int, Asked] = {}
            if slots.done and not (waiting and len(slots.free) + len(slots.done) < len(waiting[0].asked)):
                left = slots.leave()
            gone = list(self._fetch(left, find, request))
            while waiting and len(waiting[0].asked) <= len(slots.free):
                entry = waiting.popleft()
                self._put(slots.enter(entry.asked), entry)
                waiting.extend(() if waiting else self._read(take))
            if slots.inside:
                for _ in range(LOOK_EVERY):
                    self.step()
                slots.look(self.fixed.finished)
            waiting.extend(() if waiting else self._read(take))
            for asked, sent in gone:
                yield asked, self._hypotheses(sent, len(asked), request.n_best)

    def _read(self, take: Take) -> Iterator[Entry]:
        """The next sentences through the encoder, in groups that enter together."""
        engine = self.engine
        asked = take(max(1, int(READ * len(self.fixed.place))))
        if asked:
            tokens = Tokens.padded([one.source for one in asked], engine.source_pad)
            limits = torch.tensor([one.limit for one in asked])
            forced = forced_tokens(limits, [one.prefix for one in asked], engine.end)
            there = Tokens(*map(self._there, (tokens.ids, tokens.position, tokens.segment)))
            read = self.decoder.read(engine.worker.encode(there))
            wide = pad(forced, (0, self.forced.shape[1] - forced.shape[1]), value=engine.end)
            entry = Entry(asked, read, *(self._there(self._whole_groups(rows)) for rows in (wide, limits)))
            yield from entry.parts(self.group)

    def _whole_groups(self, rows: Tensor) -> Tensor:
        """The same with the last one repeated until no group is smaller than the others."""
        return torch.cat((rows, rows[-1:].expand(-len(rows) % self.group, *rows.shape[1:])))

    def _put(self, slots: list[int], entry: Entry) -> None:
        self._point(slots)
        self.forced.copy_(entry.forced)
        self.limits.copy_(entry.limits)
        self.begin()
        self.decoder.put(self.at[: len(slots)], entry.read)

    def _fetch(
        self, left: dict[int, Asked], find: Callable[[], Paths], request: Request
    ) -> Iterator[tuple[list[Asked], Sent]]:
        """What was found for those who leave their slots, on its way."""
        slots, asked = list(left), list(left.values())
        for begin in range(0, len(slots), self.group):
            rows = slice(begin, begin + self.group)
            self._point(slots[rows])
            paths = find()
            figures = [paths.log_probs] if request.figures != "none" else []
            yield asked[rows], Sent([paths.tokens, paths.lengths, *figures])

    def _point(self, slots: list[int]) -> None:
        """Tell the device which slots are meant; the last is repeated where they are fewer than a group."""
        self.at.copy_(self._pinned(torch.tensor(slots + slots[-1:] * (self.group - len(slots)))), non_blocking=True)

    def _finder(self, n_best: int) -> Callable[[], Paths]:
        if n_best not in self.finders:
            self.finders[n_best] = self._recorded(lambda: self.fixed.paths(self.at, self.forced.shape[1], n_best))
        return self.finders[n_best]

    def _hypotheses(self, sent: Sent, sentences: int, n_best: int) -> list[list[Hypothesis]]:
        tokens, lengths, *figures = (rows[: sentences * n_best] for rows in sent.received())
        if not figures:
            return outputs(tokens, lengths, sentences)
        return hypotheses(Paths(tokens, figures[0], lengths), sentences, self.penalty)

    def _there(self, tensor: Tensor) -> Tensor:
        """The same on the device, without waiting until it has arrived."""
        return self._pinned(tensor).to(self.engine.device.torch, non_blocking=True)

    def _pinned(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory() if self.engine.device.kind == "cuda" else tensor

    def _recorded(self, work: Callable[[], T]) -> Callable[[], T]:
        return recorded(work) if self.engine.device.kind == "cuda" else work

    def _step(self) -> None:
        place = self.fixed.place.clone()
        hidden = self.decoder.step(self.fixed.tokens, place)
        count = 1 if self.beam == 1 else 2 * self.beam
        self.fixed.advance(*best_classes(self.engine.worker, hidden, count, self.fixed.must))
        if isinstance(self.fixed, FixedBeam):
            self.decoder.follow(self.fixed.parents, place)
