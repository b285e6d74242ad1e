"""A comparison as text for people: a table for each metric, where the systems differ, and a few sentences."""

from collections.abc import Iterator, Sequence

from transduce.comparison.result import Comparison, GroupResult, MetricResult, PairResult, SystemScore
from transduce.comparison.significance import Interval

MOST_NGRAMS = 5  # of each direction
MOST_SENTENCES = 3  # of each direction
TESTS = {"bootstrap": "paired bootstrap", "randomization": "approximate randomization"}
Row = tuple[str, ...]


def report(found: Comparison) -> str:
    """The whole report."""
    return "\n".join(_lines(found))


def _lines(found: Comparison) -> Iterator[str]:
    yield (
        f"{found.sentences:,} sentences; baseline: {found.names[0]}; {TESTS[found.test]} with {found.samples:,} samples"
    )
    for metric in found.metrics:
        yield ""
        yield from _metric_lines(metric)
    yield ""
    yield from found.sentences_about()
    if found.caveat:
        yield found.caveat
    for number, pair in enumerate(found.pairs, start=1):
        yield ""
        yield from _pair_lines(found, pair, number)
    yield ""
    yield from _habit_lines(found)
    yield from found.notes


# --- scores ---


def _metric_lines(metric: MetricResult) -> Iterator[str]:
    header = (metric.title, "score", "95% interval", "difference", "95% interval", "p", "corrected", "")
    yield from table([header, *(_score_row(metric, system) for system in metric.systems)])
    for system in metric.systems:
        if len(system.seeds) > 1:
            scores = ", ".join(f"{score:.2f}" for score in system.seeds)
            yield f"  seeds of {system.name}: {scores} (spread {system.spread:.2f})"
    yield f"  {metric.signature}"


def _score_row(metric: MetricResult, system: SystemScore) -> Row:
    score = (system.name, f"{system.score:.2f}", interval(system.interval))
    if not (test := system.test):
        return (*score, "", "", "", "", "baseline")
    # sacreBLEU's p of two equal systems is the smallest there is, which says nothing about them.
    p_values = ("", "") if test.is_equal else (f"{test.p:.4f}", f"{test.p_corrected:.4f}")
    return (*score, f"{test.difference:+.2f}", interval(test.interval, signed=True), *p_values, metric.verdict(system))


def interval(found: Interval | None, signed: bool = False) -> str:
    """An interval in brackets; empty if there is none."""
    if found is None:
        return ""
    return f"[{found.low:+.2f}, {found.high:+.2f}]" if signed else f"[{found.low:.2f}, {found.high:.2f}]"


# --- where they differ ---


def _pair_lines(found: Comparison, pair: PairResult, number: int) -> Iterator[str]:
    yield (
        f"{pair.system} against {found.names[0]}, sentence by sentence ({found.sentence_metric}): "
        f"{pair.wins:,} better, {pair.ties:,} equal, {pair.losses:,} worse"
    )
    yield from _group_lines(found, pair)
    for title, grams in (("gets more often", pair.gained), ("gets less often", pair.lost)):
        if grams:
            listed = ", ".join(f"'{gram.text}' ({gram.baseline} -> {gram.system})" for gram in grams[:MOST_NGRAMS])
            yield f"  n-grams that {pair.system} {title}: {listed}"
    yield from _sentence_lines(found, number)


def _group_lines(found: Comparison, pair: PairResult) -> Iterator[str]:
    if not pair.groups:
        return
    header = ("", "sentences", found.names[0], pair.system, "difference", "95% interval")
    rows: list[Row] = [header]
    for kind in dict.fromkeys(group.kind for group in pair.groups):
        rows.append((kind, *[""] * 5))
        rows += [_group_row(group) for group in pair.groups if group.kind == kind]
    yield from table(rows)
    yield "  The intervals of groups are not corrected for their number: take them as hints."


def _group_row(group: GroupResult) -> Row:
    figures = (f"{group.baseline:.2f}", f"{group.system:.2f}", f"{group.difference:+.2f}")
    return (f"  {group.name}", f"{group.sentences:,}", *figures, interval(group.interval, signed=True))


def _sentence_lines(found: Comparison, number: int) -> Iterator[str]:
    """The sentences on which the system gains and loses most."""
    order = sorted(found.rows, key=lambda row: found.gain(row, number), reverse=True)
    best = [row for row in order[:MOST_SENTENCES] if found.gain(row, number) > 0]
    worst = [row for row in order[::-1][:MOST_SENTENCES] if found.gain(row, number) < 0]
    for title, rows in ((f"{found.names[number]} gains most", best), (f"{found.names[number]} loses most", worst)):
        if rows:
            yield f"  sentences on which {title}:"
        for row in rows:
            yield f"    line {row.line}: {row.source}"
            yield f"      reference: {row.references[0]}"
            yield f"      {found.names[0]}: {row.outputs[0]}"
            yield f"      {found.names[number]}: {row.outputs[number]}"


def _habit_lines(found: Comparison) -> Iterator[str]:
    rows: list[Row] = [("", "length ratio", "repetitive", "empty")]
    for name, habits in zip(found.names, found.habits, strict=True):
        rows.append((name, f"{habits.length_ratio:.3f}", f"{habits.repetitive:,}", f"{habits.empty:,}"))
    yield from table(rows)


def table(rows: Sequence[Row]) -> list[str]:
    """Rows with aligned columns: the first to the left, the others to the right, but for words at the end."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(row: Row) -> str:
        first, *rest = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest[:-1])]
        last, width = rest[-1]
        return "  ".join([*cells, last if last[:1].isalpha() else last.rjust(width)]).rstrip()

    return [line(row) for row in rows]
