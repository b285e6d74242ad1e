"""Generation: continuing a prompt token by token, as texts that grow until their document ends or a stop string occurs.

Knows a language model by its decoder, vocabulary and device; `transduce/translator/language_model.py` loads it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from transduce.errors import SettingError
from transduce.model import SlidingDecoder
from transduce.search import check_sampling
from transduce.search.sampling import sample_tokens
from transduce.search.streaming import continuations
from transduce.search.walk import Choose, greedy
from transduce.text import EOS, UNKNOWN, Vocabulary

if TYPE_CHECKING:
    from transduce.translator.language_model import LanguageModel

MOST_TOKENS = 1_000_000
MOST_TEXTS = 1_000


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """How to continue a prompt: with the most probable tokens, or by sampling."""

    sampling: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1
    n: int = 1
    max_tokens: int = 200
    stop: tuple[str, ...] = ()  # a text ends before the first of these that it would contain

    def __post_init__(self) -> None:
        for name, value, most in (("n", self.n, MOST_TEXTS), ("max_tokens", self.max_tokens, MOST_TOKENS)):
            if not 1 <= value <= most:
                raise SettingError(f"{name} = {value}: must be at least 1 and at most {most:,}")
        if not 0 <= self.seed < 2**63:
            raise SettingError(f"seed = {self.seed}: must be at least 0 and below 2^63")
        if not all(self.stop):
            raise SettingError("stop: an empty string would end every text before it begins: leave it out")
        if self.sampling:
            check_sampling(self.n, self.temperature, self.top_k, self.top_p)
        elif self.n > 1:
            raise SettingError(f"n = {self.n}: without sampling all texts would be the same: set sampling=True")

    def but(self, **changes: float | bool | tuple[str, ...] | None) -> "GenerationRequest":
        """A copy with changes; None keeps a value."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]

    def choice(self, device: torch.device) -> Choose:
        """How the next tokens are chosen; the random numbers begin anew with each call."""
        if not self.sampling:
            return greedy
        generator = torch.Generator(device).manual_seed(self.seed)
        return partial(
            sample_tokens, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, generator=generator
        )


class Generation:
    """The continuations of a prompt; iterate over it once for what each of its texts grows by."""

    def __init__(
        self,
        model: "LanguageModel",
        prompt: list[int],
        texts: "list[GeneratedText]",
        request: GenerationRequest,
        unknown: int = 0,  # characters of the prompt that are not in the vocabulary
    ) -> None:
        self.model, self.prompt, self.texts, self.request, self.unknown = model, prompt, texts, request, unknown

    @property
    def cut(self) -> int:
        """How many tokens of the prompt the model does not see because its context is shorter."""
        return max(0, len(self.prompt) + 1 - self.model.context)

    def __iter__(self) -> Iterator[list[str]]:
        request, device = self.request, self.model.device.torch
        window = _SlidingWindow(self.model, [self.model.vocabulary.pad, *self.prompt], request.n)
        steps = continuations(window.step, window.logits, request.choice(device), request.max_tokens, never=(UNKNOWN,))
        for tokens in steps:
            yield [text.take(token) for text, token in zip(self.texts, tokens.tolist(), strict=True)]
            if all(text.ended for text in self.texts):
                return
        if any(text.held for text in self.texts):
            yield [text.held for text in self.texts]


class GeneratedText:
    """One continuation: its characters as they come, up to the end of its document or to a string that stops it."""

    def __init__(self, detokenizer: "IncrementalDetokenizer", stop: Sequence[str] = ()) -> None:
        self.detokenizer, self.stop = detokenizer, stop
        self.held = ""  # the beginning of a string that may stop it
        self.tokens = 0
        self.stopped = False

    @property
    def ended(self) -> bool:
        return self.stopped or self.detokenizer.ended

    def take(self, token: int) -> str:
        """What the text grows by; nothing after its end."""
        if self.ended:
            return ""
        self.tokens += 1
        text = self.held + self.detokenizer.take(token)
        found = [text.find(stop) for stop in self.stop if stop in text]
        self.stopped = bool(found)
        shown = min(found) if found else len(text) if self.detokenizer.ended else self._certain(text)
        self.held = "" if self.stopped else text[shown:]
        return text[:shown]

    def _certain(self, text: str) -> int:
        """How many characters are part of the text whatever comes next."""
        longest = max((len(stop) for stop in self.stop), default=1) - 1
        starts = range(max(0, len(text) - longest), len(text))
        return next((at for at in starts if any(stop.startswith(text[at:]) for stop in self.stop)), len(text))


class _SlidingWindow:
    """The model, its state and its latest logits, for texts of any length that begin with the same tokens."""

    def __init__(self, model: "LanguageModel", tokens: list[int], rows: int) -> None:
        self.device, self.decoder = model.device, SlidingDecoder(model.model)
        self.state = self.decoder.begin()
        self.logits = self._extend(torch.tensor(tokens, device=model.device.torch).expand(rows, -1))

    def step(self, newest: Tensor) -> Tensor:
        """The logits after one more token of each row."""
        return self._extend(newest[:, None])

    @torch.inference_mode()
    def _extend(self, tokens: Tensor) -> Tensor:
        with self.device.mixed_precision():
            return self.decoder.extend(tokens, self.state)


class IncrementalDetokenizer:
    """Turns the tokens of one text into characters as they come."""

    def __init__(self, vocabulary: Vocabulary, line: list[int], documents: str) -> None:
        self.vocabulary, self.line, self.documents = vocabulary, list(line), documents
        self.shown = vocabulary.decode([line])[0]
        self.ended = False

    def take(self, token: int) -> str:
        """What the text grows by; nothing while a character is spelt in bytes, or after the end of the document."""
        if self.ended:
            return ""
        if token == EOS:
            return self._end_line()
        self.line.append(token)
        text = self.vocabulary.decode([self.line])[0]
        if text.endswith("\ufffd") or not text.startswith(self.shown):
            return ""
        grown, self.shown = text[len(self.shown) :], text
        return grown

    def _end_line(self) -> str:
        rest = self.vocabulary.decode([self.line])[0][len(self.shown) :]
        self.ended = self.documents == "line" or (self.documents == "blank-line" and not self.line)
        self.line, self.shown = [], ""
        return rest + ("" if self.documents == "line" else "\n")
