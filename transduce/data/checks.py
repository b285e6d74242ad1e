"""Warnings about the data of a new run: each has a count and says what to do.

Nothing is refused here. This module knows scans: samples of both corpora, and which validation pairs are in the training data.
"""

from collections.abc import Iterator, Sequence

from transduce.config import DataConfig
from transduce.data.scanning import Scan
from transduce.data.trigrams import profile, resembles
from transduce.languages import shorter_code
from transduce.scripts import script_of_language

LEAKED = 0.01  # share of the validation pairs; fewer are normal for short sentences
SEGMENTED = 0.1  # share of the lines
SWAPPED = 0.8  # share of the lines
FEWEST_LINES = 10  # with fewer, nothing is said about swapped files
PROFILE_LINES = 2_000

_NAMES = {"Kana": ("Japanese", "ja"), "Han": ("Chinese", "zh")}
_MARKS = {  # signs of texts that were segmented before, and how to undo it
    "@@": ("@@ ", "they are already split into subwords; give raw text: sed -r 's/@@( |$)//g' undoes the split"),
    "\u2581": (
        "\u2581",
        "they are already split by sentencepiece; give raw text: sed 's/ //g; s/\u2581/ /g' undoes the split",
    ),
}


def warnings(train: Scan, valid: Scan, data: DataConfig) -> list[str]:
    """Everything that people should know before they spend time on this run."""
    found = [*_leaked(train, valid), *_segmented(train, "training"), *_segmented(valid, "validation")]
    return [f"warning: {text}" for text in [*found, *_wrong_languages(train, data), *_swapped(train, valid)]]


def _leaked(train: Scan, valid: Scan) -> Iterator[str]:
    pairs = list(zip(*valid.sample, strict=True))
    count = sum(pair in train.found for pair in pairs)
    if count > LEAKED * len(pairs):
        checked = "" if len(pairs) == valid.pairs else " that were checked"
        yield (
            f"{count:,} of {len(pairs):,} validation pairs{checked} are also training pairs, so scores will be too high: "
            "remove them from one of the two, or omit --valid to hold out other pairs"
        )


def _segmented(scan: Scan, name: str) -> Iterator[str]:
    for side, lines in zip(("sources", "targets"), scan.sample, strict=True):
        for mark, (sought, remedy) in _MARKS.items():
            count = sum(sought in line or line.endswith(mark) for line in lines)
            if count > SEGMENTED * len(lines):
                yield f"{count:,} of {len(lines):,} {name} {side} that were checked contain '{mark}': {remedy}"


def _wrong_languages(train: Scan, data: DataConfig) -> Iterator[str]:
    """Languages that contradict the script of the texts, or that are missing although the score depends on them."""
    source, target = train.source.script, train.target.script
    if data.languages:
        yield from _long_codes(data)
        first, second = map(script_of_language, data.languages)
        if first != second and (source, target) == (second, first):
            yield (
                f"--languages says {' to '.join(data.languages)}, but the sources of these {train.pairs:,} pairs are "
                f"in the script of {data.languages[1]} and the targets in the script of {data.languages[0]}: swap the two "
                "languages or the two files"
            )
    elif target in _NAMES and data.task == "translation":
        name, code = _NAMES[target]
        yield (
            f"the targets of these {train.pairs:,} pairs look {name}, but no languages are given, so BLEU cannot use "
            f"its tokenizer and chrF is the main score: add --languages SOURCE {code}"
        )


def _long_codes(data: DataConfig) -> Iterator[str]:
    """Codes of three letters are not replaced: they may be keys or names of columns in the data."""
    given, usual = " ".join(data.languages), " ".join(map(shorter_code, data.languages))
    if usual != given and data.task == "translation":
        yield (
            f"--languages {given}: clients of the server and other programs call these languages {usual}: use --languages "
            f"{usual}, unless the others are keys or names of columns in your data"
        )


def _swapped(train: Scan, valid: Scan) -> Iterator[str]:
    """Validation files in the opposite order of the training files, judged by character trigrams of both sides."""
    source, target = (profile(_some(side)) for side in train.sample)
    lines = list(zip(*map(_some, valid.sample), strict=True))
    count = sum(resembles(one, target, source) and resembles(other, source, target) for one, other in lines)
    if len(lines) >= FEWEST_LINES and count > SWAPPED * len(lines):
        yield (
            f"{count:,} of {len(lines):,} validation pairs that were checked have their sides in the opposite order of "
            "the training pairs: swap the two files after --valid (or after --train)"
        )


def _some(lines: Sequence[str]) -> Sequence[str]:
    return lines[:: max(1, len(lines) // PROFILE_LINES)]
