"""The PyTorch engine: ids in, hypotheses out. Batches by length; knows nothing of text.

Other engines will stand beside it behind the same `search`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from transduce.config import SearchConfig
from transduce.device import Device
from transduce.errors import SettingError
from transduce.model import Tokens, Transformer
from transduce.search import Hypothesis, length_penalty
from transduce.search.beam import beam_search
from transduce.search.sampling import sample

Ids = Sequence[int]
LIMITS = {
    "beam": (1, 1_000),
    "n_best": (1, 1_000),
    "max_extra": (0, 100_000),
    "alpha": (-10, 10),
    "seed": (0, 2**63 - 1),
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """How to look for translations: beam search, or sampling when `sampling` is set."""

    beam: int = 4
    alpha: float = 0.6
    length_penalty: Literal["paper", "power"] = "paper"
    max_extra: int = 50
    n_best: int = 1
    sampling: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            if value < least:
                raise SettingError(f"{name} = {value}: must be at least {least}")
            if not value <= most:
                raise SettingError(f"{name} = {value}: must be at most {most}")

    @staticmethod
    def of(config: SearchConfig) -> "Request":
        """The settings a model was trained with."""
        return Request(
            beam=config.beam, alpha=config.alpha, length_penalty=config.length_penalty, max_extra=config.max_extra
        )

    def but(self, **changes: float | bool | str | None) -> "Request":
        """The same with some things asked otherwise; None leaves them."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]


class TorchEngine:
    """A model on a device."""

    PLACES: ClassVar = {"cpu": 4_096, "cuda": 65_536}  # rows x width of the sources searched at once, beams counted

    def __init__(self, model: Transformer, device: Device, source_pad: int, target_pad: int, end: int) -> None:
        self.model, self.device = model, device
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
        with self.device.mixed_precision():
            state = self.model.begin(self.model.encode(tokens))
            limits = limits.to(self.device.torch)
            if not request.sampling:
                return beam_search(
                    self.model.step, state, start=self.target_pad, end=self.end, limits=limits,
                    beam=request.beam, penalty=penalty, n_best=request.n_best, prefix=prefixes,
                )  # fmt: skip
            generator = torch.Generator(self.device.torch).manual_seed(request.seed)
            return sample(
                self.model.step, state, start=self.target_pad, end=self.end, limits=limits, penalty=penalty,
                generator=generator, num_samples=request.n_best, temperature=request.temperature,
                top_k=request.top_k, top_p=request.top_p, prefix=prefixes,
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
