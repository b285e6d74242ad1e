"""The part of the examination that `transduce train` does by itself: rules about single pairs and the languages, on a sample of the training data.

Takes about a second, however large the corpus is. Languages are checked only if they are given and lingua is installed. What `train` reports already (empty sides, carriage returns, byte order
marks, leaked validation pairs, swapped files) is not repeated.
"""

from transduce.config import DataConfig
from transduce.data import Scan
from transduce.diagnosis.analysis import Block, Context, Place, Side
from transduce.diagnosis.characters import character_rules
from transduce.diagnosis.detection import contradiction
from transduce.diagnosis.findings import Finding, ranked
from transduce.diagnosis.markup import MARKUP_RULES
from transduce.diagnosis.pairs import PAIR_RULES
from transduce.diagnosis.rules import Rule, RuleAnalysis
from transduce.diagnosis.thresholds import thresholds
from transduce.scripts import script_of_language

SAMPLED = 20_000  # pairs
_REPORTED_ALREADY = {"empty_sides", "carriage_returns", "byte_order_marks"}


def quick_findings(scan: Scan, data: DataConfig) -> list[str]:
    """One line for each finding that is more than a note."""
    block = _block(scan)
    context = Context("train", data.languages, thresholds((), [block], {}))
    analysis = RuleAnalysis("quick", _rules(data.task), context)
    analysis.add(block.place, analysis.observe(block))
    found = [_line(one, len(block)) for one in ranked(analysis.finish()) if one.severity != "note"]
    return [*found, *_wrong_languages(scan, data)]


def _wrong_languages(scan: Scan, data: DataConfig) -> list[str]:
    """A warning if a side is in another language than it should be; with tags, there are several target languages."""
    if data.task != "translation" or not data.languages or data.tags:
        return []
    wrong = contradiction(data.languages, [side[:SAMPLED] for side in scan.sample])
    scripts = set(map(script_of_language, data.languages))
    if not wrong or (wrong.swapped and len(scripts) == 2):  # such swapped files are reported already
        return []
    advice = "swap the two languages or the two files" if wrong.swapped else "correct --languages, or the files"
    return [f"warning: --languages says {' to '.join(data.languages)}, but {wrong.looks}: {advice}"]


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
