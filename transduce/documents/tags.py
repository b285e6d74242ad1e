"""Inline tags: taken out of a sentence before it is translated, and put around the corresponding words afterwards.

The text inside a tag is also translated by itself. If that translation occurs in the translation of the sentence, the tag
goes there; otherwise it goes around the words at the same relative position. Knows no models and no HTTP.
"""

import html
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

INLINE = frozenset(
    "a abbr b bdi bdo cite data del dfn em font i ins label mark q s small span strong sub sup time tt u var".split()
)
NESTED = 8  # maximum depth, not counting tags around the same words: each level translates the words again
_NAME = re.compile(r"</?([a-zA-Z][a-zA-Z0-9-]*+)")
_MARKS = ".!?…。！？,;:、，；"
_ALONE = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # in scripts without spaces each character counts as a word
_LETTER = rf"[^\W{_ALONE}]"
_WORD = re.compile(rf"{_LETTER}++(?:[^\w\s]{_LETTER}++)*+|[{_ALONE}]")
_EDGE = re.compile(rf"(?<!{_LETTER})|(?!{_LETTER})")

Span = tuple[int, int]  # where something begins and ends in a text


@dataclass(frozen=True)
class Tag:
    """An inline tag and its position in the text without tags."""

    markup: str
    at: int

    @property
    def is_end(self) -> bool:
        return self.markup.startswith("</")


@dataclass(eq=False)
class Element:
    """Tags around the same words of a sentence, and the elements inside them; or tags without words."""

    begin: int
    end: int
    before: str = ""
    after: str = ""
    inside: list["Element"] = field(default_factory=list)


@dataclass(frozen=True)
class Tagged:
    """A sentence and the tags inside it."""

    sentence: str
    elements: list[Element]

    @property
    def lines(self) -> list[str]:
        """The lines to translate: the sentence, then the words of each element."""
        return [self.sentence, *(self.sentence[one.begin : one.end] for one in self._spoken)]

    def put_back(self, translations: Sequence[str]) -> str:
        """The translation of the sentence as HTML with its tags."""
        alone = dict(zip(self._spoken, translations[1:], strict=True))
        whole = Element(0, len(self.sentence), inside=self.elements)
        return _Placement(self.sentence, translations[0], alone).html(whole, (0, len(translations[0])))

    @property
    def _spoken(self) -> list[Element]:
        return [one for one in _all(self.elements) if any(map(str.isalnum, self.sentence[one.begin : one.end]))]


def _all(elements: list[Element]) -> Iterator[Element]:
    for one in elements:
        yield one
        yield from _all(one.inside)


def inline_name(markup: str) -> str:
    """The name of an inline tag; empty for any other markup."""
    named = _NAME.match(markup)
    return named[1].lower() if named and named[1].lower() in INLINE else ""


def marked(text: str, begin: int, end: int, tags: Sequence[Tag]) -> str:
    """A part of the text as HTML, with the tags inside it."""
    spans = [begin, *(tag.at for tag in tags), end]
    texts = [html.escape(text[first:last], quote=False) for first, last in pairwise(spans)]
    return texts[0] + "".join(tag.markup + after for tag, after in zip(tags, texts[1:], strict=True))


def trimmed(text: str, begin: int, end: int) -> Span:
    """The span without the space around it."""
    inner = text[begin:end]
    return begin + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())


# --- taking out ------------------------------------------------------------------------------------------------


