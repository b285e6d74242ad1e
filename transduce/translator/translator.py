"""Text in, text out, whatever the engine: a line in is a line out, in order.

What had to be cut, was unknown or ran into the length limit is counted on each translation, never silent.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from transduce.config import Config, FamilyConfig
from transduce.errors import DataError
from transduce.search import Hypothesis
from transduce.text import EOS, UNKNOWN, Vocabularies
from transduce.translator.alignment import Pairs, with_source_words, word_numbers, word_pairs
from transduce.translator.engine import Block, Engine, SearchRequest
from transduce.translator.engines import Engines, FolderEngines, LoadOptions, OneEngine, torch_engine
from transduce.translator.folder import open_folder

if TYPE_CHECKING:
    from transduce.device import Device
    from transduce.model import AttentionMaps, Model

T = TypeVar("T")

LONGEST_SOURCE = 1_024  # tokens; a longer line is cut there, and the translation says so
LINES_AT_ONCE = 4_096  # lines sorted and searched together: memory stays bounded for any file


@dataclass(frozen=True)
class Output:
    """One way to translate a line."""

    text: str
    tokens: list[str]  # may be left out where only texts are asked for
    score: float
    log_probability: float
    token_log_probabilities: list[float]
    alignment: Pairs = field(default_factory=list)  # (source word, output word), where asked for
    length: int = 0  # in tokens, counting `</s>`
    at_limit: bool = False  # whether it has as many tokens as it may: then it was probably cut


@dataclass(frozen=True)
class Translation:
    """A line's outputs, best first, and what a reader of them should know."""

    source: str
    outputs: list[Output]
    source_tokens: int = 0
    cut: int = 0  # source tokens beyond the longest source, not translated
    unknown: int = 0  # source tokens the vocabulary does not have
    newlines: int = 0  # line breaks in the outputs, turned into spaces
    outputs_at_limit: int = 0  # outputs that reached the length limit, and were probably cut there

    @property
    def text(self) -> str:
        """The best output; nothing for a line of nothing."""
        return self.outputs[0].text if self.outputs else ""


@dataclass(frozen=True)
class Scored:
    """How probable a given target is."""

    token_log_probabilities: list[float]  # `</s>` last
    cut: int = 0  # tokens of the longer side beyond what the model takes

    @property
    def log_probability(self) -> float:
        return sum(self.token_log_probabilities)


@dataclass(frozen=True)
class Attention:
    """Who looks at whom in one sentence pair."""

    source: list[str]
    target: list[str]  # what the decoder is given: `<pad>`, then the output
    maps: "AttentionMaps"

    @property
    def written(self) -> list[str]:
        """What the decoder writes at each of its places: the output, then `</s>`."""
        return [*self.target[1:], "</s>"]


@dataclass(frozen=True)
class Lines:
    """A block of lines as text and as ids; lines of nothing are not searched."""

    texts: list[str]
    ids: list[list[int]]
    searched: list[int]  # the numbers of those that are
    limits: list[int]  # the most tokens that the outputs of each of those may have


@dataclass(frozen=True)
class Asked:
    """Lines, and what was asked for each of them besides."""

    lines: Iterator[str]
    prefixes: Iterator[str] | None
    terms: Iterator[Sequence[str]] | None
    paused: Callable[[], bool] | None
    at_most: Iterator[int] | None = None

    @staticmethod
    def of(
        lines: Iterable[str],
        prefixes: Iterable[str] | None = None,
        terms: Iterable[Sequence[str]] | None = None,
        paused: Callable[[], bool] | None = None,
        at_most: Iterable[int] | None = None,
    ) -> "Asked":
        given = iter(lines), None if prefixes is None else iter(prefixes), None if terms is None else iter(terms)
        return Asked(*given, paused, None if at_most is None else iter(at_most))

    def some_lines(self) -> tuple[list[str], bool]:
        """The next lines, and whether they are not more because no further one is there yet."""
        if self.paused is None:
            return list(islice(self.lines, LINES_AT_ONCE)), False
        taken: list[str] = []
        for line in self.lines:
            taken.append(line)
            if len(taken) == LINES_AT_ONCE:
                break
            if self.paused():
                return taken, True
        return taken, False

    def prefixes_of(self, count: int) -> list[str]:
        """What each of the next outputs must begin with."""
        return _take(self.prefixes, count, "prefixes")

    def terms_of(self, count: int) -> list[Sequence[str]]:
        """The phrases each of the next outputs must have."""
        return _take(self.terms, count, "lines of terms")

    def at_most_of(self, count: int) -> list[int]:
        """The most tokens each of the next outputs may have."""
        return _take(self.at_most, count, "length limits")

    def check_done(self) -> None:
        """Refuse what is left when the lines are over: it was meant for others."""
        for items, what in ((self.prefixes, "prefixes"), (self.terms, "lines of terms")):
            if items is not None and list(islice(items, 1)):
                raise DataError(f"more {what} than lines: give one for each line")


def _take(items: Iterator[T] | None, count: int, what: str) -> list[T]:
    taken = list(islice(items, count)) if items is not None else []
    if items is not None and len(taken) != count:
        raise DataError(f"fewer {what} than lines: give one for each line (it may be empty)")
    return taken


