"""A language model: probabilities of texts, attention weights, and continuations of prompts.

A line break is `</s>` in ids. What a document is, and so where a generated text ends, is the setting `data.documents` that the
model was trained with.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from transduce.config import Config, DecoderConfig
from transduce.data.text_windows import Offsets, document_ends, strided_windows
from transduce.device import Device, choose_device
from transduce.errors import DataError, SettingError
from transduce.model import Decoder, Sequences, SlidingDecoder, Tokens, watch
from transduce.text import EOS, UNKNOWN, Vocabulary
from transduce.translator.folder import ModelFolder, open_folder
from transduce.translator.generation import GeneratedText, Generation, GenerationRequest, IncrementalDetokenizer
from transduce.translator.outputs import Attention
from transduce.translator.picture import check_picture_path, draw_attention

POSITIONS = {"cpu": 8_192, "cuda": 131_072}  # of the windows that are measured at once


@dataclass(frozen=True)
class TextScore:
    """How well a language model predicts a text: the whole of it, line breaks included."""

    nats: float
    tokens: int
    bytes: int
    words: int  # whatever stands between blanks
    characters: int
    unknown: int  # tokens `<unk>`, each of which may stand for several characters
    unknown_characters: int  # that are not in the vocabulary: the model does not predict which they are
    unknown_bytes: int  # of these characters
    context: int
    stride: int  # tokens from one window to the next; each is predicted from at least context - stride tokens before it
    documents: str

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / self.bytes

    @property
    def most_bits_per_byte(self) -> float:
        """The bits per byte if unknown characters were spelt in bytes: 8 bits for each, and for the byte that ends each `<unk>`."""
        return self.bits_per_byte + 8 * (self.unknown_bytes + self.unknown) / self.bytes

    @property
    def nats_per_token(self) -> float:
        return self.nats / self.tokens

    @property
    def perplexity_per_word(self) -> float:
        return math.exp(min(700.0, self.nats / max(1, self.words)))

    @property
    def signature(self) -> str:
        """What the figures depend on besides model and text."""
        return f"context:{self.context}|stride:{self.stride}|documents:{self.documents}"


class LanguageModel:
    """A trained language model. `transduce.load_language_model` returns one.

    Example:
        >>> model = transduce.load_language_model("runs/shakespeare")
        >>> model.generate("ROMEO:", sampling=True, top_p=0.9)
        ['\\nI would I were thy bird.']
    """

    def __init__(self, model: Decoder, vocabulary: Vocabulary, config: Config, device: Device) -> None:
        self.model, self.vocabulary, self.config, self.device = (
            model.to(device.torch).eval(),
            vocabulary,
            config,
            device,
        )

    @staticmethod
    def load(
        folder: str | Path, *, weights: str = "auto", device: Literal["auto", "cpu", "cuda"] = "auto", threads: int = 0
    ) -> "LanguageModel":
        opened = open_language_model(folder)
        return LanguageModel(
            _decoder(opened, weights), opened.vocabularies.target, opened.config, choose_device(device, threads=threads)
        )

    @property
    def context(self) -> int:
        """The most tokens that the next one is predicted from."""
        return self.model.config.context

    # --- measuring -------------------------------------------------------------------------------------------------

    def score(
        self, texts: str | Sequence[str], stride: int = 0, *, show: Callable[[int, int], None] | None = None
    ) -> TextScore:
        """Measure the whole of one or several texts.

        Args:
            texts: A text, or several. With `data.documents = "file"`, each is a document.
            stride: Tokens from one window to the next. By default the context, so that windows do not overlap. A smaller stride
                predicts every token from at least `context - stride` tokens, and takes longer.
            show: Called during the work with the number of tokens that are measured, and of how many.

        Example:
            >>> transduce.load_language_model("runs/shakespeare").score("To be, or not to be").bits_per_byte
            2.4
        """
        stride = stride or self.context
        if not 1 <= stride <= self.context:
            raise SettingError(
                f"stride = {stride}: must be at least 1 and at most the context of {self.context} tokens"
            )
        files = [_lines(text) for text in ([texts] if isinstance(texts, str) else texts)]
        lines = [line for file in files for line in file]
        if not lines:
            raise DataError("the text is empty: there is nothing to measure")
        encoded = self.vocabulary.encode(lines, every_core=True)
        ids = np.fromiter((token for line in encoded for token in line), np.int64)
        lengths = np.array([len(line) for line in encoded])
        ends = document_ends(lengths, [len(file) for file in files], self.config.data.documents)
        unknown = self._unknown_texts(lines, encoded)
        return TextScore(
            nats=self._nats(ids, ends, stride, show),
            tokens=len(ids),
            bytes=sum(len(line.encode()) + 1 for line in lines),
            words=sum(len(line.split()) for line in lines),
            characters=sum(len(line) + 1 for line in lines),
            unknown=len(unknown),
            unknown_characters=sum(map(len, unknown)),
            unknown_bytes=sum(len(text.encode()) for text in unknown),
            context=self.context,
            stride=stride,
            documents=self.config.data.documents,
        )

    def _unknown_texts(self, lines: Sequence[str], encoded: Sequence[list[int]]) -> list[str]:
        """What each `<unk>` stands for; sentencepiece writes one `<unk>` for a whole sequence of unknown characters."""
        found = (line for line, ids in zip(lines, encoded, strict=True) if UNKNOWN in ids)
        return [text for line in found for text in self.vocabulary.unknown_texts(line)]

    def score_lines(self, lines: Sequence[str]) -> list[float]:
        """The log-probability of each line by itself, up to and including its line break.

        A line begins where a document begins if the model was trained on single lines, and after a line break otherwise.

        Example:
            >>> transduce.load_language_model("runs/german").score_lines(["ein Satz", "Satz ein"])
            [-12.1, -19.8]
        """
        encoded = self.vocabulary.encode(list(lines), every_core=True)
        ids = np.fromiter((token for line in encoded for token in line), np.int64)
        ends = np.cumsum([len(line) for line in encoded])
        totals = np.zeros(len(encoded))
        for first, nats in self._window_nats(ids, ends, max(1, self.context // 2), self.line_start):
            totals[np.searchsorted(ends, first, side="right")] -= nats
        return totals.tolist()

    @property
    def line_start(self) -> int:
        """The token before a line: `<pad>` if every line is a document, else a line break."""
        return line_start(self.config, self.vocabulary)

    def _nats(self, ids: Offsets, ends: Offsets, stride: int, show: Callable[[int, int], None] | None) -> float:
        """The negative log-probability of all tokens."""
        total = 0.0
        for first, nats in self._window_nats(ids, ends, stride, self.vocabulary.pad):
            total += nats
            if show:
                show(first, len(ids))
        return total

    def _window_nats(self, ids: Offsets, ends: Offsets, stride: int, start: int) -> Iterator[tuple[int, float]]:
        """The first token of each window, and the negative log-probability of the tokens that are new in it.

        The token `start` stands before each document.
        """
        windows = strided_windows(ends, self.context, stride)
        starts = {0, *ends.tolist()}
        rows = max(1, POSITIONS[self.device.kind] // self.context)
        for begin in range(0, len(windows), rows):
            part = windows[begin : begin + rows]
            texts = [ids[first:end] for first, _, end in part]
            inputs = [
                [start if first in starts else int(ids[first - 1]), *text[:-1].tolist()]
                for (first, _, _), text in zip(part, texts, strict=True)
            ]
            lost = self._token_nats(inputs, texts)
            for row, (first, new, end) in zip(lost, part, strict=True):
                yield first, float(row[new - first : end - first].sum())

    @torch.inference_mode()
    def _token_nats(self, inputs: Sequence[list[int]], labels: Sequence[Offsets]) -> Tensor:
        """-log p of each label [rows, positions]; ignore values beyond the end of a row."""
        padded = Tokens.padded(inputs, self.vocabulary.pad).to(self.device.torch)
        wanted = Tokens.padded(labels, 0).ids.to(self.device.torch)
        with self.device.mixed_precision():
            hidden = self.model.decode(Sequences(padded.ids, padded.position, padded.segment), None)
            logits = self.model.project(hidden)
        return -logits.float().log_softmax(-1).gather(-1, wanted[..., None])[..., 0].double().cpu()

    # --- looking inside --------------------------------------------------------------------------------------------

    def attention(self, text: str, *, picture: str | Path = "") -> Attention:
        """The attention weights of every head in every layer for a text, which attends to itself.

        Args:
            text: The beginning of a document.
            picture: Also draw the weights to this .png, .pdf or .svg file.

        Example:
            >>> seen = transduce.load_language_model("runs/shakespeare").attention("To be, or")
            >>> seen.maps.decoder[0].shape  # of the first layer: [1, heads, tokens, tokens]
            >>> seen.following  # the most probable next token
        """
        if picture:
            check_picture_path(picture)
        inputs = self.input_ids(text)
        with watch(self.model) as maps:
            following = int(self.next_log_probs(inputs)[-1].argmax())
        names = self.vocabulary.pieces([*inputs, following])
        attention = Attention([], names[:-1], maps, text, names[-1])
        if picture:
            draw_attention(attention, picture)
        return attention

    def input_ids(self, text: str) -> list[int]:
        """The start of a document, and the ids of a text in it."""
        if not text.strip():
            raise DataError("the text is empty: there is nothing to show")
        beginning, unfinished = self.encode_prompt(text)
        return [self.vocabulary.pad, *beginning, *unfinished]

    @torch.inference_mode()
    def next_log_probs(self, inputs: Sequence[int]) -> Tensor:
        """The log-probability of every token after each of these: [positions, vocabulary]."""
        ids = torch.tensor([inputs], device=self.device.torch)
        position = torch.arange(len(inputs), device=self.device.torch)[None]
        with self.device.mixed_precision():
            hidden = self.model.decode(Sequences(ids, position, torch.ones_like(ids)), None)
            return self.model.project(hidden)[0].float().log_softmax(-1)

    # --- generating ------------------------------------------------------------------------------------------------

    def generate(
        self,
        prompt: str = "",
        request: GenerationRequest | None = None,
        *,
        sampling: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        n: int | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] | None = None,
    ) -> list[str]:
        """Continue a prompt; the texts returned do not repeat it.

        Args:
            prompt: The beginning of a document; empty for a new document.
            request: All settings at once.
            sampling: Sample from the model instead of taking the most probable token each time.
            temperature: Below 1, probable tokens become more probable; above 1, less.
            top_k: Sample from the `top_k` most probable tokens; 0 means all.
            top_p: Sample from the most probable tokens whose probabilities sum to `top_p`.
            seed: Another seed gives other samples; the same seed, prompt and `n` give the same ones.
            n: How many texts.
            max_tokens: The most tokens of each text.
            stop: Strings that end a text: it ends before the first of them.

        Example:
            >>> transduce.load_language_model("runs/shakespeare").generate("ROMEO:", sampling=True, n=3)
        """
        if isinstance(stop, str):
            raise SettingError(
                f"stop: give a list of strings, such as [{stop!r}]: each character of a string would end the text"
            )
        given = {
            "sampling": sampling, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed, "n": n,
            "max_tokens": max_tokens, "stop": None if stop is None else tuple(stop),
        }  # fmt: skip
        request = (request or GenerationRequest()).but(**given)
        texts = [""] * request.n
        for parts in self.stream(prompt, request):
            texts = [text + part for text, part in zip(texts, parts, strict=True)]
        return texts

    def stream(self, prompt: str, request: GenerationRequest) -> Iterator[list[str]]:
        """Continue a prompt piece by piece: what each of the `n` texts grows by, empty for those that have ended."""
        return iter(self.generation(prompt, request))

    def generation(self, prompt: str, request: GenerationRequest) -> Generation:
        """The same as an object that also counts tokens and knows which texts have ended; nothing is computed yet."""
        if not isinstance(prompt, str):
            raise SettingError(f"prompt: must be a text (str), not {type(prompt).__name__}")
        beginning, unfinished = self.encode_prompt(prompt)
        texts = [
            GeneratedText(IncrementalDetokenizer(self.vocabulary, unfinished, self.config.data.documents), request.stop)
            for _ in range(request.n)
        ]
        ids = [*beginning, *unfinished]
        lines = prompt.split("\n") if UNKNOWN in ids else []
        unknown = sum(len(text) for line in lines for text in self.vocabulary.unknown_texts(line))
        return Generation(self, ids, texts, request, unknown)

    def encode_prompt(self, prompt: str) -> tuple[list[int], list[int]]:
        """The ids of the prompt's whole lines, and those of its last line, which goes on."""
        *lines, last = prompt.split("\n")
        whole = [token for line in self.vocabulary.encode(lines) for token in line] if lines else []
        return whole, self.vocabulary.encode([last])[0][:-1]


def line_start(config: Config, vocabulary: Vocabulary) -> int:
    """The token before a line in the text of a language model."""
    return vocabulary.pad if config.data.documents == "line" else EOS


def open_language_model(folder: str | Path) -> ModelFolder:
    """The folder of a language model; any other model is refused."""
    opened = open_folder(folder)
    if not isinstance(opened.config.model, DecoderConfig):
        raise SettingError(
            f"{folder}: this model {opened.config.data.what_it_does}: it is not a language model; "
            "`transduce train RUN --text FILE` trains one"
        )
    return opened


def sliding_decoder(folder: ModelFolder) -> SlidingDecoder:
    """The model of a folder as a search uses it: it begins with a new line and has no limit on the length."""
    return SlidingDecoder(_decoder(folder), line_start(folder.config, folder.vocabularies.target))


def _decoder(folder: ModelFolder, weights: str = "auto") -> Decoder:
    model = folder.model(weights)
    assert isinstance(model, Decoder), "settings are checked when they are read"
    return model


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []
