"""Text in, text out, whatever the engine: a line in is a line out, in order.

What had to be cut, was unknown or ran into the length limit is counted on each translation, never silent.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from transduce.config import Config
from transduce.device import Device, choose_device
from transduce.errors import DataError
from transduce.model import AttentionMaps, Tokens, Transformer, watch
from transduce.search import Hypothesis
from transduce.text import EOS, UNKNOWN, Vocabularies
from transduce.translator.engine import Request, TorchEngine
from transduce.translator.folder import open_folder

LONGEST_SOURCE = 1_024  # tokens; a longer line is cut there, and the translation says so
LINES_AT_ONCE = 4_096  # lines sorted and searched together: memory stays bounded for any file


@dataclass(frozen=True)
class Output:
    """One way to translate a line."""

    text: str
    tokens: list[str]
    score: float
    log_probability: float
    token_log_probabilities: list[float]


@dataclass(frozen=True)
class Translation:
    """A line's outputs, best first, and what a reader of them should know."""

    source: str
    outputs: list[Output]
    source_tokens: int = 0
    cut: int = 0  # source tokens beyond the longest source, not translated
    unknown: int = 0  # source tokens the vocabulary does not have
    newlines: int = 0  # line breaks in the outputs, turned into spaces

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
    maps: AttentionMaps


class Translator:
    """A model that takes strings."""

    def __init__(self, model: Transformer, vocabularies: Vocabularies, config: Config, device: Device) -> None:
        self.model, self.vocabularies, self.config, self.device = model.to(device.torch), vocabularies, config, device
        source, target = vocabularies.source, vocabularies.target
        self.engine = TorchEngine(model, device, source.pad, target.pad, EOS)
        limit = config.model.max_positions if config.model.positions == "learned" else LONGEST_SOURCE
        self.longest_source = min(limit, LONGEST_SOURCE)

    @staticmethod
    def load(folder: str | Path, which: str = "auto", device: str = "auto", threads: int = 0) -> "Translator":
        """The translator of a run folder."""
        opened = open_folder(folder)
        chosen = choose_device(device, "auto", threads)
        return Translator(opened.model(which), opened.vocabularies, opened.config, chosen)

    def request(self, **changes: float | bool | str | None) -> Request:
        """This model's way of searching, with changes."""
        return Request.of(self.config.search).but(**changes)

    def translate(self, lines: Sequence[str], request: Request | None = None) -> list[str]:
        """The best translation of each line."""
        return [translation.text for translation in self.stream(lines, request)]

    def stream(
        self, lines: Iterable[str], request: Request | None = None, prefixes: Iterable[str] | None = None
    ) -> Iterator[Translation]:
        """A translation for every line, in order, holding no more than a block of lines at a time."""
        asked, begun = iter(lines), iter(prefixes or ())
        while block := list(islice(asked, LINES_AT_ONCE)):
            forced = list(islice(begun, len(block))) if prefixes is not None else [""] * len(block)
            if len(forced) != len(block):
                raise DataError("fewer prefixes than lines: give one for each line (it may be empty)")
            yield from self._translate(block, forced, request or self.request())

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Scored]:
        """The log-probability of each target given its source; what is too long for the model is cut, and says so."""
        if len(sources) != len(targets):
            raise DataError(f"{len(sources)} sources but {len(targets)} targets: score needs one for one")
        encoded, given = self.vocabularies.source.encode(sources), self.vocabularies.target.encode(targets)
        scored = self.engine.score([self._cut(ids) for ids in encoded], [self._cut(ids) for ids in given])
        over = [max(0, max(len(s), len(t)) - self.longest_source) for s, t in zip(encoded, given, strict=True)]
        return [Scored(tokens, cut) for tokens, cut in zip(scored, over, strict=True)]

    def attention(self, source: str, target: str | None = None) -> Attention:
        """Every head of every layer for this pair; without a target, for the model's own translation."""
        text = self.translate([source])[0] if target is None else target
        asked = self._cut(self.vocabularies.source.encode([source])[0])
        given = [self.vocabularies.target.pad, *self.vocabularies.target.encode([text])[0][:-1]]
        device = self.device.torch
        with torch.inference_mode(), watch(self.model.eval()) as maps:
            memory = self.model.encode(Tokens.padded([asked], self.vocabularies.source.pad).to(device))
            self.model.decode(Tokens.padded([given], self.vocabularies.target.pad).to(device), memory)
        return Attention(self.vocabularies.source.pieces(asked), self.vocabularies.target.pieces(given), maps)

    def _translate(self, lines: list[str], prefixes: list[str], request: Request) -> Iterator[Translation]:
        encoded = self.vocabularies.source.encode(lines)
        forced = [ids[:-1] for ids in self.vocabularies.target.encode(prefixes)]
        full = [n for n, line in enumerate(lines) if line.strip()]
        searched = self.engine.search([self._cut(encoded[n]) for n in full], [forced[n] for n in full], request)
        found = dict(zip(full, searched, strict=True))
        for number, (line, ids) in enumerate(zip(lines, encoded, strict=True)):
            yield self._translation(line, ids, found.get(number, []))

    def _translation(self, line: str, ids: list[int], found: list[Hypothesis]) -> Translation:
        decoded = self.vocabularies.target.decode_counted([hypothesis.tokens for hypothesis in found])
        return Translation(
            source=line,
            outputs=[self._output(text, h) for text, h in zip(decoded.texts, found, strict=True)],
            source_tokens=len(ids),
            cut=max(0, len(ids) - self.longest_source),
            unknown=ids.count(UNKNOWN),
            newlines=decoded.newlines,
        )

    def _output(self, text: str, hypothesis: Hypothesis) -> Output:
        return Output(
            text=text,
            tokens=self.vocabularies.target.pieces(hypothesis.tokens),
            score=hypothesis.score,
            log_probability=hypothesis.log_probability,
            token_log_probabilities=hypothesis.token_log_probabilities,
        )

    def _cut(self, ids: list[int]) -> list[int]:
        return ids if len(ids) <= self.longest_source else [*ids[: self.longest_source - 1], EOS]
