"""Writing systems: which script a text is in, and which scripts put no spaces between words.

Works on character counts, so that each distinct character of a large text is classified only once. Knows strings only.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

# First and last code points of the letters of each script; punctuation belongs to no script.
_RANGES: dict[str, tuple[tuple[int, int], ...]] = {
    "Latin": ((0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x1E00, 0x1EFF)),
    "Greek": ((0x370, 0x3FF), (0x1F00, 0x1FFF)),
    "Cyrillic": ((0x400, 0x52F),),
    "Armenian": ((0x531, 0x58F),),
    "Hebrew": ((0x590, 0x5FF),),
    "Arabic": ((0x600, 0x6FF), (0x750, 0x77F), (0xFB50, 0xFDFF), (0xFE70, 0xFEFF)),
    "Devanagari": ((0x900, 0x97F),),
    "Bengali": ((0x980, 0x9FF),),
    "Tamil": ((0xB80, 0xBFF),),
    "Telugu": ((0xC00, 0xC7F),),
    "Thai": ((0xE00, 0xE7F),),
    "Lao": ((0xE80, 0xEFF),),
    "Tibetan": ((0xF00, 0xFFF),),
    "Myanmar": ((0x1000, 0x109F), (0xAA60, 0xAA7F)),
    "Georgian": ((0x10A0, 0x10FF),),
    "Ethiopic": ((0x1200, 0x139F),),
    "Khmer": ((0x1780, 0x17FF),),
    "Hiragana": ((0x3041, 0x309F),),
    "Katakana": ((0x30A1, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F)),
    "Hangul": ((0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xD7AF)),
    "Han": (
        (0x2E80, 0x2FDF),
        (0x3005, 0x3007),
        (0x3400, 0x4DBF),
        (0x4E00, 0x9FFF),
        (0xF900, 0xFAFF),
        (0x20000, 0x323AF),
    ),
}
# Scripts without spaces between words, with the approximate letters per word. Katakana is mostly used for foreign words.
LETTERS_PER_WORD = {
    "Han": 1.7, "Hiragana": 2.5, "Katakana": 5.0, "Thai": 4.5, "Lao": 4.5, "Khmer": 5.0, "Myanmar": 5.0, "Tibetan": 5.0,
}  # fmt: skip
_OF_LANGUAGE = {
    "Greek": "el ell", "Hebrew": "he heb yi", "Armenian": "hy hye", "Georgian": "ka kat", "Thai": "th tha", "Lao": "lo lao",
    "Khmer": "km khm", "Myanmar": "my mya", "Tibetan": "bo bod dz dzo", "Hangul": "ko kor", "Han": "zh zho cmn yue wuu",
    "Cyrillic": "ru rus uk ukr bg bul be bel mk mkd kk kaz ky kir tg tgk mn mon", "Arabic": "ar ara fa fas ur urd ps pus",
    "Devanagari": "hi hin mr mar ne nep sa san", "Bengali": "bn ben as asm", "Tamil": "ta tam", "Telugu": "te tel",
    "Ethiopic": "am amh ti tir", "Kana": "ja jpn",
    "Latin": "en eng de deu fr fra es spa it ita pt por nl nld pl pol cs ces sk slk sv swe da dan fi fin hu hun ro ron tr tur "
             "et est lv lav lt lit hr hrv sl slv ca cat vi vie id ind ms msa sw swa tl tgl cy cym ga gle is isl mt mlt eu eus",
}  # fmt: skip


@cache
def script_of(character: str) -> str:
    """The script of a letter; empty for digits, punctuation and spaces."""
    code = ord(character)
    found = (name for name, ranges in _RANGES.items() if any(first <= code <= last for first, last in ranges))
    return next(found, "") if character.isalpha() or not character.isascii() else ""


def letters_of(script: str) -> tuple[tuple[int, int], ...]:
    """First and last code points of the letters of a script; of all its scripts for Japanese, `Kana`."""
    if script == "Kana":
        return _RANGES["Hiragana"] + _RANGES["Katakana"] + _RANGES["Han"]
    return _RANGES[script]


def count_scripts(characters: Mapping[str, int]) -> Counter[str]:
    """The number of letters of each script, given how often each character occurs."""
    counted: Counter[str] = Counter()
    for character, times in characters.items():
        counted[script_of(character)] += times
    del counted[""]
    return counted


def unspaced_words(scripts: Mapping[str, int]) -> float:
    """The approximate number of words in scripts without spaces."""
    return sum(scripts.get(name, 0) / letters for name, letters in LETTERS_PER_WORD.items())


def main_script(scripts: Mapping[str, int]) -> str:
    """The script of most letters; `Kana` for Japanese, which mixes several scripts; empty if there are no letters."""
    kana = scripts.get("Hiragana", 0) + scripts.get("Katakana", 0)
    if kana > 0.1 * (kana + scripts.get("Han", 0)) > 0:
        scripts = {name: n for name, n in scripts.items() if name not in ("Hiragana", "Katakana", "Han")} | {
            "Kana": kana + scripts.get("Han", 0)
        }
    return max(scripts, key=lambda name: scripts[name], default="")


def script_of_language(code: str) -> str:
    """The script of a language, given its code (`ja`, `zh-CN`, `rus`); empty if unknown."""
    language = code.lower().replace("_", "-").partition("-")[0]
    return next((script for script, codes in _OF_LANGUAGE.items() if language in codes.split()), "")


def script_of_texts(texts: Iterable[str]) -> str:
    """The script of most letters in these texts."""
    return main_script(count_scripts(Counter("".join(texts))))


def is_unspaced(script: str) -> bool:
    """Whether texts in this script have no spaces between words."""
    return script == "Kana" or script in LETTERS_PER_WORD
