"""Translate lines of several sentences: each line is split, its sentences are translated, and the line is put together again.

Everything between sentences stays as it is, so a line in is a line out.
"""

import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from transduce.documents import Document, Splitter
from transduce.errors import SettingError
from transduce.translator.outputs import Translation

if TYPE_CHECKING:
    from transduce.translator.engine import SearchRequest
    from transduce.translator.translator import Translator


@dataclass(frozen=True)
class SplitTranslation:
    """The translation of a line of several sentences."""

    text: str
    sentences: list[Translation]


@dataclass(frozen=True)
class FitsModel:
    """Whether a sentence has at most as many tokens as the sentences that the model was trained on."""

    translator: "Translator"

    def __call__(self, sentence: str) -> bool:
        longest = min(self.translator.longest_source, self.translator.config.data.max_length)
        # A token has at least one byte of the normalised text, so most sentences need not be tokenised.
        if len(normalized(sentence).encode()) < longest:
            return True
        return len(self.translator.vocabularies.source.encode([sentence])[0]) <= longest


def normalized(text: str) -> str:
    """The text roughly as a vocabulary normalises it, which can turn one character into eighteen."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def splitter_of(translator: "Translator") -> Splitter:
    """The splitter for a model: at sentence ends for translation, at line ends for tasks on symbols."""
    return Splitter(translator.config.data.task != "symbols", FitsModel(translator))


def stream_split(
    translator: "Translator",
    lines: Iterable[str],
    request: "SearchRequest",
    paused: Callable[[], bool] | None = None,
) -> Iterator[SplitTranslation]:
    """Translate lines of any number of sentences; only a few blocks of sentences are in memory at a time."""
    if translator.config.data.task == "symbols":
        raise SettingError(
            "sentences can be split for translation only: each line of this model is one sequence of symbols"
        )
    split = _SplitLines(splitter_of(translator), iter(lines), translator.forms.tags)
    waits = None if paused is None else lambda: not split.rest and paused()
    translations = translator.stream(split, request, paused=waits)
    for first in translations:
        document = split.documents.popleft()
        found = [first, *islice(translations, max(1, len(document.sentences)) - 1)]
        sentences = found if document.sentences else []
        yield SplitTranslation(document.rejoin(one.text for one in sentences), sentences)


class _SplitLines:
    """The sentences of lines, and the documents that they belong to; a line without sentences gives an empty one."""

    def __init__(self, splitter: Splitter, lines: Iterator[str], tags: Sequence[str]) -> None:
        self.splitter, self.lines, self.tags = splitter, lines, tags
        self.documents: deque[Document] = deque()
        self.rest: deque[str] = deque()  # the sentences of the last line that were not taken yet

    def __iter__(self) -> Iterator[str]:
        for line in self.lines:
            tag = next((tag for tag in self.tags if line.startswith(tag)), "")  # of all its sentences
            document = self.splitter.text(line[len(tag) :].lstrip() if tag else line)
            self.documents.append(document)
            self.rest.extend(f"{tag} {sentence}".lstrip() for sentence in document.sentences or [""])
            while self.rest:
                yield self.rest.popleft()
