"""Documents to sentences and back: what stands between sentences is kept to the character.

Of HTML only the text is translated; tags, comments, scripts and styles stay as they are. Every function takes time in
proportion to its text, whatever the text is. Knows no models and no HTTP.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

# A run of marks is tried once, at its beginning: tried at each mark, a page of dots would take minutes.
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(?=\s)|(?<![。！？])[。！？]++[\"'”’」』）]*+|[\r\n]++")
_SHORT = re.compile(r"\d{1,2}|\w|(?:\w\.)+\w")
_SPACE = re.compile(r"\s*+")
_BREAK = re.compile(r"[,;:、，；]\s*+|\s++")
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st jr sr vs etc cf fig no nr vol pp ca approx bzw usw evtl ggf inkl str hr fr mme mlle sra".split()
)
_RAW = {"script": re.compile(r"</script", re.IGNORECASE), "style": re.compile(r"</style", re.IGNORECASE)}
_MARKUP = re.compile(r"<(?:[/!?]|([a-zA-Z][a-zA-Z0-9-]*+))")
_TAG_REST = re.compile(r"(?:[^\"'>]|\"[^\"]*+\"|'[^']*+')*+>")


@dataclass(frozen=True)
class Document:
    """Sentences, and what is kept around them: one more than there are sentences."""

    sentences: list[str]
    kept: list[str]
    is_html: bool = False

    def rejoin(self, translations: Iterable[str]) -> str:
        """The document with each sentence's translation in its place."""
        pairs = zip(translations, self.kept[1:], strict=True)
        return self.kept[0] + "".join(
            (html.escape(text, quote=False) if self.is_html else text) + k for text, k in pairs
        )


@dataclass(frozen=True)
class Splitter:
    """How a model's texts are cut: at sentence ends where it translates, at line ends where it spells symbols."""

    sentences: bool
    fits: Callable[[str], bool]  # whether a sentence is short enough; one that is not is divided

    def text(self, text: str) -> Document:
        return _document(self._spans(text), text)

    def html(self, text: str) -> Document:
        """The same for the text between tags."""
        sentences: list[str] = []
        kept = [""]
        for part, is_text in _html_parts(text):
            if not is_text:
                kept[-1] += part
                continue
            inside = self.text(html.unescape(part))
            escaped = [html.escape(gap, quote=False) for gap in inside.kept]
            kept[-1] += escaped[0]
            kept += escaped[1:]
            sentences += inside.sentences
        return Document(sentences, kept, is_html=True)

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the sentences are, without the space around them."""
        begin = 0
        for end in [*self._ends(text), len(text)]:
            first, last = _trimmed(text, begin, end)
            begin = end
            if not self.sentences:
                yield from [(first, last)] if first < last else []
            elif any(map(str.isalnum, text[first:last])):  # a model has nothing to say of a row of dashes
                yield from self._divided(text, first, last)

    def _ends(self, text: str) -> list[int]:
        return [end.end() for end in _END.finditer(text) if self._is_end(text, end)]

    def _is_end(self, text: str, end: "re.Match[str]") -> bool:
        return end[0][0] in "\r\n" or (self.sentences and not _goes_on(text, end))

    def _divided(self, text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """A sentence, or where it is too long its halves, cut after a comma or a space near the middle, or anywhere."""
        if end - begin < 2 or self.fits(text[begin:end]):
            yield begin, end
            return
        middle = (begin + end) // 2
        breaks = [found.end() for found in _BREAK.finditer(text, begin + 1, end - 1)]
        cut = min(breaks, key=lambda place: abs(place - middle), default=middle)
        for first, last in ((begin, cut), (cut, end)):
            yield from self._divided(text, *_trimmed(text, first, last))


def _document(spans: Iterable[tuple[int, int]], text: str) -> Document:
    sentences, kept, begin = [], [], 0
    for first, last in spans:
        kept.append(text[begin:first])
        sentences.append(text[first:last])
        begin = last
    return Document(sentences, [*kept, text[begin:]])


def _trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    inner = text[begin:end]
    return begin + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())


def _goes_on(text: str, end: "re.Match[str]") -> bool:
    """Whether a small letter follows, or a full stop ends an abbreviation, an initial or an ordinal."""
    after = _SPACE.match(text, end.end())
    if after and text[after.end() : after.end() + 1].islower():
        return True
    if not end[0].startswith(".") or end[0].startswith(".."):
        return False
    word = re.split(r"[\s(\"'„“]", text[max(0, end.start() - 16) : end.start()])[-1]
    return word.lower() in _ABBREVIATIONS or bool(_SHORT.fullmatch(word))


def _html_parts(text: str) -> Iterator[tuple[str, bool]]:
    """(part, whether it is text) in order, nothing left out; a lone `<` is text."""
    at = 0
    while markup := _MARKUP.search(text, at):
        yield text[at : markup.start()], True
        at = _markup_end(text, markup)
        yield text[markup.start() : at], False
    yield text[at:], True


def _markup_end(text: str, markup: "re.Match[str]") -> int:
    """Where a tag, a comment, a script or a style is over; what never ends lasts to the end."""
    if text.startswith("<!--", markup.start()):
        end = text.find("-->", markup.end())
        return len(text) if end < 0 else end + 3
    tag = _TAG_REST.match(text, markup.end())
    ending = _RAW.get((markup[1] or "").lower())
    if tag and not ending:
        return tag.end()
    raw = ending.search(text, tag.end()) if tag and ending else None
    return raw.start() if raw else len(text)
