"""What looks wrong about the data of a new run: one warning each, with a count and what to do about it.

Nothing is refused here. Knows scans: samples of both corpora, and which validation pairs the training data hold.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from transduce.config import DataConfig
from transduce.data.scanning import Scan
from transduce.scripts import script_of_language

LEAKED = 0.01  # of the validation pairs: fewer are what short sentences have in common anyway
SEGMENTED = 0.1  # of the lines
SWAPPED = 0.8  # of the lines
FEWEST_LINES = 10  # to judge whether files are swapped
PROFILE_LINES = 2_000

_NAMES = {"Kana": ("Japanese", "ja"), "Han": ("Chinese", "zh")}
_MARKS = {  # of texts that were segmented already, and how to undo it
    "@@": ("@@ ", "they were split into subwords already; give raw text: sed -r 's/@@( |$)//g' undoes it"),
    "\u2581": (
        "\u2581",
        "they were split by sentencepiece already; give raw text: sed 's/ //g; s/\u2581/ /g' undoes it",
    ),
}


def warnings(train: Scan, valid: Scan, data: DataConfig) -> list[str]:
    """Everything that people should look at before they spend time on this run."""
    found = [*_leaked(train, valid), *_segmented(train, "training"), *_segmented(valid, "validation")]
    return [f"warning: {text}" for text in [*found, *_wrong_languages(train, data), *_swapped(train, valid)]]


def _leaked(train: Scan, valid: Scan) -> Iterator[str]:
    pairs = list(zip(*valid.sample, strict=True))
    count = sum(pair in train.found for pair in pairs)
    if count > LEAKED * len(pairs):
        looked_at = "" if len(pairs) == valid.pairs else " looked at"
        yield (
            f"{count:,} of {len(pairs):,} validation pairs{looked_at} are training pairs too, so that scores will be too "
            "good: take them out of one of the two, or leave out --valid to have others held out"
        )


def _segmented(scan: Scan, name: str) -> Iterator[str]:
    for side, lines in zip(("sources", "targets"), scan.sample, strict=True):
        for mark, (sought, remedy) in _MARKS.items():
            count = sum(sought in line or line.endswith(mark) for line in lines)
            if count > SEGMENTED * len(lines):
                yield f"{count:,} of {len(lines):,} {name} {side} looked at contain '{mark}': {remedy}"


def _wrong_languages(train: Scan, data: DataConfig) -> Iterator[str]:
    """`--languages` that contradict the scripts, or that are missing where the score depends on them."""
    source, target = train.source.script, train.target.script
    if data.languages:
        first, second = map(script_of_language, data.languages)
        if first != second and (source, target) == (second, first):
            yield (
                f"--languages says {' to '.join(data.languages)}, but the sources of these {train.pairs:,} pairs are "
                f"written as {data.languages[1]} is and the targets as {data.languages[0]} is: exchange the two languages "
                "or the two files"
            )
    elif target in _NAMES and data.task == "translation":
        name, code = _NAMES[target]
        yield (
            f"the targets of these {train.pairs:,} pairs look {name}, but no languages are given, so that BLEU cannot use "
            f"the tokenizer for it and chrF is the main score: add --languages SOURCE {code}"
        )


def _swapped(train: Scan, valid: Scan) -> Iterator[str]:
    """Validation files in the other order than the training files, by which side their character trigrams resemble."""
    source, target = (_profile(_some(side)) for side in train.sample)
    lines = list(zip(*map(_some, valid.sample), strict=True))
    count = sum(_resembles(one, target, source) and _resembles(other, source, target) for one, other in lines)
    if len(lines) >= FEWEST_LINES and count > SWAPPED * len(lines):
        yield (
            f"{count:,} of {len(lines):,} validation pairs looked at are the other way round than the training pairs: "
            "exchange the two files after --valid (or after --train)"
        )


def _some(lines: Sequence[str]) -> Sequence[str]:
    return lines[:: max(1, len(lines) // PROFILE_LINES)]


def _trigrams(line: str) -> list[str]:
    text = f" {line[:200]} "
    return [text[at : at + 3] for at in range(len(text) - 2)]


def _profile(lines: Sequence[str]) -> Mapping[str, float]:
    """The logarithm of how often each trigram occurs; the empty one stands for those that never do."""
    counts = Counter(trigram for line in lines for trigram in _trigrams(line))
    every = math.log(counts.total() + len(counts) + 1)
    return {"": -every} | {trigram: math.log(count + 1) - every for trigram, count in counts.items()}


def _resembles(line: str, one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether a line is more probable by the first profile than by the second."""
    return sum(one.get(t, one[""]) - other.get(t, other[""]) for t in _trigrams(line)) > 0
