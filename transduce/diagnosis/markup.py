"""Rules about what is not language: HTML, and the tags, placeholders, URLs and brackets that both sides should have.

Only lines with a telling byte (`<`, `&`, `{`, `%`, `:`) are looked at.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from html.entities import html5
from operator import ne

import numpy as np

from transduce.diagnosis.analysis import Block, Context, Side, decoded
from transduce.diagnosis.rules import NO_ROWS, EitherSide, Rows, Rule, union

_TAG = re.compile(rb"</?([A-Za-z][A-Za-z0-9_-]*(?::[A-Za-z0-9_-]+)?)(?:[\s/][^<>\n]{0,500})?>")
_HTML = re.compile(
    rb"</?(?:a|abbr|b|big|blockquote|body|br|center|code|dd|div|dl|dt|em|font|form|h[1-6]|head|hr|html|i|iframe|img|input|label|li"
    rb"|link|meta|nobr|ol|option|p|pre|s|script|select|small|span|strike|strong|style|sub|sup|table|tbody|td|th|title|tr|tt|u"
    rb"|ul)(?:[\s/][^<>\n]{0,500})?>",
    re.I,
)
_ENTITY = re.compile(rb"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
_URL = re.compile(rb"(?:https?|ftp)://[^\s<>\"]+|\bwww\.[^\s<>\"]+")
_PLACEHOLDER = re.compile(
    rb"\$?\{\{? ?[A-Za-z0-9_.]{1,40} ?\}?\}"  # {0}, {name}, {{name}}, ${name}
    rb"|(?<![0-9%])%(?:[0-9]\$|\([A-Za-z_][A-Za-z0-9_]*\))?[-+#]?[0-9]*(?:\.[0-9]+)?[sdifuxXc@](?![A-Za-z0-9%])"  # %s, %1$d, %(name)s
)
_BRACKETS = b"()[]{}"
_NO_BRACKETS = bytes(code for code in range(256) if code not in _BRACKETS + b"\n")
_FULLWIDTH = {"（": "(", "）": ")", "［": "[", "］": "]", "【": "[", "】": "]"}


def _suspects(telling: tuple[bytes, ...], pattern: re.Pattern[bytes], side: Side) -> Rows:
    """The rows that match a pattern, which is searched for only in lines with one of the telling sequences."""
    rows = union(*(_containing(sequence, side) for sequence in telling))
    return np.array([row for row in rows if pattern.search(side.lines[row])], np.int64)


def _containing(sequence: bytes, side: Side) -> Rows:
    positions, at = [], side.data.find(sequence)
    while at >= 0:
        positions.append(at)
        at = side.data.find(sequence, at + 1)
    return side.rows_at(positions) if positions else NO_ROWS


def _tags_in(side: Side) -> Rows:
    return _suspects((b"<",), _TAG, side)


def _html_in(side: Side) -> Rows:
    return _suspects((b"<",), _HTML, side)


def _urls_in(side: Side) -> Rows:
    return _suspects((b"://", b"www."), _URL, side)


def _placeholders_in(side: Side) -> Rows:
    return _suspects((b"{", b"%"), _PLACEHOLDER, side)


def _entities_in(side: Side) -> Rows:
    rows = _suspects((b"&",), _ENTITY, side)
    return np.array([row for row in rows if _entities(side.lines[row])], np.int64)


def _entities(line: bytes) -> list[bytes]:
    found = _ENTITY.findall(line)
    return [one for one in found if one[1:2] == b"#" or one[1:].decode() in html5]


def _tag_names(line: bytes) -> Counter[bytes]:
    return Counter(name.lower() for name in _TAG.findall(line))


def _placeholders(line: bytes) -> Counter[bytes]:
    return Counter(_PLACEHOLDER.findall(line))


def _urls(line: bytes) -> Counter[bytes]:
    """How many URLs there are: translations may lead to another page in the other language."""
    return Counter(b"URL" for _ in _URL.findall(line))


def _differing(
    find: Callable[[Side], Rows], items: Callable[[bytes], Counter[bytes]], block: Block, context: Context
) -> Rows:
    """The rows whose sides do not have the same items."""
    source, target = block.source.lines, block.target.lines
    rows = union(*map(find, block.sides))
    return np.array([row for row in rows if items(source[row]) != items(target[row])], np.int64)


def _brackets(block: Block, context: Context) -> Rows:
    source, target = (_bracket_strings(side) for side in block.sides)
    rows = np.flatnonzero(np.fromiter(map(ne, source, target), bool, len(block)))
    return np.array([row for row in rows if Counter(source[row]) != Counter(target[row])], np.int64)


def _bracket_strings(side: Side) -> list[bytes]:
    data = side.data
    if b"\xef\xbc" in data or b"\xe3\x80" in data:
        for wide, narrow in _FULLWIDTH.items():
            data = data.replace(wide.encode(), narrow.encode())
    return data.translate(None, _NO_BRACKETS).split(b"\n")[:-1]


def _show_found(items: Callable[[bytes], object], block: Block, row: int, context: Context) -> str:
    found = [one for side in block.sides for one in items(side.lines[row])]  # type: ignore[attr-defined]
    return ", ".join(dict.fromkeys(decoded(one) for one in found))[:200]


def _show_differing(items: Callable[[bytes], Counter[bytes]], block: Block, row: int, context: Context) -> str:
    source, target = (items(side.lines[row]) for side in block.sides)
    return "; ".join(filter(None, (_missing("source", source - target), _missing("target", target - source))))


def _missing(side: str, items: Counter[bytes]) -> str:
    return f"only in the {side}: {' '.join(decoded(one) for one in items.elements())}"[:200] if items else ""


def _bracket_counts(line: bytes) -> Counter[bytes]:
    return Counter(bytes([one]) for one in _bracket_strings(Side(line + b"\n"))[0])


MARKUP_RULES = [
    Rule(
        "html_tags",
        EitherSide(_html_in),
        partial(_show_found, _HTML.findall),
        "HTML tags; the model will write such tags in its translations.",
        "Extract the text from the HTML, unless the texts to translate have tags as well.",
        notable=0.01,
        removes=False,
    ),
    Rule(
        "html_entities",
        EitherSide(_entities_in),
        partial(_show_found, _entities),
        "HTML entities (such as &amp; for &); the model will write them in its translations.",
        "Replace them by their characters, for example with Python's html.unescape.",
        notable=0.001,
        removes=False,
    ),
    Rule(
        "unmatched_tags",
        partial(_differing, _tags_in, _tag_names),
        partial(_show_differing, _tag_names),
        "Pairs whose sides have different tags.",
        "Correct them if tags must survive translation.",
        notable=0.001,
        sentences=True,
    ),
    Rule(
        "unmatched_placeholders",
        partial(_differing, _placeholders_in, _placeholders),
        partial(_show_differing, _placeholders),
        "Pairs whose sides have different placeholders (such as {0} or %s); a model that drops them breaks the program that "
        "fills them in.",
        "Look at the examples, and correct the wrong ones.",
        notable=0.0005,
        sentences=True,
    ),
    Rule(
        "unmatched_urls",
        partial(_differing, _urls_in, _urls),
        partial(_show_differing, _urls),
        "Pairs whose sides have different numbers of URLs; often one side has more text than the other.",
        "Look at the examples, and correct the wrong ones.",
        notable=0.01,
        sentences=True,
    ),
    Rule(
        "unmatched_brackets",
        _brackets,
        partial(_show_differing, _bracket_counts),
        "Pairs whose sides have different brackets; one side may have a comment that the other lacks.",
        "Look at the examples; translations are often correct without them.",
        notable=0.1,
        removes=False,
        sentences=True,
    ),
]
