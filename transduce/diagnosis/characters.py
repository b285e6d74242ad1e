"""Rules about the characters of a text: what is not UTF-8, what is invisible, and what was decoded wrongly.

Every rule looks at a whole block first; only a block with a suspicious byte is looked at line by line.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec

import numpy as np

from transduce.diagnosis.analysis import Block, Context, Side, decoded
from transduce.diagnosis.rules import NO_ROWS, EitherSide, Rows, Rule, union

# C0 and C1 control characters and DEL; tab, line feed, carriage return and U+0085 are looked at elsewhere.
_C0 = bytes(code for code in range(32) if code not in b"\t\n\r") + b"\x7f"
_NOT_C0 = bytes(code for code in range(256) if code not in _C0)
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x84\x86-\x9f]")
_C1 = re.compile(rb"\xc2[\x80-\x84\x86-\x9f]")
_SEPARATORS = {b"\xc2\x85": "U+0085", b"\xe2\x80\xa8": "U+2028", b"\xe2\x80\xa9": "U+2029"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_REPLACEMENT = b"\xef\xbf\xbd"
# Bytes of characters that are in NFC wherever they stand: up to U+02FF, punctuation and symbols, and Chinese characters.
_ALWAYS_NORMAL = bytes(range(0xCC)) + b"\xe2" + bytes(range(0xE4, 0xEA))
_SOMETIMES_NOT_NORMAL = re.compile(rb"\xe2(?:\x80[\x80\x81]|\x84|\x8c|\xab)")
_INNER_RETURN = re.compile(rb"\r(?!\n)")
# UTF-8 that was read as Latin-1 or Windows-1252 has a letter from \xc2 to \xf4 before a character that stands for a continuing
# byte; read as Windows-1251 it has \u0420, \u0421, \u0432 or \u0440 there. ftfy decides about lines with such a sequence.
_SUSPICIOUS_LATIN = re.compile(
    rb"\xc3[\x82-\xb4](?:\xc2[\x80-\xbf]|\xe2\x80[\x93-\xba]|\xe2\x82\xac|\xe2\x84\xa2|\xc5[\x92\x93\xa0\xa1\xb8\xbd\xbe]|\xc6\x92|\xcb[\x86\x9c])"
)
_SUSPICIOUS_CYRILLIC = re.compile(
    rb"\xd0[\xa0\xa1\xb2](?:\xc2[\x80-\xbf]|\xe2\x80|\xe2\x82\xac|\xd1[\x92-\x9f]|\xd0[\x82-\x8f])"
)


def _matching(pattern: re.Pattern[bytes], side: Side) -> Rows:
    positions = [match.start() for match in pattern.finditer(side.data)]
    return side.rows_at(positions) if positions else NO_ROWS


def _containing(sequence: bytes, side: Side) -> Rows:
    if sequence[:1] not in side.data or sequence not in side.data:  # a single byte is found faster
        return NO_ROWS
    return _matching(re.compile(re.escape(sequence)), side)


def _invalid(side: Side) -> Rows:
    try:
        side.data.decode()
    except UnicodeDecodeError:
        return np.array([row for row, line in enumerate(side.lines) if _first_invalid(line) >= 0], np.int64)
    return NO_ROWS


def _first_invalid(line: bytes) -> int:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return error.start
    return -1


def _control(side: Side) -> Rows:
    c0 = _matching(_CONTROL, side) if side.data.translate(None, _NOT_C0) else NO_ROWS
    return union(c0, _matching(_C1, side))


def _returns(side: Side) -> Rows:
    return side.rows_at([at - 1 for at in side.ends if side.data[at - 1] == 13]) if b"\r\n" in side.data else NO_ROWS


def _inner_returns(side: Side) -> Rows:
    return _matching(_INNER_RETURN, side) if b"\r" in side.data else NO_ROWS


def _separators(side: Side) -> Rows:
    return union(*(_containing(sequence, side) for sequence in _SEPARATORS))


def not_normal(side: Side) -> Rows:
    """The rows that are not in NFC; most blocks have no character for which it could matter."""
    others = side.data.translate(None, _ALWAYS_NORMAL)
    if not others and not _SOMETIMES_NOT_NORMAL.search(side.data):
        return NO_ROWS
    if unicodedata.is_normalized("NFC", side.text):
        return NO_ROWS
    return np.array(
        [row for row, text in enumerate(side.texts) if not unicodedata.is_normalized("NFC", text)], np.int64
    )


def _mojibake(side: Side) -> Rows:
    suspects = union(_matching(_SUSPICIOUS_LATIN, side), _matching(_SUSPICIOUS_CYRILLIC, side))
    return np.array([row for row in suspects if _repaired(side.lines[row])], np.int64)


def _repaired(line: bytes) -> str:
    """The text as it was before it was decoded wrongly; empty if it was decoded correctly."""
    from ftfy import fix_encoding

    text = decoded(line)
    fixed: str = fix_encoding(text)
    return fixed if fixed != text else ""


def _details(block: Block, row: int) -> Iterator[bytes]:
    yield from (side.lines[row] for side in block.sides)


def _show_invalid(block: Block, row: int, context: Context) -> str:
    line = next(line for line in _details(block, row) if _first_invalid(line) >= 0)
    at = _first_invalid(line)
    return f"byte 0x{line[at]:02x} at column {at + 1}"


def _show_matches(pattern: re.Pattern[bytes], block: Block, row: int, context: Context) -> str:
    found = {f"U+{ord(decoded(hit)[0]):04X}" for line in _details(block, row) for hit in pattern.findall(line)}
    return ", ".join(sorted(found))


def _show_separators(block: Block, row: int, context: Context) -> str:
    return ", ".join(name for code, name in _SEPARATORS.items() if any(code in line for line in _details(block, row)))


def _show_not_normal(block: Block, row: int, context: Context) -> str:
    text = "".join(map(decoded, _details(block, row)))
    marks = [at for at, one in enumerate(text) if unicodedata.combining(one)]
    return f"{text[max(0, marks[0] - 1) : marks[0] + 1]!a}" if marks else ""


def _show_repaired(block: Block, row: int, context: Context) -> str:
    return "was probably: " + " / ".join(fixed for line in _details(block, row) if (fixed := _repaired(line)))[:200]


def show_nothing(block: Block, row: int, context: Context) -> str:
    """The detail of rules whose examples speak for themselves."""
    return ""


def character_rules() -> list[Rule]:
    """The rules that can be checked here: mojibake needs the package ftfy."""
    return [*_RULES, *([_MOJIBAKE] if find_spec("ftfy") else [])]


_RULES = [
    Rule(
        "invalid_utf8",
        EitherSide(_invalid),
        _show_invalid,
        "Lines that are not UTF-8; `transduce train` stops at the first one.",
        "Convert the files with iconv if they have another encoding.",
        serious=0.0,
    ),
    Rule(
        "control_characters",
        EitherSide(_control),
        partial(_show_matches, _CONTROL),
        "Control characters, which are invisible and make the words around them unknown.",
        "Remove these characters.",
        serious=0.05,
        notable=0.0,
    ),
    Rule(
        "carriage_returns",
        EitherSide(_returns),
        show_nothing,
        "Lines that end in a carriage return, as in files from Windows; `transduce train` removes them.",
        "Nothing needs to be done; tr -d '\\r' removes them for other programs.",
        removes=False,
    ),
    Rule(
        "inner_carriage_returns",
        EitherSide(_inner_returns),
        show_nothing,
        "Carriage returns inside lines, at which some programs break the line, so that the sides no longer match.",
        "Replace them by spaces: tr '\\r' ' '.",
        notable=0.0,
    ),
    Rule(
        "line_separators",
        EitherSide(_separators),
        _show_separators,
        "Characters at which many programs break the line (U+0085, U+2028, U+2029, or a line break in a JSON text), so that "
        "the sides no longer match.",
        "Replace them by spaces.",
        notable=0.0,
    ),
    Rule(
        "byte_order_marks",
        EitherSide(partial(_containing, _BYTE_ORDER_MARK)),
        show_nothing,
        "Byte order marks (U+FEFF); `transduce train` removes one at the beginning of a file, and keeps all others.",
        "Remove them: sed 's/\\xef\\xbb\\xbf//g'.",
        notable=0.001,
        removes=False,
    ),
    Rule(
        "replacement_characters",
        EitherSide(partial(_containing, _REPLACEMENT)),
        show_nothing,
        "U+FFFD, which stands for characters that an earlier conversion has lost.",
        "Convert the original files again with the right encoding.",
        serious=0.05,
        notable=0.0,
    ),
    Rule(
        "not_nfc",
        EitherSide(not_normal),
        _show_not_normal,
        "Texts that are not in Unicode's normal form NFC: the same word can be spelt in two ways.",
        "Keep data.normalization at its default, which normalises them, or run uconv -x any-nfc.",
        notable=0.05,
        removes=False,
    ),
]
_MOJIBAKE = Rule(
    "mojibake",
    EitherSide(_mojibake),
    _show_repaired,
    "Texts that were decoded with the wrong encoding (such as Ã¼ for ü); the model would learn to write them.",
    "Repair the files with ftfy.",
    serious=0.01,
    notable=0.0,
)
