"""What an engine is: ids in, hypotheses out. Knows nothing of text, and needs no torch itself."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol

from transduce.config import SearchConfig
from transduce.errors import SettingError
from transduce.search import Hypothesis, check_sampling

Ids = Sequence[int]
UNBOUNDED = 10**9  # the longest output of a model whose positions have no end
LIMITS = {
    "beam": (1, 1_000),
    "n_best": (1, 1_000),
    "max_extra": (0, 100_000),
    "alpha": (0, 10),  # below 0 the shortest output wins, and that is the empty one
    "seed": (0, 2**63 - 1),
}


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """How to look for translations: beam search, or sampling when `sampling` is set."""

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
    constrained: bool = False  # whether a block's phrases must occur in the outputs
    aligned: bool = False  # whether to say which source word each output word comes from
    replace_unknown: bool = False  # `<unk>` in an output becomes the source word it comes from
    # Which log-probabilities are wanted: none (only texts are), of each output, or of each token too. An engine may leave
    # out the others.
    figures: Literal["none", "outputs", "tokens"] = "tokens"

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
            raise SettingError("phrases that must occur are for beam search: they cannot be sampled")

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
        """The same with some things asked otherwise; None leaves them."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]

    def limits(self, block: "Block", longest: int = UNBOUNDED) -> list[int]:
        """The most tokens each output may have, `</s>` counted: `max_extra` more than its source.

        At least enough for what must be in it, at most `longest`, which is as far as the model goes.
        """
        pairs = zip(block.sources, block.prefixes, strict=True)
        asked = [(len(source) + self.max_extra, len(prefix) + 1) for source, prefix in pairs]
        if block.at_most:
            asked = [(min(most, limit), must) for most, (limit, must) in zip(block.at_most, asked, strict=True)]
        if block.phrases:
            asked = [(n, must + sum(map(len, these))) for these, (n, must) in zip(block.phrases, asked, strict=True)]
        return [min(longest, max(both)) for both in asked]

    def drawing(self, number: int) -> "SearchRequest":
        """The same for the block of this number, which draws by a seed of its own."""
        return self.but(seed=(self.seed + number) % 2**63) if self.sampling else self


Request = SearchRequest  # its earlier name


@dataclass(frozen=True)
class Block:
    """Sources to be searched together, each with the beginning its outputs must have, and the phrases in them."""

    sources: Sequence[Ids]
    prefixes: Sequence[Ids]
    phrases: Sequence[Sequence[Ids]] = ()  # only where the request says so
    at_most: Sequence[int] = ()  # tokens of each output, where the request's own limit is too generous
    paused: bool = False  # whether the next block may be long in coming: nobody should wait for it

    def only(self, numbers: Sequence[int]) -> "Block":
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
    """A model that searches and scores."""

    concurrent: ClassVar[bool]  # whether several threads may use it at once
    spares_cores: ClassVar[bool]  # whether others may use all of the CPU while it searches

    @property
    def longest(self) -> int:
        """The most tokens an output can have, `</s>` counted."""
        ...

    def search(self, sources: Sequence[Ids], prefixes: Sequence[Ids], request: SearchRequest) -> list[list[Hypothesis]]:
        """The hypotheses for each source, best first, in the order of the sources."""
        ...

    def stream(self, blocks: Iterable[Block], request: SearchRequest) -> Iterator[list[list[Hypothesis]]]:
        """The same for each block in turn; an engine may take a few ahead while it works."""
        ...

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """The log-probability of each token of each given target, `</s>` last."""
        ...