class Run:
    """Text that is interrupted by inline tags only; its sentences take their tags in order."""

    def __init__(self, parts: Sequence[str], tags: Sequence[str]) -> None:
        texts = [html.unescape(part) for part in parts]
        self.text = "".join(texts)
        self._tags: list[Tag] = []
        at = 0
        for text, markup in zip(texts, tags, strict=False):  # the last text has no tag after it
            at += len(text)
            self._tags.append(Tag(markup, at))
        self._ends = _ends(self._tags)
        self._next = 0
        self._taken: set[int] = set()

    def take(self, first: int, last: int) -> tuple[list[Tag], list[Element]]:
        """The tags up to the end of a sentence that are outside it, and the elements inside it.

        If the tags do not nest properly, there are no elements, and all tags are returned.
        """
        left, ranges = self._within(first, last)
        inner = {number for numbers in ranges for number in numbers}
        outer = [self._tags[number] for number in left if number not in inner]
        builder = self._built(ranges, first, last)
        if builder.deepest > NESTED or any(tag.at > first for tag in outer):
            return [self._tags[number] for number in left], []
        self._taken |= inner
        return outer, builder.elements

    def rest(self) -> list[Tag]:
        """The tags after the last sentence."""
        return [self._tags[number] for number in self._left(len(self._tags))]

    def _left(self, stop: int) -> list[int]:
        begin, self._next = self._next, stop
        return [number for number in range(begin, stop) if number not in self._taken]

    def _within(self, first: int, last: int) -> tuple[list[int], list[range]]:
        """The tags up to the end of the sentence, and the ranges of those that surround some but not all of its words."""
        left = self._left(bisect_left(self._tags, last, lo=self._next, key=lambda tag: tag.at))
        ranges: list[range] = []
        for number in left:
            is_seen = ranges and number in ranges[-1]
            if not is_seen and number in self._ends and self._is_within(number, first, last):
                ranges.append(range(number, self._ends[number] + 1))
        return left, ranges

    def _is_within(self, number: int, first: int, last: int) -> bool:
        begin, end = words = self._words(number)
        if begin >= end:
            return first < self._tags[number].at < last
        return first <= begin and end <= last and words != (first, last)

    def _words(self, number: int) -> Span:
        return trimmed(self.text, self._tags[number].at, self._tags[self._ends[number]].at)

    def _built(self, ranges: Sequence[range], first: int, last: int) -> "_ElementBuilder":
        builder = _ElementBuilder(last - first)
        for numbers in ranges:
            number = numbers.start
            while number < numbers.stop:
                number = self._add(builder, number, first)
        return builder

    def _add(self, builder: "_ElementBuilder", number: int, first: int) -> int:
        """Add a tag, or a whole element without words; returns the number of the next tag."""
        tag, end = self._tags[number], self._ends.get(number)
        if end is None:
            builder.close(tag.markup)
            return number + 1
        begin, stop = self._words(number)
        if begin < stop:
            builder.open(begin - first, stop - first, tag.markup)
            return number + 1
        builder.empty(tag.at - first, "".join(one.markup for one in self._tags[number : end + 1]))
        return end + 1


class _ElementBuilder:
    """Builds elements from their tags."""

    def __init__(self, length: int) -> None:
        self._opened = [Element(0, length)]  # the sentence, then one for each tag
        self._deep = [0]
        self.elements = self._opened[0].inside
        self.deepest = 0

    def open(self, begin: int, end: int, markup: str) -> None:
        around = self._opened[-1]
        is_same = (around.begin, around.end) == (begin, end)
        if is_same:
            around.before += markup
        else:
            around.inside.append(Element(begin, end, markup))
        self._opened.append(around if is_same else around.inside[-1])
        self._deep.append(self._deep[-1] + (not is_same))
        self.deepest = max(self.deepest, self._deep[-1])

    def close(self, markup: str) -> None:
        self._opened.pop().after += markup
        self._deep.pop()

    def empty(self, at: int, markup: str) -> None:
        around = self._opened[-1]
        at = min(max(at, around.begin), around.end)
        around.inside.append(Element(at, at, markup))


