"""Header lines of tables: which names of columns are known, and which of them name the source and the target.

Knows the fields of one line.
"""

from collections.abc import Sequence

from transduce.languages import code_of

_SOURCES = {
    *("source", "src", "input", "text", "sentence"),
    *("lemma", "word", "spelling", "orthography", "grapheme", "graphemes"),
}
_TARGETS = {
    *("target", "tgt", "trg", "output", "translation"),
    *("form", "inflected", "inflected form", "inflected_form"),
    *("pronunciation", "ipa", "transcription", "phoneme", "phonemes", "phones"),
}
_OTHERS = {"", "id", "line", "number", "features", "tags", "score", "domain", "comment", "notes", "license"}


def named_sides(names: Sequence[str], languages: Sequence[str]) -> tuple[str, ...]:
    """The names of the source and target columns, if they are languages or usual words; otherwise nothing.

    `languages` are the codes of source and target, or none. Without them, the first of two languages is the source.
    """
    if len(languages) == 2 and set(languages) <= set(names):
        return tuple(languages)
    pair = [[name for name in names if name.strip().lower() in words] for words in (_SOURCES, _TARGETS)]
    return (pair[0][0], pair[1][0]) if all(pair) else _language_columns(names, languages)


def _language_columns(names: Sequence[str], languages: Sequence[str]) -> tuple[str, ...]:
    """The columns named by two languages, such as German and English, or de and en.

    All other columns must have known names: a line of data can have the codes of its languages.
    """
    languages_or_unknown = [name for name in names if name.strip().lower() not in _OTHERS]
    column_of = {code_of(name): name for name in languages_or_unknown}
    if len(column_of) != 2 or "" in column_of:
        return ()
    wanted = [code_of(code) for code in languages] or list(column_of)
    return tuple(column_of[code] for code in wanted) if set(wanted) == set(column_of) else ()
