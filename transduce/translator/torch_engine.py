"""The PyTorch engine: ids in, hypotheses out. Batches by length; knows nothing of text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import torch

from transduce.device import Device
from transduce.model import Tokens, Transformer
from transduce.search import Hypothesis, length_penalty
from transduce.search.beam import beam_search
from transduce.search.sampling import sample
from transduce.text import UNKNOWN
from transduce.translator.engine import Block, Ids, Request


class TorchEngine:
    """A model on a device."""

    concurrent: ClassVar = False  # whoever looks at attention would see that of others
    PLACES: ClassVar = {"cpu": 4_096, "cuda": 65_536}  # rows x width of the sources searched at once, beams counted

    def __init__(self, model: Transformer, device: Device, source_pad: int, target_pad: int, end: int) -> None:
        self.model, self.device = model.to(device.torch), device
        self.source_pad, self.target_pad, self.end = source_pad, target_pad, end

    @torch.inference_mode()
    def search(self, sources: Sequence[Ids], prefixes: Sequence[Ids], request: Request) -> list[list[Hypothesis]]:
        """The hypotheses for each source, best first, in the order of the sources."""
        self.model.eval()
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for numbers in self._batches(sources, request.n_best if request.sampling else request.beam):
            batch = [sources[n] for n in numbers]
            for number, hypotheses in zip(
                numbers, self._search(batch, [prefixes[n] for n in numbers], request), strict=True
            ):
                found[number] = hypotheses
        return found

    def stream(self, blocks: Iterable[Block], request: Request) -> Iterator[list[list[Hypothesis]]]:
        """The same for each block in turn."""
        return (self.search(block.sources, block.prefixes, request) for block in blocks)

    @torch.inference_mode()
    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of each token of each given target, `</s>` last."""
        self.model.eval()
        scores: list[list[float]] = [[] for _ in sources]
        for numbers in self._batches([max(s, t, key=len) for s, t in zip(sources, targets, strict=True)], beam=1):
            batch = self._score([sources[n] for n in numbers], [targets[n] for n in numbers])
            for number, values in zip(numbers, batch, strict=True):
                scores[number] = values
        return scores

    def _batches(self, sources: Sequence[Ids], beam: int) -> Iterator[list[int]]:
        """Numbers of sources of similar length, longest first, under the budget of places."""
        order = sorted(range(len(sources)), key=lambda n: -len(sources[n]))
        begin = 0
        while begin < len(order):
            rows = max(1, self.PLACES[self.device.kind] // (len(sources[order[begin]]) * beam))
            yield order[begin : begin + rows]
            begin += rows

    def _search(self, sources: list[Ids], prefixes: list[Ids], request: Request) -> list[list[Hypothesis]]:
        tokens = Tokens.padded(sources, self.source_pad).to(self.device.torch)
        lengths = [len(s) + request.max_extra for s in sources]
        longest = self.model.target_positions.limit or max(lengths) + max(map(len, prefixes)) + 1
        limits = torch.tensor([min(longest, max(n, len(p) + 1)) for n, p in zip(lengths, prefixes, strict=True)])
        penalty = length_penalty(request.length_penalty, request.alpha)
        never = () if request.allow_unknown else (UNKNOWN,)
        with self.device.mixed_precision():
            state = self.model.begin(self.model.encode(tokens))
            limits = limits.to(self.device.torch)
            if not request.sampling:
                return beam_search(
                    self.model.step, state, start=self.target_pad, end=self.end, limits=limits,
                    beam=request.beam, penalty=penalty, n_best=request.n_best, prefix=prefixes,
                    never=never,
                )  # fmt: skip
            generator = torch.Generator(self.device.torch).manual_seed(request.seed)
            return sample(
                self.model.step, state, start=self.target_pad, end=self.end, limits=limits, penalty=penalty,
                generator=generator, num_samples=request.n_best, temperature=request.temperature,
                top_k=request.top_k, top_p=request.top_p, prefix=prefixes, never=never,
            )  # fmt: skip

    def _score(self, sources: list[Ids], targets: list[Ids]) -> list[list[float]]:
        shifted = [[self.target_pad, *target[:-1]] for target in targets]
        source = Tokens.padded(sources, self.source_pad).to(self.device.torch)
        target = Tokens.padded(shifted, self.target_pad).to(self.device.torch)
        with self.device.mixed_precision():
            logits = self.model.project(self.model.decode(target, self.model.encode(source)))
        labels = Tokens.padded(targets, 0).ids.to(self.device.torch)
        chosen = logits.float().log_softmax(-1).gather(-1, labels[..., None])[..., 0].cpu()
        return [row[: len(t)].tolist() for row, t in zip(chosen, targets, strict=True)]
