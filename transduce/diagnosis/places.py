"""Where pairs are: from the number of a pair to its file and line, and to its texts, which are read from the file again.

An analysis that finds its examples only at the end uses this instead of keeping texts. Knows files and lines, and no rules.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from transduce.data.corpus import READ_ERRORS, open_bytes
from transduce.diagnosis.analysis import Place, shown
from transduce.diagnosis.findings import Example


class Places:
    """The places of all blocks of one corpus, in order."""

    def __init__(self) -> None:
        self._places: list[Place] = []

    def add(self, place: Place) -> None:
        if len(place):
            self._places.append(place)

    def of(self, pair: int) -> tuple[tuple[str, ...], int]:
        """The files and the line of a pair, given its number within the corpus."""
        place = self._places[bisect_right(self._places, pair, key=lambda one: one.first_pair) - 1]
        return place.files, place.lines[pair - place.first_pair]

    def examples(self, details: Mapping[int, str]) -> tuple[Example, ...]:
        """The pairs with these numbers, each with its detail. Of a table, the whole line is shown."""
        where = {pair: self.of(pair) for pair in details}
        files = {file for files, _ in where.values() for file in files}
        texts = {file: lines_at(file, [line for files, line in where.values() if file in files]) for file in files}
        return tuple(_example(*where[pair], texts, detail) for pair, detail in details.items())


def _example(files: tuple[str, ...], line: int, texts: Mapping[str, Mapping[int, str]], detail: str) -> Example:
    source, *target = (texts[file].get(line, "") for file in files)
    return Example(files[0], line, source, "".join(target), detail)


def lines_at(path: str, numbers: Iterable[int]) -> dict[int, str]:
    """These lines of a file, counted from 1; none if the file cannot be read a second time."""
    wanted = set(numbers)
    found: dict[int, str] = {}
    try:
        with open_bytes(path) as file:
            for number, line in enumerate(file, 1):
                if number in wanted:
                    found[number] = shown(line.rstrip(b"\r\n"))
                    if len(found) == len(wanted):
                        break
    except READ_ERRORS:
        pass
    return found
