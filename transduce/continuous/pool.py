"""A pool of slots of one size: sentences enter and leave, and captured CUDA graphs serve all slots at once.

Everything the device does is captured once and replayed: a step of the search, encoding sources, starting sentences in
slots, and reading outputs back. The host then launches a dozen graphs where it would launch hundreds of kernels.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from transduce.continuous.decoder import EncodedSources, SlotDecoder, best_classes
from transduce.continuous.search import SlotBeamSearch, SlotGreedySearch
from transduce.continuous.sentences import BeamOptions, PendingSentence
from transduce.continuous.slot_table import SlotTable
from transduce.continuous.worker import HostCopy, SourceEncoder, Worker
from transduce.search import Hypothesis, Penalty
from transduce.search.step import FREE, Paths, forced_tokens, hypotheses, unscored_hypotheses

STEPS_PER_CHECK = 2  # steps of the search between two checks which slots are finished
REFILL = 1 / 16  # share of the slots that are refilled together: with a smaller one the host has more to do
MAX_ENCODED = 512  # sentences that are encoded together, at most: fewer take as long
WIDTH_STEP = 32  # sources are encoded at a multiple of this width; each width is captured once

Take = Callable[[int], list[PendingSentence]]  # returns at most this many sentences
Answers = tuple[list[PendingSentence], list[list[Hypothesis]]]


@dataclass(frozen=True)
class EncodedGroup:
    """Sentences that are encoded and wait for slots, which they enter together."""

    sentences: list[PendingSentence]
    sources: EncodedSources
    limits: Tensor  # as many as a full group has, even if there are fewer sentences
    forced: Tensor | None  # likewise; None: no sentence has a prefix


class SlotPool:
    """Slots of one size, their decoder and search, and the graphs that run over all of them."""

    def __init__(self, worker: Worker, slots: int, size: int, beam: int, penalty: Penalty) -> None:
        self.worker, self.size, self.beam, self.penalty = worker, size, beam, penalty
        self.positions, device = slots * beam * size, worker.device.torch
        self.decoder = SlotDecoder(worker.model, slots, beam, size, size)
        self.search: SlotGreedySearch | SlotBeamSearch = SlotGreedySearch(slots, size, worker.start, worker.end, device)
        if beam > 1:
            self.search = SlotBeamSearch(slots, size, worker.start, worker.end, beam, penalty, device)
        self.group = max(1, int(REFILL * slots))  # sentences that enter or leave together, at most
        self.chosen = torch.zeros(self.group, dtype=torch.long, device=device)  # the slots they enter or leave
        self.forced = torch.full((self.group, size), FREE, device=device)
        self.limits = torch.ones_like(self.chosen)
        self.step = worker.captured(self._step)
        self.start = worker.captured(self._start)
        self.finders: dict[int, Callable[[], Paths]] = {}  # by n-best
        self.encoders: dict[int, SourceEncoder] = {}  # by width
        self.max_encoded = min(slots, MAX_ENCODED, max(16, slots // 4))
        self.memory = self.decoder.sources.new_empty(self.max_encoded * size, *self.decoder.sources.shape[2:])
        self.graph_pool = torch.cuda.graph_pool_handle() if worker.device.kind == "cuda" else None

    def run(self, take: Take, options: BeamOptions) -> Iterator[Answers]:
        """Decode every sentence that `take` gives; answers come in the order in which sentences finish.

        While others wait, slots are refilled a group at a time, and the outputs of finished slots are fetched then.
        """
        find = self._finder(options.n_best)
        slots, waiting = SlotTable(len(self.search.position)), deque(self._encode(take))
        while waiting or slots.occupied or slots.finished:
            released: dict[int, PendingSentence] = {}
            if slots.finished and not (waiting and len(slots.free) + len(slots.finished) < len(waiting[0].sentences)):
                released = slots.release()
            fetched = list(self._fetch(released, find, options))
            while waiting and len(waiting[0].sentences) <= len(slots.free):
                group = waiting.popleft()
                self._enter(slots.enter(group.sentences), group)
                if not waiting:
                    waiting.extend(self._encode(take))
            if slots.occupied:
                for _ in range(STEPS_PER_CHECK):
                    self.step()
                slots.check(self.search.finished)
            if not waiting:
                waiting.extend(self._encode(take))
            for sentences, copy in fetched:
                yield sentences, self._hypotheses(copy, len(sentences), options.n_best)

    def _encode(self, take: Take) -> Iterator[EncodedGroup]:
        """Encode the next sentences, and divide them into groups."""
        sentences = take(self.max_encoded)
        if not sentences:
            return
        sources = self._encoder(max(len(one.source) for one in sentences))([one.source for one in sentences])
        on_host = torch.tensor([one.limit for one in sentences])
        limits, forced = self._in_full_groups(on_host), None
        if any(len(one.prefix) for one in sentences):
            forced = forced_tokens(on_host, [one.prefix for one in sentences], self.worker.end)
            forced = self._in_full_groups(pad(forced, (0, self.size - forced.shape[1]), value=self.worker.end))
        for begin in range(0, len(sentences), self.group):
            rows, some = slice(begin, begin + self.group), sentences[begin : begin + self.group]
            inside = slice(begin, begin + len(some))
            yield EncodedGroup(some, sources.rows(inside), limits[rows], None if forced is None else forced[rows])

    def _in_full_groups(self, rows: Tensor) -> Tensor:
        """Copy rows to the device, with the last one repeated until the last group is full."""
        return self.worker.to_device(torch.cat((rows, rows[-1:].expand(-len(rows) % self.group, *rows.shape[1:]))))

    def _encoder(self, longest: int) -> SourceEncoder:
        most = self.worker.model.config.longest_source or self.size
        width = max(longest, min(-(-longest // WIDTH_STEP) * WIDTH_STEP, self.size, most))
        if width not in self.encoders:
            ids = self.forced.new_full((self.max_encoded, width), self.worker.source_pad)
            self.encoders[width] = SourceEncoder(self.worker, self.decoder, ids, self.memory, self.graph_pool)
        return self.encoders[width]

    def _enter(self, slots: list[int], group: EncodedGroup) -> None:
        """Start the sentences of a group in these slots."""
        self._choose(slots)
        self.limits.copy_(group.limits)
        if group.forced is None:
            self.forced.fill_(FREE)
        else:
            self.forced.copy_(group.forced)
        self.start()
        self.decoder.put(self.chosen[: len(slots)], group.sources)

    def _fetch(
        self, released: dict[int, PendingSentence], find: Callable[[], Paths], options: BeamOptions
    ) -> Iterator[tuple[list[PendingSentence], HostCopy]]:
        """Begin to copy the outputs of released slots to the host."""
        slots, sentences = list(released), list(released.values())
        for begin in range(0, len(slots), self.group):
            rows = slice(begin, begin + self.group)
            self._choose(slots[rows])
            paths = find()
            log_probs = [paths.log_probs] if options.log_probs else []
            yield sentences[rows], HostCopy([paths.tokens, paths.lengths, *log_probs])

    def _choose(self, slots: list[int]) -> None:
        """Tell the device which slots are meant; the last one is repeated if they are fewer than a group."""
        self.chosen.copy_(self.worker.to_device(torch.tensor(slots + slots[-1:] * (self.group - len(slots)))))

    def _finder(self, n_best: int) -> Callable[[], Paths]:
        if n_best not in self.finders:
            self.finders[n_best] = self.worker.captured(lambda: self.search.paths(self.chosen, self.size, n_best))
        return self.finders[n_best]

    def _hypotheses(self, copy: HostCopy, sentences: int, n_best: int) -> list[list[Hypothesis]]:
        tokens, lengths, *log_probs = (rows[: sentences * n_best] for rows in copy.wait())
        if not log_probs:
            return unscored_hypotheses(tokens, lengths, sentences)
        return hypotheses(Paths(tokens, log_probs[0], lengths), sentences, self.penalty)

    def _start(self) -> None:
        """Start sentences in the chosen slots: forced tokens are their prefixes, and `</s>` at the limit."""
        forced = self.forced.scatter(1, self.limits[:, None] - 1, self.worker.end)
        self.search.put(self.chosen, forced, self.limits)

    def _step(self) -> None:
        position = self.search.position.clone()
        hidden = self.decoder.step(self.search.tokens, position)
        count = 1 if self.beam == 1 else 2 * self.beam
        self.search.advance(*best_classes(self.worker.model, hidden, count, self.search.forced_now))
        if isinstance(self.search, SlotBeamSearch):
            self.decoder.reorder(self.search.parents, position)
