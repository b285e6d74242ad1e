"""The part of the examination that `transduce train` does by itself: rules about single pairs, on a sample of the training data.

Takes a fraction of a second, however large the corpus is. What `train` reports already (empty sides, carriage returns, byte order
marks, leaked validation pairs, swapped files) is not repeated.
"""

from transduce.config import DataConfig
from transduce.data import Scan
from transduce.diagnosis.analysis import Block, Context, Place, Side
from transduce.diagnosis.characters import character_rules
from transduce.diagnosis.findings import Finding, ranked
from transduce.diagnosis.markup import MARKUP_RULES
from transduce.diagnosis.pairs import PAIR_RULES
from transduce.diagnosis.rules import Rule, RuleAnalysis
from transduce.diagnosis.thresholds import thresholds

SAMPLED = 20_000  # pairs
_REPORTED_ALREADY = {"empty_sides", "carriage_returns", "byte_order_marks"}


def quick_findings(scan: Scan, data: DataConfig) -> list[str]:
    """One line for each finding that is more than a note."""
    block = _block(scan)
    context = Context("train", data.languages, thresholds((), [block], {}))
    analysis = RuleAnalysis("quick", _rules(data.task), context)
    analysis.add(block.place, analysis.observe(block))
    return [_line(one, len(block)) for one in ranked(analysis.finish()) if one.severity != "note"]


def _rules(task: str) -> list[Rule]:
    every = (*character_rules(), *MARKUP_RULES, *PAIR_RULES)
    suitable = [rule for rule in every if task == "translation" or not rule.sentences]
    return [rule for rule in suitable if rule.name not in _REPORTED_ALREADY]


def _block(scan: Scan) -> Block:
    stride = max(1, -(-len(scan.sample[0]) // SAMPLED))
    source, target = (side[::stride] for side in scan.sample)
    return Block(Place("train", 0, ("sample",), range(1, len(source) + 1)), _side(source), _side(target))


def _side(texts: list[str]) -> Side:
    return Side("".join(text.replace("\n", "\u2028") + "\n" for text in texts).encode())


def _line(finding: Finding, checked: int) -> str:
    first, _, others = finding.explanation.partition(" ")
    explanation = f"{first if first.isupper() else first.lower()} {others}".rstrip(".")
    return (
        f"warning: {finding.count:,} of {checked:,} training pairs that were checked: {explanation}: see `transduce doctor`, "
        f"which lists them ({finding.rule})"
    )
