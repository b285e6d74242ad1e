"""The input of a translator: lines, each with an optional prefix, terms and length limit, taken block by block."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from transduce.errors import DataError, SettingError
from transduce.text import EOS
from transduce.translator.forms import LearnedLine

T = TypeVar("T")

LINES_AT_ONCE = 4_096  # lines that are sorted and searched together; this bounds the memory for files of any size


@dataclass(frozen=True)
class LineBlock:
    """A block of lines in the form that the model was trained on, and as ids. Empty lines are not searched."""

    lines: list[LearnedLine]
    ids: Sequence[Any]  # of each line its ids, or the features of a recording
    searched: list[int]  # the indices of the lines that are searched
    limits: list[int]  # for each searched line, the maximum number of tokens of its outputs


@dataclass(frozen=True)
class InputLines:
    """The lines to translate, and the constraints on the outputs of each line."""

    lines: Iterator[str]
    prefixes: Iterator[str] | None
    terms: Iterator[Sequence[str]] | None
    paused: Callable[[], bool] | None
    at_most: Iterator[int] | None = None

    @staticmethod
    def of(
        lines: Iterable[str],
        prefixes: Iterable[str] | None = None,
        terms: Iterable[Sequence[str]] | None = None,
        paused: Callable[[], bool] | None = None,
        at_most: Iterable[int] | None = None,
    ) -> "InputLines":
        if isinstance(lines, str):
            raise TypeError(f"pass a list of strings, not a single string: [{lines!r}]")
        given = iter(lines), None if prefixes is None else iter(prefixes), None if terms is None else iter(terms)
        return InputLines(*given, paused, None if at_most is None else iter(at_most))

    def next_lines(self) -> tuple[list[str], bool]:
        """The next block of lines, and whether it ends early because the next line has not arrived yet."""
        if self.paused is None:
            return list(islice(self.lines, LINES_AT_ONCE)), False
        taken: list[str] = []
        for line in self.lines:
            taken.append(line)
            if len(taken) == LINES_AT_ONCE:
                break
            if self.paused():
                return taken, True
        return taken, False

    def next_prefixes(self, count: int) -> list[str]:
        """The prefixes of the next outputs."""
        return _take(self.prefixes, count, "prefixes")

    def next_terms(self, count: int) -> list[Sequence[str]]:
        """The phrases that each of the next outputs must contain."""
        return _take(self.terms, count, "lines of terms")

    def next_limits(self, count: int) -> list[int]:
        """The maximum number of tokens of each of the next outputs."""
        return _take(self.at_most, count, "length limits")

    def check_exhausted(self) -> None:
        """Refuse prefixes and terms that are left over after the last line: they belong to other lines."""
        for items, what in ((self.prefixes, "prefixes"), (self.terms, "lines of terms")):
            if items is not None and list(islice(items, 1)):
                raise DataError(f"there are more {what} than lines: give exactly one for each line")


def cut(ids: list[int], longest: int) -> list[int]:
    """The ids of a line, or the first of them and `</s>` if there are more than `longest`."""
    return ids if len(ids) <= longest else [*ids[: longest - 1], EOS]


def check_prefixes(numbers: Sequence[int], prefixes: Sequence[Sequence[int]], limits: Sequence[int]) -> None:
    """Refuse prefixes that leave no room for `</s>`; `numbers` are those of their lines."""
    for number, prefix, limit in zip(numbers, prefixes, limits, strict=True):
        if len(prefix) >= limit:
            raise SettingError(
                f"line {number}: its prefix of {len(prefix)} tokens and </s> exceed the length limit of {limit} tokens: shorten the prefix"
            )


def check_lines(lines: Sequence[str]) -> Sequence[str]:
    """The lines, if they are a list of strings."""
    if isinstance(lines, str):
        raise TypeError(f"pass a list of strings, not a single string: [{lines!r}]")
    for line in lines:
        if not isinstance(line, str):
            raise TypeError(f"pass a list of strings: {line!r} is not a string (write features as 'word\\tFEATURES')")
    return lines


def _take(items: Iterator[T] | None, count: int, what: str) -> list[T]:
    taken = list(islice(items, count)) if items is not None else []
    if items is not None and len(taken) != count:
        raise DataError(f"there are fewer {what} than lines: give one for each line (it may be empty)")
    return taken
