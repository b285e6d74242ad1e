"""Documents to sentences and back: what stands between sentences is kept to the character.

Of HTML only the text is translated; tags, comments, scripts and styles stay as they are. Tags end a sentence, all but
inline ones. Every function takes time in proportion to its text, whatever the text is. Knows no models and no HTTP.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from transduce.server.tags import Run, Tagged, inline_name, marked, trimmed

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
    tagged: dict[int, Tagged] = field(default_factory=dict)  # by the number of its first line

    def rejoin(self, translations: Iterable[str]) -> str:
        """The document with each sentence's translation in its place."""
        pairs = zip(self._in_place(list(translations)), self.kept[1:], strict=True)
        return self.kept[0] + "".join(text + kept for text, kept in pairs)

    def _in_place(self, translations: list[str]) -> list[str]:
        """What is to be read; of the words within tags nothing, once these are in their places."""
        if not self.is_html:
            return translations
        texts = [html.escape(text, quote=False) for text in translations]
        for first, tagged in self.tagged.items():
            lines = translations[first : first + len(tagged.lines)]
            texts[first : first + len(lines)] = [tagged.put_back(lines), *[""] * (len(lines) - 1)]
        return texts

    def add(self, other: "Document") -> None:
        """Go on with a document of plain text."""
        escaped = [html.escape(gap, quote=False) for gap in other.kept]
        self.keep(escaped[0])
        self.kept.extend(escaped[1:])
        self.sentences.extend(other.sentences)

    def add_tagged(self, tagged: Tagged) -> None:
        self.tagged[len(self.sentences)] = tagged
        self.add(Document(tagged.lines, [""] * (len(tagged.lines) + 1)))

    def keep(self, markup: str) -> None:
        self.kept[-1] += markup


@dataclass(frozen=True)
class Splitter:
    """How a model's texts are cut: at sentence ends where it translates, at line ends where it spells symbols."""

    sentences: bool
    fits: Callable[[str], bool]  # whether a sentence is short enough; one that is not is divided

    def text(self, text: str) -> Document:
        return _document(self._spans(text), text)

    def html(self, text: str) -> Document:
        """The same for the text between tags."""
        document = Document([], [""], is_html=True)
        for run, markup in _runs(text):
            self._add(document, run)
            document.keep(markup)
        return document

    def _add(self, document: Document, run: Run) -> None:
        """The sentences of a run, each with the tags in it, and what is between them."""
        at = 0
        for first, last in self._spans(run.text):
            outer, elements = run.take(first, last)
            document.keep(marked(run.text, at, first, [tag for tag in outer if tag.at <= first]))
            at = last
            if elements:
                document.add_tagged(Tagged(run.text[first:last], elements))
            elif not (cuts := [tag for tag in outer if tag.at > first]):
                document.add(Document([run.text[first:last]], ["", ""]))
            else:
                self._add_pieces(document, run.text[first:last], [(tag.at - first, tag.markup) for tag in cuts])
        document.keep(marked(run.text, at, len(run.text), run.rest()))

    def _add_pieces(self, document: Document, text: str, cuts: list[tuple[int, str]]) -> None:
        """A sentence whose tags do not fit together: each piece by itself."""
        begin = 0
        for at, markup in cuts:
            document.add(self.text(text[begin:at]))
            document.keep(markup)
            begin = at
        document.add(self.text(text[begin:]))

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the sentences are, without the space around them."""
        begin = 0
        for end in [*self._ends(text), len(text)]:
            first, last = trimmed(text, begin, end)
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
            yield from self._divided(text, *trimmed(text, first, last))


def _document(spans: Iterable[tuple[int, int]], text: str) -> Document:
    sentences, kept, begin = [], [], 0
    for first, last in spans:
        kept.append(text[begin:first])
        sentences.append(text[first:last])
        begin = last
    return Document(sentences, [*kept, text[begin:]])


def _goes_on(text: str, end: "re.Match[str]") -> bool:
    """Whether a small letter follows, or a full stop ends an abbreviation, an initial or an ordinal."""
    after = _SPACE.match(text, end.end())
    if after and text[after.end() : after.end() + 1].islower():
        return True
    if not end[0].startswith(".") or end[0].startswith(".."):
        return False
    word = re.split(r"[\s(\"'„“]", text[max(0, end.start() - 16) : end.start()])[-1]
    return word.lower() in _ABBREVIATIONS or bool(_SHORT.fullmatch(word))


def _runs(text: str) -> Iterator[tuple[Run, str]]:
    """Text with its inline tags, and the markup after it."""
    parts: list[str] = [""]
    tags: list[str] = []
    for part, is_text in _html_parts(text):
        if is_text:
            parts[-1] = part
        elif inline_name(part):
            if _are_apart(tags, part, parts):
                yield Run(parts, tags), ""
                parts, tags = [""], []
            parts.append("")
            tags.append(part)
        else:
            yield Run(parts, tags), part
            parts, tags = [""], []
    yield Run(parts, tags), ""


def _are_apart(tags: list[str], tag: str, parts: list[str]) -> bool:
    """Whether an element with words ends right where the next begins, as in a menu: they are no words of one sentence."""
    if tag.startswith("</") or inline_name(tag) in ("sub", "sup") or parts[-1]:
        return False
    number = len(tags)
    while number and tags[number - 1].startswith("</"):
        number -= 1
        if parts[number]:  # what stands before that tag
            return bool(parts[number][-1].strip())
    return False


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
