"""Which column of a TSV file, or which key of a JSONL file, is the source, the target and the features.

Knows the fields of one line; `transduce/data` knows the files and their contents.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from transduce.errors import SettingError

ROLES = ("source", "features", "target")
EXAMPLE = "write for example source=1,features=2,target=3 or, with names, source=lemma,target=form"


@dataclass(frozen=True)
class Columns:
    """The columns of a table, by number (from 1) or by the names of its header line or keys."""

    source: str = "1"
    target: str = "2"
    features: str = ""  # a field `A;B` turns the source into `... ;A;B`

    @staticmethod
    def of(setting: Iterable[str], needs_target: bool = True) -> "Columns":
        """Parse the setting `data.columns`: ("source=1", "features=2", "target=3")."""
        given = tuple(setting)
        columns = dict.fromkeys(ROLES, "")
        for item in given:
            role, equals, column = (part.strip() for part in item.partition("="))
            if role not in columns or not equals or not column:
                raise SettingError(f"data.columns: '{item}' is not one of source=, features= and target=: {EXAMPLE}")
            columns[role] = column
        found = Columns(columns["source"], columns["target"], columns["features"])
        found._check(",".join(given), needs_target)
        return found

    @staticmethod
    def with_features_in(number: int) -> "Columns":
        """The columns for the old setting `features_column`: source and target are the first two other columns."""
        source, target, *_ = (str(column) for column in (1, 2, 3) if column != number)
        return Columns(source, target, str(number))

    def _check(self, given: str, needs_target: bool) -> None:
        used = [column for column in (self.source, self.target, self.features) if column]
        if not self.source or (needs_target and not self.target):
            raise SettingError(f"data.columns = {given}: source and target are required: {EXAMPLE}")
        if len(set(used)) < len(used):
            raise SettingError(f"data.columns = {given}: a column can have only one role")
        if len({column.isdecimal() for column in used}) > 1 or any(c.isdecimal() and int(c) < 1 for c in used):
            raise SettingError(f"data.columns = {given}: give all columns by number (starting at 1) or all by name")

    @property
    def setting(self) -> tuple[str, ...]:
        return tuple(f"{role}={column}" for role in ROLES if (column := getattr(self, role)))

    @property
    def named(self) -> bool:
        """Whether columns have names, and so TSV files begin with a header line."""
        return not self.source.isdecimal()

    @property
    def needed(self) -> int:
        """How many columns a line must have, if columns are given by number."""
        return max(int(column) for column in (self.source, self.target, self.features) if column)

    def numbered(self, header: Sequence[str]) -> "Columns":
        """The same columns as numbers in a file with this header; raises `KeyError` with the name of a missing column."""
        numbers = {name: str(number) for number, name in reversed(list(enumerate(header, 1)))}
        source, target, features = (numbers[name] if name else "" for name in (self.source, self.target, self.features))
        return Columns(source, target, features)

    def of_header(self, header: Sequence[str]) -> "Columns":
        """The same columns by their names in this header; those beyond it stay numbers."""
        names = dict(enumerate(header, 1))
        source, target, features = (
            names.get(int(number), number) if number else "" for number in (self.source, self.target, self.features)
        )
        return Columns(source, target, features)

    def source_of(self, fields: Mapping[str, str] | Sequence[str]) -> str:
        """The source text of a line, followed by its features as the model was trained on them: `gehen ;V;PST`."""
        word = self._field(fields, self.source)
        marks = "".join(feature_symbols(self._field(fields, self.features))) if self.features else ""
        return f"{word} {marks}".rstrip() if self.features else word

    def source_of_line(self, line: str) -> str:
        """The source text of a line to translate, which has all columns of the training data or all but the target.

        A line without tabs is already a source text.
        """
        if "\t" not in line:
            return line
        fields = line.split("\t")
        if not self.named and len(fields) >= self.needed:
            return self.source_of(fields)
        if self.features and len(fields) == 2:
            first = self.named or int(self.source) < int(self.features)
            return Columns("1", "", "2").source_of(fields if first else fields[::-1])
        return line

    @staticmethod
    def _field(fields: Mapping[str, str] | Sequence[str], column: str) -> str:
        return fields[column] if isinstance(fields, Mapping) else fields[int(column) - 1]


def feature_symbols(features: str) -> list[str]:
    """`V;PST` as the symbols of a vocabulary: `;V`, `;PST`."""
    return [";" + feature for feature in features.split(";") if feature]


def features_as_written(source: str) -> str:
    """A source with features as they are in the user's data: `gehen V;PST` for `gehen ;V;PST`."""
    word, found, features = source.rpartition(" ;")
    return f"{word} {features}" if found and " " not in features else source
