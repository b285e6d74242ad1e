"""Placeholders: parts of a text that must survive translation (URLs, numbers, tags) become symbols, and come back afterwards.

Each distinct part of a sentence gets the symbol with its number, so its translation says by itself which part belongs where, in
any order. Knows strings only; `transduce/data` masks pairs to learn from, and the translator masks and restores lines.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

KINDS = {
    "tags": r"</?[a-zA-Z][^<>]*>",
    "urls": r"(?:https?|ftp)://[^\s<>\"]*[^\s<>\".,;:!?'’)\]]|(?<!\w)www\.[^\s<>\"]*[^\s<>\".,;:!?'’)\]]",
    "emails": r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "numbers": r"(?<![\w.,])\d+(?:[.,:/]\d+)*(?!\w)",
}
SYMBOLS = tuple(f"⟦{number}⟧" for number in range(1, 10))  # more parts of a sentence than these stay as they are
_SYMBOL = r"⟦[1-9]⟧"


@dataclass(frozen=True)
class Masked:
    """A text with symbols in place of its parts; the first symbol stands for the first value."""

    text: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Restored:
    """A text with its parts back in place, and how many of them it does not contain."""

    text: str
    lost: int


@dataclass(frozen=True)
class Masker:
    """Masks parts of these kinds; without kinds, every text stays as it is."""

    kinds: tuple[str, ...]

    @cached_property
    def _parts(self) -> "re.Pattern[str]":
        """Any part of these kinds. What looks like one of the symbols is always a part, so that it cannot be mistaken for one."""
        return re.compile("|".join([_SYMBOL, *(KINDS[kind] for kind in KINDS if kind in self.kinds)]))

    def mask(self, line: str) -> Masked:
        """A line to translate."""
        if not self.kinds:
            return Masked(line)
        values = tuple(dict.fromkeys(self._parts.findall(line)))[: len(SYMBOLS)]
        return Masked(self.with_values(line, values), values)

    def mask_pair(self, source: str, target: str) -> tuple[str, str]:
        """A pair to learn from: parts that both sides contain equally often are masked."""
        values = self.shared(source, target)
        return self.with_values(source, values), self.with_values(target, values)

    def shared(self, source: str, target: str) -> tuple[str, ...]:
        """The parts that both sides of a pair contain equally often, in the order of the source."""
        here, there = Counter(self._parts.findall(source)), Counter(self._parts.findall(target))
        return tuple(value for value, count in here.items() if there[value] == count)[: len(SYMBOLS)]

    def with_values(self, text: str, values: Sequence[str]) -> str:
        """A text with the symbols of these values, such as a prefix of the translation of a masked line."""
        symbols = dict(zip(values, SYMBOLS, strict=False))
        return self._parts.sub(lambda part: symbols.get(part[0], part[0]), text) if symbols else text


def restored(text: str, values: Sequence[str]) -> Restored:
    """A translation with the values of a masked line in place of their symbols; symbols of no value are dropped."""
    if not values:
        return Restored(text, 0)
    known = dict(zip(SYMBOLS, values, strict=False))
    whole = re.sub(_SYMBOL, lambda symbol: known.get(symbol[0], ""), text)
    return Restored(whole, sum(symbol not in text for symbol in known))


def widths(text: str, values: Sequence[str]) -> list[int]:
    """How many words each word of a masked text has once its values are restored."""
    return [max(1, len(restored(word, values).text.split())) for word in text.split()]