def _ends(tags: Sequence[Tag]) -> dict[int, int]:
    """The number of each end tag by the number of its start tag; elements that cross others are left out."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    stray = -1
    for number, tag in enumerate(tags):
        if not tag.is_end:
            opened.append(number)
        elif not opened or inline_name(tags[opened[-1]].markup) != inline_name(tag.markup):
            stray = number
        elif (begin := opened.pop()) > stray:
            ends[begin] = number
    return ends


# --- putting back ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Placement:
    """A sentence, its translation, and the separate translations of its elements."""

    sentence: str
    translation: str
    alone: dict[Element, str]

    def html(self, element: Element, span: Span) -> str:
        """The part of the translation that belongs to an element, with the elements inside it."""
        spans = self._spans(element, span)
        made, at = "", span[0]
        for one in sorted(element.inside, key=spans.__getitem__):
            made += self._escaped(at, spans[one][0]) + one.before + self.html(one, spans[one]) + one.after
            at = spans[one][1]
        return made + self._escaped(at, span[1])

    @cached_property
    def _folded(self) -> str:
        return _folded(self.translation)

    def _escaped(self, begin: int, end: int) -> str:
        return html.escape(self.translation[begin:end], quote=False)

    def _spans(self, element: Element, span: Span) -> dict[Element, Span]:
        """Spans for the inner elements: first those whose words are found, longest first; then the others; then empty tags."""
        spans: dict[Element, Span] = {}
        if not element.inside:
            return spans
        free = _FreeText(self.translation, self._folded, *span)
        shares = {one: _share(one, element, span) for one in element.inside}
        for one in sorted(element.inside, key=lambda one: one.begin - one.end):
            if found := self._find(free, one, shares[one]):
                spans[one] = found
        for one in element.inside:
            if one not in spans and one.begin < one.end and (words := free.words_at(*shares[one])):
                spans[one] = words
        return {one: spans.get(one) or free.gap_at(shares[one][0]) for one in element.inside}

    def _find(self, free: "_FreeText", one: Element, share: Span) -> Span | None:
        """Where the translation of an element occurs, or its text itself, as for names; at word boundaries if it had them."""
        text = self.sentence[one.begin : one.end]
        edges = tuple(bool(_EDGE.match(self.sentence, at)) for at in (one.begin, one.end))
        for words in (self.alone.get(one, ""), text):
            phrase = words.strip().rstrip(_MARKS).rstrip()
            if phrase and (found := free.find(phrase, edges, share[0])):
                return found
        return free.find(text, (False, False), share[0]) if text and not text.strip(_MARKS) else None


def _share(one: Element, around: Element, span: Span) -> Span:
    """The span of an element if the translation had its words at the same relative positions."""
    scale = (span[1] - span[0]) / max(1, around.end - around.begin)
    begin, end = (span[0] + round((at - around.begin) * scale) for at in (one.begin, one.end))
    return begin, end


class _FreeText:
    """A part of a translation and which of its characters already belong to a tag."""

    def __init__(self, text: str, folded: str, begin: int, end: int) -> None:
        self._text, self._folded, self._begin, self._end = text, folded, begin, end
        self._owners = [0] * len(text)  # 0: free
        self._owned = 0
        self._starts: dict[tuple[str, tuple[bool, ...]], list[int]] = {}

    def find(self, phrase: str, edges: tuple[bool, ...], near: int) -> Span | None:
        """The nearest free occurrence of a phrase."""
        if (phrase, edges) not in self._starts:
            self._starts[phrase, edges] = list(self._occurrences(_folded(phrase), edges))
        starts = self._starts[phrase, edges]
        while starts:
            begin = starts.pop(_nearest(starts, near))
            if self._is_free(begin, begin + len(phrase)):
                return self._own(begin, begin + len(phrase))
        return None

    def words_at(self, begin: int, end: int) -> Span | None:
        """The free words in this span, or the nearest one; None if every word has a tag."""
        words, middles = self._words, self._middles
        if not words:
            return None
        low = high = _nearest(middles, begin + end)
        while low and middles[low - 1] >= 2 * begin and self._is_free(words[low - 1][1], words[low][0]):
            low -= 1
        while (
            high + 1 < len(words) and middles[high + 1] < 2 * end and self._is_free(words[high][1], words[high + 1][0])
        ):
            high += 1
        span = self._own(words[low][0], words[high][1])
        del words[low : high + 1], middles[low : high + 1]
        return span

    def gap_at(self, near: int) -> Span:
        """The nearest position between words that is not inside a tag."""
        at = self._gaps[_nearest(self._gaps, near)]
        return at, at

    @cached_property
    def _words(self) -> list[Span]:
        words = [word.span() for word in _WORD.finditer(self._text, self._begin, self._end)]
        return [word for word in words if self._is_free(*word)]

    @cached_property
    def _middles(self) -> list[int]:
        return [first + last for first, last in self._words]  # doubled, to be whole numbers

    @cached_property
    def _gaps(self) -> list[int]:
        starts = [word.start() for word in _WORD.finditer(self._text, self._begin, self._end)]
        between = [at for at in starts if at > self._begin and not self._is_tagged(at)]
        return [self._begin, *between, self._end]

    def _is_tagged(self, at: int) -> bool:
        return self._owners[at] > 0 and self._owners[at - 1] == self._owners[at]

    def _is_free(self, begin: int, end: int) -> bool:
        return not any(self._owners[begin:end])

    def _own(self, begin: int, end: int) -> Span:
        self._owned += 1
        self._owners[begin:end] = [self._owned] * (end - begin)
        return begin, end

    def _occurrences(self, phrase: str, edges: tuple[bool, ...]) -> Iterator[int]:
        """The occurrences of a phrase, at word boundaries where they are required."""
        begin = self._folded.find(phrase, self._begin, self._end)
        while begin >= 0:
            sides = zip(edges, (begin, begin + len(phrase)), strict=True)
            if all(_EDGE.match(self._text, at) for wanted, at in sides if wanted):
                yield begin
            begin = self._folded.find(phrase, begin + 1, self._end)


def _nearest(numbers: Sequence[int], wanted: int) -> int:
    """The index of the number nearest to `wanted` in an ascending list."""
    above = bisect_left(numbers, wanted)
    return min((at for at in (above, above - 1) if 0 <= at < len(numbers)), key=lambda at: abs(numbers[at] - wanted))


def _folded(text: str) -> str:
    """The text in lower case, with the same length."""
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)
