"""The PyTorch engine: searches and scores ids in batches of similar length. Knows no text."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch

from transduce.device import Device
from transduce.model import Ensemble, Model, SlidingDecoder, Source, Tokens, collate, watch
from transduce.search import Hypothesis, length_penalty
from transduce.search.beam import beam_search
from transduce.search.beam_state import Observer
from transduce.search.constrained import constrained_search
from transduce.search.fusion import FusedState, fuse
from transduce.search.sampling import sample
from transduce.search.step import SearchState, Step
from transduce.text import UNKNOWN
from transduce.translator.engine import UNBOUNDED, Ids, SearchBlock, SearchRequest

T = TypeVar("T")


@dataclass(frozen=True)
class Fusion:
    """A language model that takes part in every search, and the weight of its log-probabilities."""

    model: SlidingDecoder
    weight: float


class TorchEngine:
    """A model on a device, or an ensemble of models; a language model may take part in its searches."""

    concurrent: ClassVar = False  # attention weights of concurrent searches would be mixed up
    spares_cores: ClassVar = False
    COUNTED: ClassVar = 64  # positions of a recording for each beam, at most: its text is much shorter than its frames
    POSITIONS: ClassVar = {"cpu": 4_096, "cuda": 65_536}  # of the sources searched at once, each counted once per beam

    def __init__(
        self,
        model: Model,
        device: Device,
        source_pad: int,
        target_pad: int,
        end: int,
        others: Sequence[Model] = (),
        fusion: Fusion | None = None,
    ) -> None:
        self.model, self.device, self.fusion = model.to(device.torch), device, fusion
        self.source_pad, self.target_pad, self.end = source_pad, target_pad, end
        self.ensemble = Ensemble([self.model, *(other.to(device.torch).eval() for other in others)])
        if fusion is not None:
            fusion.model.model.to(device.torch).eval()

    def _in_batches(
        self, block: SearchBlock, request: SearchRequest, generator: torch.Generator
    ) -> list[list[Hypothesis]]:
        self.model.eval()
        found: list[list[Hypothesis]] = [[] for _ in block.sources]
        for numbers in self.batches(block.sources, request.width):
            for number, hypotheses in zip(numbers, self._search(block.only(numbers), request, generator), strict=True):
                found[number] = hypotheses
            block.searched(len(numbers))
        return found

    def _generator(self, request: SearchRequest) -> torch.Generator:
        """The random numbers for sampling; each batch takes the next ones."""
        return torch.Generator(self.device.torch).manual_seed(request.seed)

    @torch.inference_mode()
    def search_watched(self, source: Ids, request: SearchRequest, observer: Observer) -> list[Hypothesis]:
        """The hypotheses for one source; the observer is called at every step of the search."""
        self.model.eval()
        return self._search(SearchBlock([source], [()]), request, self._generator(request), observer)[0]

    def stream(self, blocks: Iterable[SearchBlock], request: SearchRequest) -> Iterator[list[list[Hypothesis]]]:
        """For each block, the hypotheses for each of its sources, best first."""
        generator = self._generator(request)
        for block in blocks:
            with torch.inference_mode():
                found = self._in_batches(block, request, generator)
            yield found

    @torch.inference_mode()
    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of each token of each given target, `</s>` last."""
        return self._by_pair(sources, targets, self._score)

    @torch.inference_mode()
    def align(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[int]]:
        """The source token that each token of each given target attends to most, without `</s>` on either side.

        Uses the mean of all heads in the last layer but one, which aligns best (Garg et al. 2019).
        """
        return self._by_pair(sources, targets, self._align)

    def _by_pair(
        self, sources: Sequence[Ids], targets: Sequence[Ids], work: Callable[[list[Ids], list[Ids]], list[list[T]]]
    ) -> list[list[T]]:
        self.model.eval()
        results: list[list[T]] = [[] for _ in sources]
        for numbers in self.batches([max(s, t, key=len) for s, t in zip(sources, targets, strict=True)], beam=1):
            done = work([sources[n] for n in numbers], [targets[n] for n in numbers])
            for number, result in zip(numbers, done, strict=True):
                results[number] = result
        return results

    def batches(self, sources: Sequence[Ids], beam: int) -> Iterator[list[int]]:
        """Indices of sources of similar length, longest first, within the budget of positions."""
        order = sorted(range(len(sources)), key=lambda n: -len(sources[n]))
        begin = 0
        while begin < len(order):
            positions = -(-len(sources[order[begin]]) // self.model.config.shortens)
            is_speech = self.model.config.shortens > 1
            in_beams = beam * (min(positions, self.COUNTED) if is_speech else positions)
            rows = max(1, self.POSITIONS[self.device.kind] // max(positions, in_beams))
            yield order[begin : begin + rows]
            begin += rows

    def _search(
        self, block: SearchBlock, request: SearchRequest, generator: torch.Generator, observer: Observer | None = None
    ) -> list[list[Hypothesis]]:
        source = collate(block.sources, self.source_pad).to(self.device.torch)
        penalty = length_penalty(request.length_penalty, request.alpha)
        never = (*self._predictor.never, *(() if request.allow_unknown else (UNKNOWN,)))
        with self.device.mixed_precision():
            step, state = self._begin(source)
            common: dict[str, Any] = {
                "start": self.target_pad, "end": self.end, "limits": torch.tensor(request.limits(block, self.longest), device=self.device.torch),
                "penalty": penalty, "prefix": block.prefixes, "never": never,
            }  # fmt: skip
            if request.sampling:
                return sample(
                    step, state, generator=generator, num_samples=request.n_best,
                    temperature=request.temperature, top_k=request.top_k, top_p=request.top_p, **common,
                )  # fmt: skip
            if request.constrained:
                return constrained_search(
                    step, state, beam=request.beam, n_best=request.n_best, phrases=block.phrases, **common
                )
            return beam_search(step, state, beam=request.beam, n_best=request.n_best, observer=observer, **common)

    def _begin(self, source: Source) -> tuple[Step, SearchState]:
        """The step function and the state before the first token."""
        predictor: Any = self._predictor
        state = predictor.begin(predictor.encode(source))
        if self.fusion is None:
            return predictor.step, state
        lm = self.fusion.model
        return fuse(predictor.step, lm.step, self.fusion.weight), FusedState(state, lm.begin())

    @property
    def _predictor(self) -> Model | Ensemble:
        return self.ensemble if len(self.ensemble.models) > 1 else self.model

    @property
    def longest(self) -> int:
        """The maximum number of tokens of an output; learned positions have a limit."""
        return min(model.config.longest_target or UNBOUNDED for model in self.ensemble.models)

    def _score(self, sources: list[Ids], targets: list[Ids]) -> list[list[float]]:
        source, target = self._pairs(sources, targets)
        with self.device.mixed_precision():
            logits = self.ensemble.predict(target, self.ensemble.encode(source))
        labels = Tokens.padded(targets, 0).ids.to(self.device.torch)
        chosen = logits.gather(-1, labels[..., None])[..., 0].cpu()
        return [row[: len(t)].tolist() for row, t in zip(chosen, targets, strict=True)]

    def _align(self, sources: list[Ids], targets: list[Ids]) -> list[list[int]]:
        source, target = self._pairs(sources, targets)
        with self.device.mixed_precision(), watch(self.model) as maps:
            self.model.decode(target, self.model.encode(source))
        weights = maps.cross[max(0, len(maps.cross) - 2)].float().mean(1)  # [R, W, S]
        ends = torch.tensor([len(ids) - 1 for ids in sources], device=weights.device)
        positions = torch.arange(weights.shape[2], device=weights.device)
        looked = weights.masked_fill((positions >= ends[:, None].clamp(min=1))[:, None], -1.0).argmax(-1).tolist()
        return [row[: len(ids) - 1] for row, ids in zip(looked, targets, strict=True)]

    def _pairs(self, sources: list[Ids], targets: list[Ids]) -> tuple[Source, Tokens]:
        """The inputs of the encoder and of the decoder; the targets are shifted right by one."""
        shifted = [[self.target_pad, *target[:-1]] for target in targets]
        target = Tokens.padded(shifted, self.target_pad)
        return collate(sources, self.source_pad).to(self.device.torch), target.to(self.device.torch)
