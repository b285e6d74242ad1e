"""Tags within a sentence: taken out before it is translated, put around the words they belong to afterwards.

The text within a tag is translated by itself as well. Where that is found in the translation of the sentence, the tag goes
there; else it goes around the words at the same share of the sentence. Knows no models and no HTTP.
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
NESTED = 8  # how deep, tags around the same words counted once: a word is translated again for each of them
_NAME = re.compile(r"</?([a-zA-Z][a-zA-Z0-9-]*+)")
_MARKS = ".!?…。！？,;:、，；"
_ALONE = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # in scripts without spaces each character passes for a word
_LETTER = rf"[^\W{_ALONE}]"
_WORD = re.compile(rf"{_LETTER}++(?:[^\w\s]{_LETTER}++)*+|[{_ALONE}]")
_EDGE = re.compile(rf"(?<!{_LETTER})|(?!{_LETTER})")

Place = tuple[int, int]  # where something begins and ends in a text


@dataclass(frozen=True)
class Tag:
    """A tag that ends no sentence, and where it stands in the text without tags."""

    markup: str
    at: int

    @property
    def is_end(self) -> bool:
        return self.markup.startswith("</")


@dataclass(eq=False)
class Element:
    """Tags around the same words of a sentence, and what is within; or tags with no words in them."""

    begin: int
    end: int
    before: str = ""
    after: str = ""
    inside: list["Element"] = field(default_factory=list)


@dataclass(frozen=True)
class Tagged:
    """A sentence and the tags that were in it."""

    sentence: str
    elements: list[Element]

    @property
    def lines(self) -> list[str]:
        """What is to be translated: the sentence, then the words of each element."""
        return [self.sentence, *(self.sentence[one.begin : one.end] for one in self._spoken)]

    def put_back(self, translations: Sequence[str]) -> str:
        """The translation of the sentence as HTML, with the tags."""
        alone = dict(zip(self._spoken, translations[1:], strict=True))
        whole = Element(0, len(self.sentence), inside=self.elements)
        return _Putting(self.sentence, translations[0], alone).html(whole, (0, len(translations[0])))

    @property
    def _spoken(self) -> list[Element]:
        return [one for one in _all(self.elements) if any(map(str.isalnum, self.sentence[one.begin : one.end]))]


def _all(elements: list[Element]) -> Iterator[Element]:
    for one in elements:
        yield one
        yield from _all(one.inside)


def inline_name(markup: str) -> str:
    """The name of an inline tag; empty for all else."""
    named = _NAME.match(markup)
    return named[1].lower() if named and named[1].lower() in INLINE else ""


def marked(text: str, begin: int, end: int, tags: Sequence[Tag]) -> str:
    """A stretch of text as HTML, with the tags that stand in it."""
    places = [begin, *(tag.at for tag in tags), end]
    texts = [html.escape(text[first:last], quote=False) for first, last in pairwise(places)]
    return texts[0] + "".join(tag.markup + after for tag, after in zip(tags, texts[1:], strict=True))


def trimmed(text: str, begin: int, end: int) -> Place:
    """The same without the space around it."""
    inner = text[begin:end]
    return begin + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())


# --- taking out ------------------------------------------------------------------------------------------------


class Run:
    """Text that nothing but inline tags interrupts; its sentences take their tags in order."""

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
        """The tags up to a sentence's end that are not within it, and the elements within.

        Where tags do not fit together there are no elements, and tags that are not within stand in the sentence.
        """
        left, ranges = self._within(first, last)
        inner = {number for numbers in ranges for number in numbers}
        outer = [self._tags[number] for number in left if number not in inner]
        growing = self._grown(ranges, first, last)
        if growing.deepest > NESTED or any(tag.at > first for tag in outer):
            return [self._tags[number] for number in left], []
        self._taken |= inner
        return outer, growing.elements

    def rest(self) -> list[Tag]:
        """The tags after all sentences."""
        return [self._tags[number] for number in self._left(len(self._tags))]

    def _left(self, stop: int) -> list[int]:
        begin, self._next = self._next, stop
        return [number for number in range(begin, stop) if number not in self._taken]

    def _within(self, first: int, last: int) -> tuple[list[int], list[range]]:
        """The tags up to the sentence's end, and of these the ranges that are around some of its words and not all."""
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

    def _words(self, number: int) -> Place:
        return trimmed(self.text, self._tags[number].at, self._tags[self._ends[number]].at)

    def _grown(self, ranges: Sequence[range], first: int, last: int) -> "_Growing":
        growing = _Growing(last - first)
        for numbers in ranges:
            number = numbers.start
            while number < numbers.stop:
                number = self._grow(growing, number, first)
        return growing

    def _grow(self, growing: "_Growing", number: int, first: int) -> int:
        """Add a tag, or all of an element without words; gives the number of the next."""
        tag, end = self._tags[number], self._ends.get(number)
        if end is None:
            growing.close(tag.markup)
            return number + 1
        begin, stop = self._words(number)
        if begin < stop:
            growing.open(begin - first, stop - first, tag.markup)
            return number + 1
        growing.empty(tag.at - first, "".join(one.markup for one in self._tags[number : end + 1]))
        return end + 1


