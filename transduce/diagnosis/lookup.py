"""Fetching a few pairs by their numbers, for findings that are known only after everything has been read.

The files are read again up to the last of these pairs, so callers that can choose ask for early ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from transduce.data import Corpus
from transduce.diagnosis.findings import Example, Role
from transduce.diagnosis.reading import PortionParser, PortionReader


@dataclass(frozen=True)
class Lookup:
    """The pairs of one corpus by number."""

    role: Role
    corpus: Corpus

    def pairs(self, numbers: Iterable[int], side: int = 0) -> dict[int, Example]:
        """The pairs with these numbers, in order, each as an example to look at in the file of this side."""
        wanted = sorted(set(numbers))
        found: dict[int, Example] = {}
        parse, first = PortionParser(self.role, self.corpus), 0
        for portion in PortionReader(self.role, self.corpus):
            if len(found) == len(wanted):
                break
            block = parse(portion).block
            here = [number for number in wanted if first <= number < first + len(block)]
            found |= {number: block.example(number - first, side=side) for number in here}
            first += len(block)
        return found
