"""The report as text for people: what was read, the findings in order, and what `transduce train` would do."""

import unicodedata
from collections.abc import Iterator

from transduce.diagnosis.analysis import cut_around
from transduce.diagnosis.findings import Example, Finding, Report, Severity

_HEADINGS: dict[Severity, str] = {"serious": "Serious", "notable": "Worth a look", "note": "Notes"}
_SHOWN: dict[Severity, int] = {"serious": 5, "notable": 3, "note": 1}  # examples
_ROLES = {"train": "training", "valid": "validation", "test": "test"}
_WIDTH = 100  # characters of a text


def summary(report: Report) -> str:
    """The whole report."""
    return "\n".join(_lines(report))


def headline(report: Report) -> str:
    """How many findings there are, such as `3 serious, 5 worth a look, 2 notes`."""
    notes = report.count("note")
    return (
        f"{report.count('serious')} serious, {report.count('notable')} worth a look, {notes} note{'s' * (notes != 1)}"
    )


def _lines(report: Report) -> Iterator[str]:
    sizes = {role: sum(one.pairs for one in report.corpora if one.role == role) for role in _ROLES}
    read = ", ".join(f"{count:,} {_ROLES[role]} pairs" for role, count in sizes.items() if count)
    yield f"{read}, read in {report.reading_seconds:.1f} s"
    yield headline(report)
    for severity, heading in _HEADINGS.items():
        findings = [one for one in report.findings if one.severity == severity]
        if findings:
            yield f"\n{heading}"
        for finding in findings:
            yield from _finding(finding)
    yield from _ranking(report)
    yield from _ahead(report)


def _finding(finding: Finding) -> Iterator[str]:
    count = f"{finding.count:,} ({_percent(finding.share)})" if finding.count else "the whole corpus"
    yield f"  {finding.rule}: {count}, {_ROLES[finding.corpus]} data"
    yield f"    {finding.explanation}"
    yield f"    {finding.advice}"
    for example in finding.examples[: _SHOWN[finding.severity]]:
        characters = example.detail if finding.rule == "unknown_characters" else ""
        yield f"      {_example(example, characters)}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share >= 1e-5 else "under 0.001 %"


def _example(example: Example, characters: str = "") -> str:
    """An example in one line; long texts are cut around the characters that it is about."""
    where = f"{example.file}:{example.line}" if example.line else example.file
    texts = " ||| ".join(_cut(text, characters) for text in (example.source, example.target))
    detail = f" [{_cut(example.detail)}]" if example.detail.strip() else ""
    return f"{where}: {texts}{detail}" if example.source or example.target else f"{where}{detail}"


def _cut(text: str, characters: str = "") -> str:
    """A text as one short line: characters that would disturb the terminal are escaped."""
    plain = "".join(one if _is_harmless(one) else one.encode("unicode_escape").decode() for one in text.strip())
    return cut_around(plain, characters, _WIDTH)


def _is_harmless(character: str) -> bool:
    """Whether a terminal can show a character: printable ones, and spaces of any width."""
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _ranking(report: Report) -> Iterator[str]:
    if report.ranking:
        yield f"\nThe pairs with the highest cross-entropy by the model (--json and --html show {len(report.ranking)})"
    for pair in report.ranking[:10]:
        yield f"  {pair.score:.2f} {pair.file}:{pair.line}: {_cut(pair.source)} ||| {_cut(pair.target)}"


def _ahead(report: Report) -> Iterator[str]:
    minutes = report.minutes
    budget = f"in {minutes:g} minute{'s' * (minutes != 1)}" if minutes else "without a budget in minutes"
    yield f"\nWhat `transduce train` would do {budget}"
    for reason in report.reasons:
        yield f"  {reason}"
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in report.left_out.items())
    yield f"  pairs left out: {left_out or 'none'}"
    limits = ", ".join(f"{name} {one.value:.4g}" for name, one in report.thresholds.items())
    origins = " and ".join(sorted({one.origin for one in report.thresholds.values()}))
    yield f"\nThresholds ({origins}; change them with --threshold NAME=VALUE): {limits}"
