"""Inferring the columns of a table from its first lines: source, target, features, and unused ones.

This is used for a new run without `--columns`. It knows lines and fields; `transduce/data/corpus.py` reads whole files.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from transduce.config.columns import Columns
from transduce.data.corpus import Corpus, Group, first_lines, is_manifest, is_table, kind_of
from transduce.data.headers import named_sides
from transduce.errors import DataError

MOST = 0.95  # share of the values that must look like features; a few may be written differently
_TAGS = re.compile(r"[\w.+/:=*{}()<>-]+(;[\w.+/:=*{}()<>-]+)*")


def infer_columns(groups: Sequence[Group], languages: tuple[str, ...]) -> Columns | None:
    """The columns of these files, or None if they are the usual ones; files whose columns differ are an error."""
    tables = [group for group in groups if len(group) == 1 and is_table(group[0]) and not is_manifest(group)]
    found = {group[0]: _infer(group, languages) for group in tables}
    seen = [(path, columns) for path, columns in found.items() if columns]
    for path, columns in seen:
        if columns != seen[0][1]:
            raise DataError(
                f"{path}: its columns look like {','.join(columns.setting)}, but those of {seen[0][0]} like "
                f"{','.join(seen[0][1].setting)}: use the same columns in all files, or name them with --columns"
            )
    return seen[0][1] if seen else None


def describe(corpus: Corpus) -> list[str]:
    """One line for each table that has more than two columns or a header line: which columns are used, and which are not."""
    tables = [group for group in corpus.groups if len(group) == 1 and is_table(group[0]) and not is_manifest(group)]
    return [line for group in dict.fromkeys(tables) if (line := _described(group, corpus))]


def _described(group: Group, corpus: Corpus) -> str:
    names, rows = _fields(group, corpus.columns, corpus.languages)
    sides = named_sides(names, corpus.languages) if kind_of(group) == "tsv" else ()
    used = corpus.columns or (Columns(*sides) if sides else Columns())
    if sides or (used.named and kind_of(group) == "tsv"):  # people must know that its first line is not data
        begun = f"first line of {group[0]} taken as header: {', '.join(names)}; columns"
    elif len(names) < 3 or (not used.named and kind_of(group) == "json"):
        return ""
    else:
        begun = f"columns of {group[0]}"
    used_names = used.of_header(names) if sides and not used.named else used
    unused = [name for name in names if name not in (used_names.source, used_names.target, used_names.features)]
    said = f"{begun}: {', '.join(used.setting)}{_example(names, rows, used_names.features)}"
    return said + (f"; not used: {', '.join(unused)}" if unused else "")


def _infer(group: Group, languages: tuple[str, ...]) -> Columns | None:
    names, rows = _fields(group, None, languages)
    sides = named_sides(names, languages)
    others = [name for name in names if name not in sides]
    features = [name for name in others if looks_like_features([row[names.index(name)] for row in rows])]
    # A JSONL file names its sides itself, and a header line must be skipped.
    if not (sides and kind_of(group) == "tsv") and not (features and len(names) > 2):
        return None
    source, target, *_ = sides or [name for name in names if name not in features]
    return Columns(source, target, features[0] if features else "")


def _fields(group: Group, columns: Columns | None, languages: tuple[str, ...]) -> tuple[list[str], list[list[str]]]:
    """The names of a table's columns (numbers if it has no header line), and the fields of its first lines."""
    lines = [line for line in first_lines(group[0]) if line.strip()]
    if kind_of(group) == "json":
        return _json_fields(lines)
    rows = [line.split("\t") for line in lines]
    if not rows:
        return [], []
    has_header = bool((columns and columns.named) or named_sides(rows[0], languages))
    width = Counter(map(len, rows)).most_common(1)[0][0]
    names = rows[0] if has_header else [str(number + 1) for number in range(width)]
    return names, [row for row in rows[has_header:] if len(row) >= len(names)]


def _json_fields(lines: list[str]) -> tuple[list[str], list[list[str]]]:
    """The keys that have a text in each of the first lines, and these texts; errors are reported when the file is read."""
    records: list[dict[str, Any]] = []
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return [], []
        if not isinstance(record, dict) or "translation" in record:
            return [], []
        records.append(record)
    names = [key for key in (records[0] if records else {}) if all(isinstance(r.get(key), str) for r in records)]
    return names, [[record[name] for name in names] for record in records]


def looks_like_features(values: Sequence[str]) -> bool:
    """Whether these are morphological features as in UniMorph: `V;PST;3;SG`."""
    given = [value for value in values if value]
    tagged = [value for value in given if _TAGS.fullmatch(value)]
    several = [value for value in tagged if ";" in value]
    if not given or len(tagged) < MOST * len(given) or len(several) < len(given) / 2:
        return False
    tags = [tag for value in tagged for tag in value.split(";")]
    return all(tag.upper() == tag for tag in tags) or len(tags) > 5 * len(set(tags))


def _example(names: Sequence[str], rows: Sequence[Sequence[str]], features: str) -> str:
    values = [row[names.index(features)] for row in rows if row[names.index(features)]] if features in names else []
    return f" (features such as {values[0]})" if values else ""
