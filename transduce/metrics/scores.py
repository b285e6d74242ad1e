"""Scores of outputs against references, by the names of metrics, each with its signature. Sees only strings."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from transduce.errors import DataError, SettingError
from transduce.metrics.error_rates import (
    ERROR_RATES,
    PRINTED,
    TRANSCRIPT_RATES,
    TRANSCRIPT_TITLES,
    SymbolUnits,
    count_errors,
    count_transcript_errors,
    error_rate_signature,
    transcript_signature,
)
from transduce.metrics.sacrebleu_metrics import (
    SACREBLEU,
    count_edit_rate,
    reference_streams,
    sacrebleu_metric,
    translation_metrics,
)

METRICS = (*SACREBLEU, *ERROR_RATES, *TRANSCRIPT_RATES)
SYMBOL_METRICS = ("token-error-rate", "sequence-error-rate", "exact-match", "edit-distance")
PRONUNCIATION_METRICS = ("per", "wer", "exact-match")
TRANSCRIPT_METRICS = tuple(TRANSCRIPT_RATES)
# What is printed of the metrics of a task: not a share and 100 minus it. Shared tasks on inflection report the first two.
PRINTED_METRICS = {
    SYMBOL_METRICS: ("exact-match", "edit-distance", "token-error-rate"),
    PRONUNCIATION_METRICS: ("per", "wer"),
}


@dataclass(frozen=True)
class Score:
    """A score with the signature that makes it comparable to others."""

    name: str
    value: float
    signature: str
    higher_is_better: bool
    printed_as: str = ""  # if people should read another name

    def __str__(self) -> str:
        return f"{self.printed_as or self.name} {self.value:.2f}"


@dataclass(frozen=True)
class Scores:
    """The scores of a set of outputs, the main one first: BLEU for translations, an error rate for symbols.

    `printed` are those that people read, if not all of them.
    """

    all: tuple[Score, ...]
    printed: tuple[Score, ...] = ()

    @property
    def main(self) -> Score:
        """The score that validation, early stopping and the choice of the best checkpoint use."""
        return self.all[0]

    def __str__(self) -> str:
        return "  ".join(str(score) for score in self.printed or self.all)

    def with_signatures(self) -> str:
        """One line per score, with its signature, as reported in papers."""
        return "\n".join(f"{score} ({score.signature})" for score in self.printed or self.all)

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


def check_metrics(names: Iterable[str]) -> None:
    """Refuse the name of an unknown metric."""
    for name in names:
        if name not in METRICS:
            raise SettingError(f"unknown metric '{name}': choose from {', '.join(METRICS)}")


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
    printed: Iterable[str] = (),
) -> Scores:
    """Compute the named metrics, in this order; references[i] are those of hypotheses[i].

    `language` selects BLEU's tokenizer, and `units` what the error rates count. `merged` adds to every signature that the
    references of equal sources were merged. `printed` are the metrics to print, if not all of them.
    """
    _check(hypotheses, references)
    check_metrics(names)
    rates = _error_rates(hypotheses, references, units) if set(names) & ERROR_RATES.keys() else {}

    def score(name: str) -> Score:
        if name in TRANSCRIPT_RATES:
            return _transcript_rate(name, hypotheses, references)
        return rates[name] if name in rates else _sacrebleu(name, hypotheses, references, language)

    with ThreadPoolExecutor() as pool:  # TER runs in other processes; the other metrics run meanwhile
        found = list(pool.map(score, dict.fromkeys(names)))
    more = "|refs:merged" if merged else ""
    scores = {
        name: replace(one, signature=one.signature + more)
        for name, one in zip(dict.fromkeys(names), found, strict=True)
    }
    return Scores(tuple(scores.values()), tuple(scores[name] for name in printed))


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str = "", ter: bool = True
) -> Scores:
    """Corpus BLEU, chrF and TER, equal to those of the sacrebleu command."""
    return score_outputs(hypotheses, references, translation_metrics(language, references, ter), language=language)


def _sacrebleu(name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str) -> Score:
    """A metric, equal to that of the sacrebleu command."""
    if name == "ter":
        rate = count_edit_rate(hypotheses, references, language)
        return Score("TER", rate.score, rate.signature, higher_is_better=False)
    metric = sacrebleu_metric(name, references, language)
    result = metric.corpus_score(list(hypotheses), reference_streams(references))
    # The signature is complete only after scoring: it includes the number of references.
    return Score(result.name, float(result.score), str(metric.get_signature()), higher_is_better=True)


def _error_rates(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], units: SymbolUnits
) -> dict[str, Score]:
    """Error rates in percent, and the mean edit distance; tokens are separated by whitespace ("word") or single characters ("char").

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
    values["edit-distance"] = edits / len(hypotheses)
    signature = error_rate_signature(references, units)
    return {
        name: Score(title, values.get(name, of_tokens), signature, name == "exact-match", PRINTED.get(name, ""))
        for name, title in ERROR_RATES.items()
    }


def _transcript_rate(name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Word or character error rate of transcripts in percent: edits divided by the length of the references."""
    counts = count_transcript_errors(hypotheses, references, TRANSCRIPT_RATES[name])
    edits, tokens = (sum(count[column] for count in counts) for column in (0, 1))
    signature = transcript_signature(references, TRANSCRIPT_RATES[name])
    return Score(TRANSCRIPT_TITLES[name], 100 * edits / max(tokens, 1), signature, higher_is_better=False)


def _check(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses)} outputs but references for {len(references)}: each output needs references")
    if not hypotheses:
        raise DataError("no outputs to score: the test set is empty")
    if bare := next((number for number, accepted in enumerate(references, start=1) if not accepted), 0):
        raise DataError(f"output {bare} has no reference")
