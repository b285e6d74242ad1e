"""Slots of one size for sentences that come and go, and the recorded steps that serve them all at once.

Everything that the device does here is recorded once and replayed: a step of the search, sentences that are read by the
encoder, that enter slots, whose outputs are followed back. So the host has a dozen things to say where it had hundreds.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from transduce.device import Device, captured
from transduce.model import Tokens, Transformer
from transduce.model.decoding import Read, SlotDecoder, best_classes
from transduce.model.tokens import padded_ids
from transduce.search import Hypothesis, Penalty
from transduce.search.fixed import FixedBeam, FixedWalk
from transduce.search.step import FREE, Paths, forced_tokens, hypotheses, outputs
from transduce.translator.engine import Ids, Request

T = TypeVar("T")

LOOK_EVERY = 2  # steps
LOOKS_AHEAD = 1  # looks that are not waited for: the device has steps to do meanwhile
REFILL = 1 / 16  # of the slots are given away at a time: fewer would cost the host more
READ = 512  # sentences are read at a time, at most: fewer would be read no faster
WIDTHS = 32  # they are read at a multiple of so many places: each is recorded once


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


@dataclass(frozen=True)
class Entry:
    """Sentences that were read and wait for slots, which they enter together."""

    asked: list[Asked]
    read: Read
    limits: Tensor  # as many as a group has, whatever is asked
    forced: Tensor | None  # the same; None: nobody has a prefix


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
        """Ask which slots are done. The answer to an earlier look has arrived by now, or soon does."""
        self.looks.append((self.turn, Sent([finished])))
        self.turn += 1
        if len(self.looks) > LOOKS_AHEAD:
            turn, sent = self.looks.popleft()
            slots = sent.received()[0].nonzero()[:, 0].tolist()
            done = [slot for slot in slots if slot in self.inside and self.inside[slot][0] <= turn]
            self.done |= {slot: self.inside.pop(slot)[1] for slot in done}

    def leave(self) -> dict[int, Asked]:
        """Those who are done; their slots are free."""
        left, self.done = self.done, {}
        self.free += left
        return left


@dataclass(frozen=True)
class Worker:
    """A model that decodes, and the ids it begins and ends with."""

    model: Transformer
    device: Device
    source_pad: int
    start: int
    end: int

    def recorded(self, work: Callable[[], T], pool: object = None) -> Callable[[], T]:
        """The work as the device can replay it, where it can; its results are the same tensors every time."""
        return captured(work, pool=pool) if self.device.kind == "cuda" else work

    def there(self, tensor: Tensor) -> Tensor:
        """The same on the device, without waiting until it has arrived."""
        if self.device.kind != "cuda":
            return tensor.to(self.device.torch)
        pinned = torch.empty_like(tensor, pin_memory=True)
        pinned.numpy()[:] = tensor.numpy()  # torch would wake all cores for it
        return pinned.to(self.device.torch, non_blocking=True)


class Reader:
    """The encoder for sentences of up to so many tokens, always for as many of them, at the same place in memory."""

    def __init__(self, worker: Worker, decoder: SlotDecoder, ids: Tensor, memory: Tensor, pool: object) -> None:
        self.worker, self.ids, self.lengths = worker, ids, ids.new_ones(len(ids))
        into = memory[: ids.numel()].view(*ids.shape, *memory.shape[1:])
        self.run = worker.recorded(lambda: self._read(decoder, into), pool)

    def __call__(self, sources: Sequence[Ids]) -> Read:
        """What was read there before is gone then. Rows that are left have what they had: nobody asks them."""
        ids = torch.from_numpy(padded_ids(sources, self.ids.shape[1], self.worker.source_pad))
        for mine, theirs in ((self.ids, ids), (self.lengths, torch.tensor(list(map(len, sources))))):
            mine[: len(sources)].copy_(self.worker.there(theirs))
        return self.run()

    def _read(self, decoder: SlotDecoder, into: Tensor) -> Read:
        return decoder.read(self.worker.model.encode(Tokens.of_lengths(self.ids, self.lengths)), into)


class Room:
    """Slots of one size, and the step over all of them."""

    def __init__(self, worker: Worker, slots: int, size: int, beam: int, penalty: Penalty) -> None:
        self.worker, self.size, self.beam, self.penalty = worker, size, beam, penalty
        self.places, device = slots * beam * size, worker.device.torch
        self.decoder = SlotDecoder(worker.model, slots, beam, size, size)
        self.fixed: FixedWalk | FixedBeam = FixedWalk(slots, size, worker.start, worker.end, device)
        if beam > 1:
            self.fixed = FixedBeam(slots, size, worker.start, worker.end, beam, penalty, device)
        self.group = max(1, int(REFILL * slots))  # sentences that come or go together, at most
        self.at = torch.zeros(self.group, dtype=torch.long, device=device)  # the slots they come to, or go from
        self.forced = torch.full((self.group, size), FREE, device=device)
        self.limits = torch.ones_like(self.at)
        self.step = worker.recorded(self._step)
        self.begin = worker.recorded(self._begin)
        self.finders: dict[int, Callable[[], Paths]] = {}  # by n-best
        self.readers: dict[int, Reader] = {}  # by width
        self.most_read = min(slots, READ, max(16, slots // 4))
        self.memory = self.decoder.sources.new_empty(self.most_read * size, *self.decoder.sources.shape[2:])
        self.pool = torch.cuda.graph_pool_handle() if worker.device.kind == "cuda" else None

    def search(self, take: Take, request: Request) -> Iterator[Answers]:
        """Every sentence that can be taken through a slot; in the order they are done.

        While others wait, slots are given away some at a time, and what was found in them is fetched then.
        """
        find = self._finder(request.n_best)
        slots, waiting = Occupancy(len(self.fixed.place)), deque(self._read(take))
        while waiting or slots.inside or slots.done:
            left: dict[int, Asked] = {}
            if slots.done and not (waiting and len(slots.free) + len(slots.done) < len(waiting[0].asked)):
                left = slots.leave()
            gone = list(self._fetch(left, find, request))
            while waiting and len(waiting[0].asked) <= len(slots.free):
                entry = waiting.popleft()
                self._put(slots.enter(entry.asked), entry)
                if not waiting:
                    waiting.extend(self._read(take))
            if slots.inside:
                for _ in range(LOOK_EVERY):
                    self.step()
                slots.look(self.fixed.finished)
            if not waiting:
                waiting.extend(self._read(take))
            for asked, sent in gone:
                yield asked, self._hypotheses(sent, len(asked), request.n_best)

    def _read(self, take: Take) -> Iterator[Entry]:
        """The next sentences through the encoder, in groups that enter together."""
        asked = take(self.most_read)
        if not asked:
            return
        read = self._reader(max(len(one.source) for one in asked))([one.source for one in asked])
        on_host = torch.tensor([one.limit for one in asked])
        limits, forced = self._of_groups(on_host), None
        if any(len(one.prefix) for one in asked):
            forced = forced_tokens(on_host, [one.prefix for one in asked], self.worker.end)
            forced = self._of_groups(pad(forced, (0, self.size - forced.shape[1]), value=self.worker.end))
        for begin in range(0, len(asked), self.group):
            rows, some = slice(begin, begin + self.group), asked[begin : begin + self.group]
            inside = slice(begin, begin + len(some))
            yield Entry(some, read.rows(inside), limits[rows], None if forced is None else forced[rows])

    def _of_groups(self, rows: Tensor) -> Tensor:
        """The same on the device, with the last one repeated until no group is smaller than the others."""
        return self.worker.there(torch.cat((rows, rows[-1:].expand(-len(rows) % self.group, *rows.shape[1:]))))

    def _reader(self, longest: int) -> Reader:
        most = self.worker.model.source_positions.limit or self.size
        width = max(longest, min(-(-longest // WIDTHS) * WIDTHS, self.size, most))
        if width not in self.readers:
            ids = self.forced.new_full((self.most_read, width), self.worker.source_pad)
            self.readers[width] = Reader(self.worker, self.decoder, ids, self.memory, self.pool)
        return self.readers[width]

    def _put(self, slots: list[int], entry: Entry) -> None:
        self._point(slots)
        self.limits.copy_(entry.limits)
        if entry.forced is None:
            self.forced.fill_(FREE)
        else:
            self.forced.copy_(entry.forced)
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
        self.at.copy_(self.worker.there(torch.tensor(slots + slots[-1:] * (self.group - len(slots)))))

    def _finder(self, n_best: int) -> Callable[[], Paths]:
        if n_best not in self.finders:
            self.finders[n_best] = self.worker.recorded(lambda: self.fixed.paths(self.at, self.size, n_best))
        return self.finders[n_best]

    def _hypotheses(self, sent: Sent, sentences: int, n_best: int) -> list[list[Hypothesis]]:
        tokens, lengths, *figures = (rows[: sentences * n_best] for rows in sent.received())
        if not figures:
            return outputs(tokens, lengths, sentences)
        return hypotheses(Paths(tokens, figures[0], lengths), sentences, self.penalty)

    def _begin(self) -> None:
        """Sentences enter slots; what each place must take is what is forced, and `</s>` at the limit."""
        forced = self.forced.scatter(1, self.limits[:, None] - 1, self.worker.end)
        self.fixed.put(self.at, forced, self.limits)

    def _step(self) -> None:
        place = self.fixed.place.clone()
        hidden = self.decoder.step(self.fixed.tokens, place)
        count = 1 if self.beam == 1 else 2 * self.beam
        self.fixed.advance(*best_classes(self.worker.model, hidden, count, self.fixed.must))
        if isinstance(self.fixed, FixedBeam):
            self.decoder.follow(self.fixed.parents, place)
