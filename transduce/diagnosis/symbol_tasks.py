"""Findings about words and symbols, such as pronunciations and inflected forms, to which rules about sentences do not apply.

Which task the data are for is known when everything has been read. Knows findings, and no pairs.
"""

from collections.abc import Sequence
from dataclasses import replace

from transduce.diagnosis.duplicates import RULES as DUPLICATES
from transduce.diagnosis.findings import Finding
from transduce.diagnosis.markup import MARKUP_RULES
from transduce.diagnosis.near_duplicates import RULE as NEAR_DUPLICATES
from transduce.diagnosis.pairs import PAIR_RULES

ABOUT_SENTENCES = {rule.name for rule in (*MARKUP_RULES, *PAIR_RULES) if rule.sentences} | {NEAR_DUPLICATES}
_REWORDED = {  # explanation and advice; both are normal here
    DUPLICATES["source"]: (
        "Sources that occur earlier with another target, such as words with several pronunciations or forms.",
        "Keep them if all their targets are right.",
    ),
    DUPLICATES["target"]: (
        "Targets that occur earlier with another source, such as words that sound or look alike.",
        "Nothing needs to be done if that is so.",
    ),
}


def without_sentences(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that make sense for words and symbols, in words that do."""
    return [_reworded(one) for one in findings if one.rule not in ABOUT_SENTENCES]


def _reworded(finding: Finding) -> Finding:
    if finding.rule not in _REWORDED:
        return finding
    explanation, advice = _REWORDED[finding.rule]
    return replace(finding, severity="note", explanation=explanation, advice=advice)
