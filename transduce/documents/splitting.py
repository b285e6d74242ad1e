"""Split documents into sentences and join the translations; the text between sentences is kept unchanged.

In HTML only the text is translated; tags, comments, scripts and styles are kept. A tag ends a sentence unless it is an
inline tag. Every function takes time in proportion to its text, whatever the text is. Knows no models and no HTTP.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from transduce.documents.tags import Run, Tagged, inline_name, marked, trimmed

# A run of marks is matched once, at its start: matched at each mark, a page of dots would take minutes.
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(?=\s)|(?<![。！？])[。！？]++[\"'”’」』）]*+|[\r\n]++")
_UNSPACED_ENDS = (*"。！？」』）、，；",)  # no space follows them
# A list item, heading or quotation at the beginning of a line. `3.` is no marker: it may be an ordinal number.
_MARKER = re.compile(r"(?:(?:[-–—*+•‣◦▪·>#]++|\d{1,3}\))\s++)*+")
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
    """Sentences, and the text that is kept around them, which has one part more than there are sentences."""

    sentences: list[str]
    kept: list[str]
    is_html: bool = False
    tagged: dict[int, Tagged] = field(default_factory=dict)  # by the index of its first line

    def rejoin(self, translations: Iterable[str]) -> str:
        """The document with every sentence replaced by its translation."""
        texts = self._in_place(list(translations))
        gaps = self.kept[1:] if self.is_html else self._gaps(texts)
        return self.kept[0] + "".join(text + gap for text, gap in zip(texts, gaps, strict=True))

    def _gaps(self, texts: list[str]) -> list[str]:
        """The text after each translation: a space where only the source is in a script without spaces."""
        joined = [
            gap == "" and sentence.endswith(_UNSPACED_ENDS) and bool(text) and not text.endswith(_UNSPACED_ENDS)
            for sentence, text, gap in zip(self.sentences[:-1], texts, self.kept[1:-1], strict=False)
        ]
        return [" " if join else gap for join, gap in zip([*joined, False], self.kept[1:], strict=False)]

    def _in_place(self, translations: list[str]) -> list[str]:
        """The texts to insert. The separate translations of tagged words are dropped once their tags are placed."""
        if not self.is_html:
            return translations
        texts = [html.escape(text, quote=False) for text in translations]
        for first, tagged in self.tagged.items():
            lines = translations[first : first + len(tagged.lines)]
            texts[first : first + len(lines)] = [tagged.put_back(lines), *[""] * (len(lines) - 1)]
        return texts

    def add(self, other: "Document") -> None:
        """Append a document of plain text."""
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
    """How texts are split for a model: at sentence ends for translation, at line ends for tasks on symbols."""

    sentences: bool
    fits: Callable[[str], bool]  # whether a sentence is short enough; otherwise it is divided

    def text(self, text: str) -> Document:
        return _document(self._spans(text), text)

    def html(self, text: str) -> Document:
        """Split HTML: the text between its tags."""
        document = Document([], [""], is_html=True)
        for run, markup in _runs(text):
            self._add(document, run)
            document.keep(markup)
        return document

    def _add(self, document: Document, run: Run) -> None:
        """Append the sentences of a run with the tags inside them, and the text between them."""
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
        """Append a sentence whose tags do not nest properly, split at the tags."""
        begin = 0
        for at, markup in cuts:
            document.add(self.text(text[begin:at]))
            document.keep(markup)
            begin = at
        document.add(self.text(text[begin:]))

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The positions of the sentences, without the space around them and the marker of a list item before them."""
        begin = 0
        for end in [*self._ends(text), len(text)]:
            first, last = trimmed(text, begin, end)
            if self.sentences and (begin == 0 or text[begin - 1] in "\r\n"):
                first = _after_marker(text, first, last)
            begin = end
            if not self.sentences:
                yield from [(first, last)] if first < last else []
            elif any(map(str.isalnum, text[first:last])):  # a row of dashes is not translated
                yield from self._divided(text, first, last)

    def _ends(self, text: str) -> list[int]:
        return [end.end() for end in _END.finditer(text) if self._is_end(text, end)]

    def _is_end(self, text: str, end: "re.Match[str]") -> bool:
        return end[0][0] in "\r\n" or (self.sentences and not _goes_on(text, end))

    def _divided(self, text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """A sentence, or its halves if it is too long: cut near the middle after a comma or space, or else anywhere."""
        if end - begin < 2 or self.fits(text[begin:end]):
            yield begin, end
            return
        middle = (begin + end) // 2
        breaks = [found.end() for found in _BREAK.finditer(text, begin + 1, end - 1)]
        cut = min(breaks, key=lambda position: abs(position - middle), default=middle)
        for first, last in ((begin, cut), (cut, end)):
            yield from self._divided(text, *trimmed(text, first, last))


def _after_marker(text: str, first: int, last: int) -> int:
    marker = _MARKER.match(text, first, last)
    return marker.end() if marker else first


def _document(spans: Iterable[tuple[int, int]], text: str) -> Document:
    sentences, kept, begin = [], [], 0
    for first, last in spans:
        kept.append(text[begin:first])
        sentences.append(text[first:last])
        begin = last
    return Document(sentences, [*kept, text[begin:]])


def _goes_on(text: str, end: "re.Match[str]") -> bool:
    """Whether the sentence goes on: a lower-case letter follows, or the full stop ends an abbreviation or ordinal."""
    after = _SPACE.match(text, end.end())
    if after and text[after.end() : after.end() + 1].islower():
        return True
    if not end[0].startswith(".") or end[0].startswith(".."):
        return False
    word = re.split(r"[\s(\"'„“]", text[max(0, end.start() - 16) : end.start()])[-1]
    return word.lower() in _ABBREVIATIONS or bool(_SHORT.fullmatch(word))


def _runs(text: str) -> Iterator[tuple[Run, str]]:
    """Runs of text with their inline tags, each with the markup that follows it."""
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
    """Whether an element ends exactly where the next one begins, as in a menu: they belong to different sentences."""
    if tag.startswith("</") or inline_name(tag) in ("sub", "sup") or parts[-1]:
        return False
    number = len(tags)
    while number and tags[number - 1].startswith("</"):
        number -= 1
        if parts[number]:  # the text before that tag
            return bool(parts[number][-1].strip())
    return False


def _html_parts(text: str) -> Iterator[tuple[str, bool]]:
    """All parts of the HTML in order, as (part, whether it is text); a lone `<` is text."""
    at = 0
    while markup := _MARKUP.search(text, at):
        yield text[at : markup.start()], True
        at = _markup_end(text, markup)
        yield text[markup.start() : at], False
    yield text[at:], True


def _markup_end(text: str, markup: "re.Match[str]") -> int:
    """The end of a tag, comment, script or style; if it is not closed, the end of the text."""
    if text.startswith("<!--", markup.start()):
        end = text.find("-->", markup.end())
        return len(text) if end < 0 else end + 3
    tag = _TAG_REST.match(text, markup.end())
    ending = _RAW.get((markup[1] or "").lower())
    if tag and not ending:
        return tag.end()
    raw = ending.search(text, tag.end()) if tag and ending else None
    return raw.start() if raw else len(text)
