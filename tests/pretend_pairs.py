"""Pretend sentence pairs: random words, and "translations" whose words, digits and punctuation follow the source's."""

import random
from pathlib import Path

from transduce.data import Corpus
from transduce.diagnosis.analysis import Block, Place, Side
from transduce.diagnosis.lookup import Lookup

SYLLABLES = "ba ce di fo gu ha ji ko lu me ni po qui ra se ti vu wa xe yo zu".split()


def pretend_pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Pairs whose two sides have nothing in common but what translations have: length, numbers, punctuation."""
    chance = random.Random(seed)
    dictionary = {"".join(chance.choices(SYLLABLES, k=chance.randint(1, 4))): "" for _ in range(800)}
    for word in dictionary:
        dictionary[word] = "".join(chance.choices(SYLLABLES, k=max(1, len(word) // 2 + chance.randint(-1, 1))))
    words = list(dictionary)
    return [_pair(chance, words, dictionary) for _ in range(count)]


def _pair(chance: random.Random, words: list[str], dictionary: dict[str, str]) -> tuple[str, str]:
    source = chance.choices(words, k=chance.randint(2, 30))
    target = [dictionary[word] for word in source]
    if chance.random() < 0.2:
        number = str(chance.randint(1, 999))
        source.append(number)
        target.insert(0, number)
    mark = chance.choices(".?!", weights=(8, 1, 1))[0]
    return " ".join(source).capitalize() + mark, " ".join(target).capitalize() + mark


def block_of(
    pairs: list[tuple[str, str]], first: int = 0, files: tuple[str, ...] = ("a", "b"), group: int = 0
) -> Block:
    """These pairs as a block of training data; `first` is the number of the first one."""
    place = Place("train", group, files, range(first + 1, first + 1 + len(pairs)), first)
    return Block(place, *(side_of([pair[side] for pair in pairs]) for side in (0, 1)))


def lookup_of(folder: Path, pairs: list[tuple[str, str]]) -> Lookup:
    """These pairs as two files of a folder, `a` and `b`, from which they can be fetched by their numbers."""
    files = str(folder / "a"), str(folder / "b")
    for side, file in enumerate(files):
        Path(file).write_bytes(side_of([pair[side] for pair in pairs]).data)
    return Lookup("train", Corpus((files,)))


def side_of(texts: list[str]) -> Side:
    return Side("".join(f"{text}\n" for text in texts).encode())
