"""The rules by which `--write` removes pairs: the default rules except those of `--keep`, or those of `--only`.

Knows the names of the rules, and no pairs.
"""

import difflib
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from transduce.diagnosis.characters import character_rules
from transduce.diagnosis.drift import RULE as DRIFT
from transduce.diagnosis.duplicates import RULES as DUPLICATES
from transduce.diagnosis.findings import Finding, Role
from transduce.diagnosis.language import SWAPPED, WRONG
from transduce.diagnosis.leaks import KINDS, rule_of
from transduce.diagnosis.markup import MARKUP_RULES
from transduce.diagnosis.near_duplicates import RULE as NEAR_DUPLICATES
from transduce.diagnosis.pairs import PAIR_RULES
from transduce.diagnosis.script import RULE as WRONG_SCRIPT
from transduce.diagnosis.structure import DIFFERENT_LENGTHS, MALFORMED_LINES
from transduce.errors import SettingError

_HELD_OUT: tuple[Role, ...] = ("valid", "test")
_RULES = (*character_rules(), *MARKUP_RULES, *PAIR_RULES)
STRUCTURE = frozenset({DIFFERENT_LENGTHS, MALFORMED_LINES})
LEAKS = frozenset(rule_of(kind, role) for kind in KINDS for role in _HELD_OUT)
BY_DEFAULT = frozenset(
    {*STRUCTURE, *LEAKS, DUPLICATES["pair"], DRIFT, SWAPPED, WRONG, WRONG_SCRIPT, "mojibake"}
    | {rule.name for rule in _RULES if rule.removes}
)
SLOW = frozenset({SWAPPED, WRONG, NEAR_DUPLICATES})  # `--fast` leaves them out
REMOVABLE = BY_DEFAULT | {rule.name for rule in _RULES} | {*DUPLICATES.values(), NEAR_DUPLICATES}


@dataclass(frozen=True)
class Removal:
    """The choice of the rules by which pairs are left out."""

    keep: frozenset[str] = field(default_factory=frozenset)  # rules that only report
    only: frozenset[str] = field(default_factory=frozenset)  # empty: all that leave pairs out by default

    def __post_init__(self) -> None:
        if self.keep and self.only:
            raise SettingError(
                "give --only with the rules that leave pairs out, or --keep with those that do not, but not both"
            )
        for option, names in (("--keep", self.keep), ("--only", self.only)):
            for name in sorted(names - REMOVABLE):
                close = difflib.get_close_matches(name, REMOVABLE, n=1)
                hint = (
                    f"did you mean {close[0]}?"
                    if close
                    else "the report and docs/how-to/checking-data.md list the rules"
                )
                raise SettingError(f"{option} {name}: no such rule, or none that can leave pairs out; {hint}")

    def removes(self, rule: str) -> bool:
        return rule in self.only if self.only else rule in BY_DEFAULT - self.keep

    def advised(self, finding: Finding, concerned: Collection[str]) -> Finding:
        """The finding with a sentence on what `--write` does; `concerned` are the rules that know their training pairs."""
        about_training = finding.corpus == "train" or finding.rule in LEAKS
        if not about_training and finding.rule in BY_DEFAULT:
            return replace(finding, advice=f"{finding.advice} --write never changes validation or test data.")
        if about_training and finding.rule in concerned and self.removes(finding.rule):
            return replace(finding, advice=f"{finding.advice} --write DIR leaves these training pairs out.")
        return finding