class _Growing:
    """Elements as their tags come."""

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
    """The number of the tag that ends an element, by that of the one that begins it; none where others cross them."""
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
class _Putting:
    """A sentence, its translation, and the translations of its elements alone."""

    sentence: str
    translation: str
    alone: dict[Element, str]

    def html(self, element: Element, place: Place) -> str:
        """The stretch of the translation that an element was given, with the elements within."""
        places = self._places(element, place)
        made, at = "", place[0]
        for one in sorted(element.inside, key=places.__getitem__):
            made += self._escaped(at, places[one][0]) + one.before + self.html(one, places[one]) + one.after
            at = places[one][1]
        return made + self._escaped(at, place[1])

    @cached_property
    def _folded(self) -> str:
        return _folded(self.translation)

    def _escaped(self, begin: int, end: int) -> str:
        return html.escape(self.translation[begin:end], quote=False)

    def _places(self, element: Element, place: Place) -> dict[Element, Place]:
        """What is found first, the longest before all; then what has words; tags without words go between."""
        places: dict[Element, Place] = {}
        if not element.inside:
            return places
        room = _Room(self.translation, self._folded, *place)
        shares = {one: _share(one, element, place) for one in element.inside}
        for one in sorted(element.inside, key=lambda one: one.begin - one.end):
            if found := self._find(room, one, shares[one]):
                places[one] = found
        for one in element.inside:
            if one not in places and one.begin < one.end and (words := room.words_at(*shares[one])):
                places[one] = words
        return {one: places.get(one) or room.gap_at(shares[one][0]) for one in element.inside}

    def _find(self, room: "_Room", one: Element, share: Place) -> Place | None:
        """Its translation, or its very text as names and numbers have it; part of a word only if it was one."""
        text = self.sentence[one.begin : one.end]
        edges = tuple(bool(_EDGE.match(self.sentence, at)) for at in (one.begin, one.end))
        for words in (self.alone.get(one, ""), text):
            phrase = words.strip().rstrip(_MARKS).rstrip()
            if phrase and (found := room.find(phrase, edges, share[0])):
                return found
        return room.find(text, (False, False), share[0]) if text and not text.strip(_MARKS) else None


def _share(one: Element, around: Element, place: Place) -> Place:
    """Where an element would be if a translation had its words at the same places."""
    scale = (place[1] - place[0]) / max(1, around.end - around.begin)
    begin, end = (place[0] + round((at - around.begin) * scale) for at in (one.begin, one.end))
    return begin, end


class _Room:
    """A stretch of a translation, and which of its characters have a tag: looked for first, then words, then gaps."""

    def __init__(self, text: str, folded: str, begin: int, end: int) -> None:
        self._text, self._folded, self._begin, self._end = text, folded, begin, end
        self._owners = [0] * len(text)  # 0: nobody's
        self._owned = 0
        self._starts: dict[tuple[str, tuple[bool, ...]], list[int]] = {}

    def find(self, phrase: str, edges: tuple[bool, ...], near: int) -> Place | None:
        """The nearest place of a phrase that is free."""
        if (phrase, edges) not in self._starts:
            self._starts[phrase, edges] = list(self._occurrences(_folded(phrase), edges))
        starts = self._starts[phrase, edges]
        while starts:
            begin = starts.pop(_nearest(starts, near))
            if self._is_free(begin, begin + len(phrase)):
                return self._own(begin, begin + len(phrase))
        return None

    def words_at(self, begin: int, end: int) -> Place | None:
        """The free words there, or the nearest one; none if all have a tag."""
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
        place = self._own(words[low][0], words[high][1])
        del words[low : high + 1], middles[low : high + 1]
        return place

    def gap_at(self, near: int) -> Place:
        """The nearest place between words where no tag is."""
        at = self._gaps[_nearest(self._gaps, near)]
        return at, at

    @cached_property
    def _words(self) -> list[Place]:
        words = [word.span() for word in _WORD.finditer(self._text, self._begin, self._end)]
        return [word for word in words if self._is_free(*word)]

    @cached_property
    def _middles(self) -> list[int]:
        return [first + last for first, last in self._words]  # twice as far, to be whole numbers

    @cached_property
    def _gaps(self) -> list[int]:
        starts = [word.start() for word in _WORD.finditer(self._text, self._begin, self._end)]
        between = [at for at in starts if at > self._begin and not self._is_tagged(at)]
        return [self._begin, *between, self._end]

    def _is_tagged(self, at: int) -> bool:
        return self._owners[at] > 0 and self._owners[at - 1] == self._owners[at]

    def _is_free(self, begin: int, end: int) -> bool:
        return not any(self._owners[begin:end])

    def _own(self, begin: int, end: int) -> Place:
        self._owned += 1
        self._owners[begin:end] = [self._owned] * (end - begin)
        return begin, end

    def _occurrences(self, phrase: str, edges: tuple[bool, ...]) -> Iterator[int]:
        """Where it is, with the edge of a word where one is wanted."""
        begin = self._folded.find(phrase, self._begin, self._end)
        while begin >= 0:
            sides = zip(edges, (begin, begin + len(phrase)), strict=True)
            if all(_EDGE.match(self._text, at) for wanted, at in sides if wanted):
                yield begin
            begin = self._folded.find(phrase, begin + 1, self._end)


def _nearest(numbers: Sequence[int], wanted: int) -> int:
    """Where the number nearest to the wanted one is, in numbers that ascend."""
    above = bisect_left(numbers, wanted)
    return min((at for at in (above, above - 1) if 0 <= at < len(numbers)), key=lambda at: abs(numbers[at] - wanted))


def _folded(text: str) -> str:
    """Without regard to case, and as long as it was."""
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)