class Translator:
    """A model that takes strings."""

    def __init__(self, engines: Engines, vocabularies: Vocabularies, config: Config) -> None:
        self.engines, self.vocabularies, self.config = engines, vocabularies, config
        self.longest_source = longest_source(config.model)

    @staticmethod
    def load(folder: str | Path, loading: LoadOptions | None = None) -> "Translator":
        """The translator of a run folder; an engine is loaded when it is first needed, or by `ready`."""
        opened = open_folder(folder)
        engines = FolderEngines(opened, loading or LoadOptions(), longest_source(opened.config.model))
        return Translator(engines, opened.vocabularies, opened.config)

    @staticmethod
    def around(model: "Model", vocabularies: Vocabularies, config: Config, device: "Device") -> "Translator":
        """The translator of a model in memory."""
        return Translator(OneEngine(torch_engine(model, device, vocabularies)), vocabularies, config)

    @property
    def model(self) -> "Model":
        return self.engines.torch.model

    @property
    def device(self) -> "Device":
        return self.engines.torch.device

    @property
    def digest(self) -> str:
        """Of weights, settings and vocabularies: another model has another."""
        return self.engines.digest

    def ready(self, request: SearchRequest | None = None) -> "Translator":
        """Load what this request needs now, so that what is wrong with it is known before anything is read."""
        self.engines.searching(request or self.request())
        return self

    def request(self, **changes: float | bool | str | None) -> SearchRequest:
        """This model's way of searching, with changes."""
        return SearchRequest.of(self.config.search).but(**changes)

    def translate(self, lines: Sequence[str], request: SearchRequest | None = None) -> list[str]:
        """The best translation of each line."""
        wanted = (request or self.request()).but(figures="none", n_best=1, constrained=False)
        if wanted.replace_unknown:
            return [translation.text for translation in self.stream(lines, wanted)]
        blocks = self._searched(Asked.of(lines), wanted)
        return [text for block, found in blocks for text in self._best(block, found)]

    def stream(
        self,
        lines: Iterable[str],
        request: SearchRequest | None = None,
        prefixes: Iterable[str] | None = None,
        terms: Iterable[Sequence[str]] | None = None,
        paused: Callable[[], bool] | None = None,
        at_most: Iterable[int] | None = None,
    ) -> Iterator[Translation]:
        """A translation for every line, in order, holding no more than a few blocks of lines at a time.

        Each line may have a prefix its outputs begin with, terms that occur in them, and a number of tokens that they
        have `at_most`. `paused` says whether no further line is there yet: those that are do not wait for it.
        """
        wanted = (request or self.request()).but(constrained=terms is not None)
        for block, found in self._searched(Asked.of(lines, prefixes, terms, paused, at_most), wanted):
            yield from self._translations(block, found, wanted)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Scored]:
        """The log-probability of each target given its source; what is too long for the model is cut, and says so."""
        if len(sources) != len(targets):
            raise DataError(f"{len(sources)} sources but {len(targets)} targets: score needs one for one")
        encoded, given = (
            self.vocabularies.source.encode(self._as_learned(sources)),
            self.vocabularies.target.encode(targets),
        )
        engine = self.engines.scoring()
        scored = engine.score([self._cut(ids) for ids in encoded], [self._cut(ids) for ids in given])
        over = [max(0, max(len(s), len(t)) - self.longest_source) for s, t in zip(encoded, given, strict=True)]
        return [Scored(tokens, cut) for tokens, cut in zip(scored, over, strict=True)]

    def source_ids(self, text: str) -> list[int]:
        """A line as the model takes it: cut where it is too long, `</s>` last."""
        return self._cut(self.vocabularies.source.encode(self._as_learned([text]))[0])

    def attention(self, source: str, target: str | None = None) -> Attention:
        """Every head of every layer for this pair; without a target, for the model's own translation."""
        import torch

        from transduce.model import Tokens, collate, watch

        text = self.translate([source])[0] if target is None else target
        asked = self.source_ids(source)
        given = [self.vocabularies.target.pad, *self.vocabularies.target.encode([text])[0][:-1]]
        device = self.device.torch
        with torch.inference_mode(), watch(self.model.eval()) as maps:
            memory = self.model.encode(collate([asked], self.vocabularies.source.pad).to(device))
            self.model.decode(Tokens.padded([given], self.vocabularies.target.pad).to(device), memory)
        return Attention(self.vocabularies.source.pieces(asked), self.vocabularies.target.pieces(given), maps)

    def _searched(self, asked: "Asked", request: SearchRequest) -> Iterator[tuple[Lines, list[list[Hypothesis]]]]:
        """What is found for every block of lines."""
        taken: deque[Lines] = deque()
        engine = self.engines.searching(request)
        for found in engine.stream(self._blocks(asked, taken, engine, request), request):
            yield taken.popleft(), found

    def _blocks(self, asked: "Asked", taken: "deque[Lines]", engine: Engine, request: SearchRequest) -> Iterator[Block]:
        """Blocks of ids to search, whose lines are left in `taken`."""
        while (some := asked.some_lines())[0]:
            texts, paused = self._as_learned(some[0]), some[1]
            ids = self.vocabularies.source.encode(texts, every_core=engine.spares_cores)
            prefixes = [row[:-1] for row in self.vocabularies.target.encode(asked.prefixes_of(len(texts)))]
            phrases = [[row[:-1] for row in self.vocabularies.target.encode(t)] for t in asked.terms_of(len(texts))]
            searched = [n for n, text in enumerate(texts) if text.strip()]
            cut, at_most = [self._cut(row) for row in ids], asked.at_most_of(len(texts))
            block = Block(cut, prefixes or [()] * len(ids), phrases, at_most, paused).only(searched)
            taken.append(Lines(texts, ids, searched, request.limits(block, engine.longest)))
            yield block
        asked.check_done()

    def _as_learned(self, lines: Sequence[str]) -> list[str]:
        """Lines with tabs as the training data were read, where these had features: `gehen<TAB>V;PST` is `gehen ;V;PST`."""
        columns = self.config.data.layout
        if columns is None or not columns.features:
            return list(lines)
        return [columns.source_of_line(line) for line in lines]

    def _best(self, lines: Lines, searched: list[list[Hypothesis]]) -> list[str]:
        """The text of each line's best output; nothing for a line of nothing."""
        texts = [""] * len(lines.texts)
        found = [(number, best[0].tokens) for number, best in zip(lines.searched, searched, strict=True) if best]
        decoded = self.vocabularies.target.decode([tokens for _, tokens in found])
        for (number, _), text in zip(found, decoded, strict=True):
            texts[number] = text
        return texts

    def _translations(
        self, lines: Lines, searched: list[list[Hypothesis]], request: SearchRequest
    ) -> Iterator[Translation]:
        decoded = self.vocabularies.target.decode_counted([one.tokens for found in searched for one in found])
        outputs, newlines = self._outputs(lines, searched, decoded.texts, request), iter(decoded.newlines)
        counts = [0] * len(lines.texts)  # of outputs
        for number, found in zip(lines.searched, searched, strict=True):
            counts[number] = len(found)
        for text, ids, count in zip(lines.texts, lines.ids, counts, strict=True):
            these = list(islice(outputs, count))
            yield Translation(
                source=text,
                outputs=these,
                source_tokens=len(ids),
                cut=max(0, len(ids) - self.longest_source),
                unknown=ids.count(UNKNOWN),
                newlines=sum(islice(newlines, count)),
                outputs_at_limit=sum(output.at_limit for output in these),
            )

    def _outputs(
        self, lines: Lines, searched: list[list[Hypothesis]], texts: list[str], request: SearchRequest
    ) -> Iterator[Output]:
        """Every hypothesis of every line as an output."""
        pairs = [(n, one) for n, found in zip(lines.searched, searched, strict=True) for one in found]
        limits = [limit for limit, found in zip(lines.limits, searched, strict=True) for _ in found]
        looks = self._looks(lines, pairs) if request.aligned or request.replace_unknown else [[]] * len(pairs)
        for (number, one), limit, text, looks_at in zip(pairs, limits, texts, looks, strict=True):
            unasked = request.figures == "none" and not looks_at
            pieces = [] if unasked else self.vocabularies.target.pieces(one.tokens)
            aligned = (
                word_pairs(self.vocabularies.source.written(lines.texts[number]), pieces, looks_at) if looks_at else []
            )
            if request.replace_unknown and UNKNOWN in one.tokens:
                text = self._without_unknown(text, lines, number, one, looks_at)
            yield Output(
                text=text,
                tokens=pieces,
                score=one.score,
                log_probability=one.log_probability,
                token_log_probabilities=one.token_log_probabilities,
                alignment=aligned if request.aligned else [],
                length=len(one.tokens) + 1,
                at_limit=len(one.tokens) + 1 >= limit,
            )

    def _looks(self, lines: Lines, pairs: list[tuple[int, Hypothesis]]) -> list[list[int]]:
        """The source token that each token of each output looks at."""
        sources = [self._cut(lines.ids[number]) for number, _ in pairs]
        return self.engines.torch.align(sources, [[*one.tokens, EOS] for _, one in pairs])

    def _without_unknown(self, text: str, lines: Lines, number: int, one: Hypothesis, looks_at: list[int]) -> str:
        words = lines.texts[number].split()
        of_piece = word_numbers(self.vocabularies.source.written(lines.texts[number]))
        asked = [of_piece[at] for at, token in zip(looks_at, one.tokens, strict=True) if token == UNKNOWN]
        mark = self.vocabularies.target.decode([[UNKNOWN]])[0].strip()
        return with_source_words(text, mark, [words[min(at, len(words) - 1)] for at in asked])

    def _cut(self, ids: list[int]) -> list[int]:
        return ids if len(ids) <= self.longest_source else [*ids[: self.longest_source - 1], EOS]


def longest_source(config: FamilyConfig) -> int:
    """The tokens of a line that are translated."""
    return min(config.longest_source or LONGEST_SOURCE, LONGEST_SOURCE)
