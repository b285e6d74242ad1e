"""What an engine is: ids in, hypotheses out. Knows no text, and does not import torch."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal, Protocol

from transduce.config import SearchConfig
from transduce.errors import SettingError
from transduce.search import Hypothesis, check_sampling

Ids = Sequence[int]
UNBOUNDED = 10**9  # the longest output of a model without a limit on positions
LIMITS = {
    "beam": (1, 1_000),
    "n_best": (1, 1_000),
    "max_extra": (0, 100_000),
    "alpha": (0, 10),  # below 0, the empty output would always win
    "seed": (0, 2**63 - 1),
}
SAMPLING_SETTINGS = ("temperature", "top_k", "top_p", "seed")  # of a request; without sampling, they have no effect


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """How to search for translations: by beam search, or by sampling if `sampling` is set.

    A list of `n_best` outputs needs a beam that is at least as wide, so `beam` is widened to `n_best` where it is narrower.
    """

    beam: int = 4
    alpha: float = 0.6
    length_penalty: Literal["paper", "power"] = "paper"
    max_extra: int = 50
    allow_unknown: bool = True
    n_best: int = 1
    sampling: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1
    constrained: bool = False  # whether the outputs must contain the phrases of a block
    aligned: bool = False  # whether outputs have word alignments
    replace_unknown: bool = False  # whether `<unk>` in an output is replaced by the source word it is aligned with
    # Which log-probabilities are needed: none (texts only), those of whole outputs, or those of each token too. An engine
    # may leave out the others.
    log_probs: Literal["none", "outputs", "tokens"] = "tokens"

    def __post_init__(self) -> None:
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            if value < least:
                raise SettingError(f"{name} = {value}: must be at least {least}")
            if not value <= most:
                raise SettingError(f"{name} = {value}: must be at most {most}")
        if self.sampling:
            check_sampling(self.n_best, self.temperature, self.top_k, self.top_p)
        if self.sampling and self.constrained:
            raise SettingError("terms need beam search: leave out sampling, or the terms")
        if not self.sampling and self.n_best > self.beam:
            object.__setattr__(self, "beam", self.n_best)

    @staticmethod
    def of(config: SearchConfig) -> "SearchRequest":
        """The settings a model was trained with."""
        return SearchRequest(
            beam=config.beam,
            alpha=config.alpha,
            length_penalty=config.length_penalty,
            max_extra=config.max_extra,
            allow_unknown=config.allow_unknown,
        )

    def but(self, **changes: float | bool | str | None) -> "SearchRequest":
        """A copy with changes; None keeps a value."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]

    def limits(self, block: "SearchBlock", longest: int = UNBOUNDED) -> list[int]:
        """The maximum number of tokens of each output, including `</s>`.

        That is `output_limit` of its source, but enough for its prefix and phrases, and never above `longest`, the longest
        output of the model.
        """
        pairs = zip(block.sources, block.prefixes, strict=True)
        asked = [(self.output_limit(len(source)), len(prefix) + 1) for source, prefix in pairs]
        if block.at_most:
            asked = [(min(most, limit), must) for most, (limit, must) in zip(block.at_most, asked, strict=True)]
        if block.phrases:
            asked = [(n, must + sum(map(len, these))) for these, (n, must) in zip(block.phrases, asked, strict=True)]
        return [min(longest, max(both)) for both in asked]

    def refusal(self, supported: Collection[str]) -> str:
        """The first setting that is neither in `supported` nor at its default, such as `sampling = True`, or nothing.

        An engine lists what it supports. It therefore refuses a setting that is added later, until it lists that one too.
        """
        unread = () if self.sampling else SAMPLING_SETTINGS
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name not in (*supported, *unread) and value != one.default:
                return f"{one.name} = {value}"
        return ""

    def output_limit(self, source_tokens: int) -> int:
        """The maximum number of tokens of an output for a source of this length."""
        return source_tokens + self.max_extra

    @property
    def width(self) -> int:
        """The number of hypotheses for each sentence that are computed at once."""
        return self.n_best if self.sampling else self.beam

    def drawing(self, number: int) -> "SearchRequest":
        """The request for the block of this number: when sampling, each block has its own seed."""
        return self.but(seed=(self.seed + number) % 2**63) if self.sampling else self


Searched = Callable[[int], None]


def unwatched(sources: int) -> None:
    """Nobody watches the search."""


@dataclass(frozen=True)
class SearchBlock:
    """Sources to be searched together, each with the beginning its outputs must have, and the phrases in them."""

    sources: Sequence[Ids]
    prefixes: Sequence[Ids]
    phrases: Sequence[Sequence[Ids]] = ()  # only where the request says so
    at_most: Sequence[int] = ()  # tokens of each output, where the request's own limit is too generous
    paused: bool = False  # whether the next block may take long to arrive, so that this one must not wait for it
    searched: Searched = unwatched  # called with the number of sources of each batch that is done

    def only(self, numbers: Sequence[int]) -> "SearchBlock":
        phrases = [self.phrases[n] for n in numbers] if self.phrases else ()
        at_most = [self.at_most[n] for n in numbers] if self.at_most else ()
        return replace(
            self,
            sources=[self.sources[n] for n in numbers],
            prefixes=[self.prefixes[n] for n in numbers],
            phrases=phrases,
            at_most=at_most,
        )


class Engine(Protocol):
    """A model that can search for outputs and score given ones."""

    concurrent: ClassVar[bool]  # whether several threads may search at once
    spares_cores: ClassVar[bool]  # whether the CPU is free for other work while it searches

    @property
    def longest(self) -> int:
        """The maximum number of tokens of an output, including `</s>`."""
        ...

    def stream(self, blocks: Iterable[SearchBlock], request: SearchRequest) -> Iterator[list[list[Hypothesis]]]:
        """For each block, the hypotheses for each of its sources, best first; an engine may read a few blocks ahead."""
        ...

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of each token of each given target, `</s>` last."""
        ...
