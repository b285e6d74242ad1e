"""Metrics: BLEU, chrF and TER by sacreBLEU, error rates and exact match, each with a signature. Sees only strings.

Import `measures` by name: it needs numpy, and this package does not.
"""

from transduce.metrics.error_rates import (
    ERROR_RATES,
    TRANSCRIPT_RATES,
    TRANSCRIPT_TITLES,
    SymbolUnits,
    are_phonemes,
    count_errors,
    count_transcript_errors,
    edit_distance,
    error_rate_signature,
    normalised_transcript,
    transcript_signature,
)
from transduce.metrics.sacrebleu_metrics import (
    BLEU_TOKENIZERS,
    SACREBLEU,
    bleu_tokenizer,
    check_tokenizer,
    count_edit_rate,
    reference_streams,
    sacrebleu_metric,
    translation_metrics,
)
from transduce.metrics.scores import (
    METRICS,
    PRINTED_METRICS,
    PRONUNCIATION_METRICS,
    SYMBOL_METRICS,
    TRANSCRIPT_METRICS,
    Score,
    Scores,
    check_metrics,
    group_references,
    score_outputs,
    translation_scores,
)

__all__ = [
    "BLEU_TOKENIZERS",
    "ERROR_RATES",
    "METRICS",
    "PRINTED_METRICS",
    "PRONUNCIATION_METRICS",
    "SACREBLEU",
    "SYMBOL_METRICS",
    "TRANSCRIPT_METRICS",
    "TRANSCRIPT_RATES",
    "TRANSCRIPT_TITLES",
    "Score",
    "Scores",
    "SymbolUnits",
    "are_phonemes",
    "bleu_tokenizer",
    "check_metrics",
    "check_tokenizer",
    "count_edit_rate",
    "count_errors",
    "count_transcript_errors",
    "edit_distance",
    "error_rate_signature",
    "group_references",
    "normalised_transcript",
    "reference_streams",
    "sacrebleu_metric",
    "score_outputs",
    "transcript_signature",
    "translation_metrics",
    "translation_scores",
]
