"""ARPA files: n-gram models as text, as SRILM, KenLM and Kaldi write and read them.

A line is `log10 probability<TAB>words[<TAB>log10 back-off weight]`. Knows models and files, and nothing of how a model was estimated.
"""

import math
from collections.abc import Iterator
from pathlib import Path

from transduce.errors import DataError
from transduce.files import write_durably
from transduce.ngrams.model import NEVER, UNKNOWN_WORD, Ngram, NgramModel

_TEN = math.log(10)


def write_arpa(model: NgramModel, path: str | Path) -> None:
    """Write a model; equal models give equal bytes."""
    write_durably(Path(path), ("\n".join(_lines(model)) + "\n").encode())


def _lines(model: NgramModel) -> Iterator[str]:
    by_length: list[list[Ngram]] = [
        sorted(n for n in model.probabilities if len(n) == size + 1) for size in range(model.order)
    ]
    yield "\\data\\"
    yield from (f"ngram {size}={len(ngrams)}" for size, ngrams in enumerate(by_length, 1))
    for size, ngrams in enumerate(by_length, 1):
        yield from ("", f"\\{size}-grams:")
        for ngram in ngrams:
            backoff = f"\t{model.backoffs[ngram] / _TEN:.7f}" if ngram in model.backoffs else ""
            yield f"{model.probabilities[ngram] / _TEN:.7f}\t{' '.join(ngram)}{backoff}"
    yield from ("", "\\end\\")


def read_arpa(path: str | Path) -> NgramModel:
    """Read a model; a model without `<unk>` gives unknown words no probability."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    probabilities: dict[Ngram, float] = {}
    backoffs: dict[Ngram, float] = {}
    length, ended = 0, False
    for number, line in enumerate(map(str.strip, lines), 1):
        if line.startswith("\\"):
            length, ended = _section(line, f"{path}:{number}"), line == "\\end\\"
        elif line and length:
            ngram, probability, backoff = _entry(line, length, f"{path}:{number}")
            probabilities[ngram] = probability
            if backoff:
                backoffs[ngram] = backoff
    if not ended or not probabilities:
        raise DataError(f"{path}: not a complete ARPA file: it must have n-grams and end with \\end\\")
    probabilities.setdefault((UNKNOWN_WORD,), NEVER)
    return NgramModel(max(map(len, probabilities)), probabilities, backoffs)


def _section(line: str, where: str) -> int:
    """The length of the n-grams that follow a line such as `\\2-grams:`; 0 where none follow."""
    if line in ("\\data\\", "\\end\\"):
        return 0
    length = line[1:].removesuffix("-grams:")
    if not length.isdecimal() or not line.endswith("-grams:") or int(length) < 1:
        raise DataError(f"{where}: '{line[:40]}' is no section of an ARPA file")
    return int(length)


def _entry(line: str, length: int, where: str) -> tuple[Ngram, float, float]:
    fields = line.split()
    try:
        if not length + 1 <= len(fields) <= length + 2:
            raise ValueError
        weight = float(fields[length + 1]) if len(fields) > length + 1 else 0.0
        probability = float(fields[0])
    except ValueError:
        raise DataError(
            f"{where}: a line must be: log10 probability, {length} words, and optionally a back-off weight"
        ) from None
    if not (probability <= 0 and math.isfinite(probability) and math.isfinite(weight)):
        raise DataError(f"{where}: {fields[0]} is not the logarithm of a probability")
    return tuple(fields[1 : length + 1]), probability * _TEN, weight * _TEN
