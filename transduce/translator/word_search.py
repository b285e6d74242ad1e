"""Words in the search of a speech model: a lexicon, spelt in the pieces of the model, and an n-gram model that scores words.

A run folder keeps them in `ngram/`: the n-gram model as an ARPA file, the lexicon with one word per line if the words are limited to one, and
the weights. Knows pieces of words, and no sound.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

from transduce.checkpoint import RunFolder, write_text
from transduce.config.models.speech import SpeechConfig
from transduce.errors import DamagedFile, DataError, RunError, SettingError
from transduce.files import read_plain
from transduce.ngrams import BEGIN, END, UNKNOWN_WORD, NgramModel, read_arpa
from transduce.text import UNKNOWN, WORD_START, Vocabulary
from transduce.translator.folder import ModelFolder

_LIMITS = {"lm_weight": (0.0, 10.0), "word_bonus": (-20.0, 20.0), "ctc_weight": (0.0, 1.0), "prefixes": (1, 10_000)}


@dataclass(frozen=True, kw_only=True)
class WordWeights:
    """What each part of the score of a text is worth."""

    lm_weight: float = 0.5  # of the log-probability of the words
    word_bonus: float = 0.5  # added for each word, since every word costs probability
    ctc_weight: float = 0.5  # of CTC; the rest is the decoder's. With 1, the decoder is not used
    prefixes: int = 60  # kept at each frame of the search

    def __post_init__(self) -> None:
        for name, (least, most) in _LIMITS.items():
            value = getattr(self, name)
            if not (isinstance(value, int | float) and least <= value <= most):
                raise SettingError(f"{name} = {value}: must be at least {least:g} and at most {most:g}")

    def but(self, **changes: float | None) -> "WordWeights":
        """A copy with changes; None keeps a value."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]

    @staticmethod
    def read(run: RunFolder) -> "WordWeights":
        """The weights that `transduce ngram` found for a run."""
        path = _files(run)["weights"]
        if not path.exists():
            raise RunError(f"{path}: no such file; `transduce ngram {run.path}` creates it")
        try:
            found = json.loads(read_plain(path))
            return WordWeights(**{field.name: found[field.name] for field in fields(WordWeights)})
        except (ValueError, KeyError, TypeError, SettingError) as error:
            raise DamagedFile(f"{path}: not the weights of a word search ({str(error)[:60]})") from None

    def write(self, run: RunFolder) -> None:
        write_text(_files(run)["weights"], json.dumps(asdict(self), indent=1) + "\n")


def check_takes_words(opened: ModelFolder) -> None:
    """Refuse a model that cannot be searched with an n-gram model of words."""
    config = opened.config
    if not isinstance(config.model, SpeechConfig):
        does = config.data.what_it_does
        raise SettingError(
            f"{opened.folder.path}: an n-gram model of words is for speech models, and this model {does}"
        )
    if not config.model.ctc_weight:
        raise SettingError(
            f"{opened.folder.path}: an n-gram model of words needs a CTC output: train a model with model.ctc_weight above 0"
        )


class Words:
    """The words that a search may write, spelt in the pieces of a vocabulary, with their n-gram model."""

    def __init__(self, vocabulary: Vocabulary, ngram: NgramModel, lexicon: Sequence[str] | None = None) -> None:
        self.ngram, self.closed = ngram, lexicon is not None
        names = vocabulary.pieces(range(vocabulary.size))
        self.pieces = [(name.startswith(WORD_START), name.replace(WORD_START, "")) for name in names]
        listed = sorted(ngram.words - {END, UNKNOWN_WORD}) if lexicon is None else lexicon
        spelt = [
            (spelling, word) for spelling, word in zip(spellings(vocabulary, listed), listed, strict=True) if spelling
        ]
        self.words = dict(spelt)
        self.ahead: dict[str, float] = {}  # for each beginning of a word, the log-probability of its likeliest word
        for spelling, word in spelt:
            likely = ngram.log_probability(word, ())
            for end in range(1, len(spelling) + 1):
                beginning = spelling[:end]
                self.ahead[beginning] = max(likely, self.ahead.get(beginning, -math.inf))
        self.unknown = ngram.log_probability(UNKNOWN_WORD, ())

    @staticmethod
    def read(run: RunFolder, vocabulary: Vocabulary) -> "Words":
        """The words of a run folder."""
        files = _files(run)
        if not files["ngram"].exists():
            raise RunError(f"{files['ngram']}: no such file; `transduce ngram {run.path}` creates it")
        lexicon = read_lexicon(files["lexicon"]) if files["lexicon"].exists() else None
        return Words(vocabulary, read_arpa(files["ngram"]), lexicon)


def spellings(vocabulary: Vocabulary, words: Sequence[str]) -> list[str]:
    """Each word as its pieces spell it; empty where the vocabulary cannot spell it as one word."""
    found = []
    for ids in vocabulary.encode(list(words)):
        text = "".join(vocabulary.pieces(ids[:-1])).removeprefix(WORD_START)
        found.append("" if UNKNOWN in ids or WORD_START in text else text)
    return found


def read_lexicon(path: str | Path) -> list[str]:
    """The words of a list with one word per line; what follows a word, such as its sounds, is not used.

    Entries in angle brackets, such as `<sil>` and `<UNK>`, are not words.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    words = [fields[0] for line in lines if (fields := line.split()) and not fields[0].startswith("<")]
    if not words:
        raise DataError(f"{path}: no words: a lexicon has one word per line")
    return list(dict.fromkeys(words))


def word_files(run: RunFolder) -> dict[str, Path]:
    """The files of the word search of a run; its folder is created."""
    files = _files(run)
    files["ngram"].parent.mkdir(exist_ok=True)
    return files


def check_has_words(opened: ModelFolder) -> None:
    """Refuse a model without an n-gram model of words; reads no more than its weights."""
    check_takes_words(opened)
    WordWeights.read(opened.folder)


def words_changed(run: RunFolder) -> str:
    """Differs from before whenever `transduce ngram` has made the words of a run again; it takes no time."""
    return str(_files(run)["weights"].stat().st_mtime_ns)  # the last file that it writes


def words_digest(run: RunFolder) -> str:
    """A hash that identifies the words and weights of a run."""
    contents = [read_plain(path) for path in _files(run).values() if path.exists()]
    return hashlib.sha256(b"\0".join(contents)).hexdigest()


def _files(run: RunFolder) -> dict[str, Path]:
    folder = run.ngram
    return {"ngram": folder / "words.arpa", "lexicon": folder / "lexicon.txt", "weights": folder / "weights.json"}


class WordState(NamedTuple):
    """A text in progress: its last whole words, the word that has begun, and what the whole words are worth."""

    history: tuple[str, ...]
    word: str
    ngram: float  # log-probability of the whole words
    whole: int  # how many words they are
    marked: bool  # whether a word has begun that has no letters yet


class WordGuide:
    """The guide of a CTC search that adds the n-gram model to it, and writes no words outside of a lexicon."""

    def __init__(self, words: Words, weights: WordWeights) -> None:
        self.words, self.weights = words, weights
        self._known: dict[tuple[tuple[str, ...], str], tuple[tuple[str, ...], float]] = {}  # asked for again and again

    def start(self) -> WordState:
        return WordState(self.words.ngram.extended((), BEGIN), "", 0.0, 0, False)

    def extended(self, state: WordState, token: int) -> WordState | None:
        begins, text = self.words.pieces[token]
        if begins and state.word:
            if (ended := self._with_word(state)) is None:
                return None
            state = ended
        elif begins and state.marked and self.words.closed:
            return None
        word = state.word + text
        if word and self.words.closed and word not in self.words.ahead:
            return None
        return WordState(state.history, word, state.ngram, state.whole, not word and (begins or state.marked))

    def ended(self, at: WordState) -> WordState | None:
        state = self._with_word(at) if at.word else at
        if state is None:
            return None
        end = self.words.ngram.log_probability(END, state.history)
        return state._replace(ngram=state.ngram + end)

    def score(self, state: WordState) -> float:
        """A word that has begun counts as the likeliest word with this beginning, so that the search does not delay words to avoid their cost."""
        ahead = self.words.ahead.get(state.word, self.words.unknown) if state.word else 0.0
        return self.weights.lm_weight * (state.ngram + ahead) + self.weights.word_bonus * (
            state.whole + bool(state.word)
        )

    def _with_word(self, state: WordState) -> WordState | None:
        """The state after the word that has begun; None if it is not in the lexicon."""
        word = self.words.words.get(state.word)
        if word is None and self.words.closed:
            return None
        key = state.history, word or UNKNOWN_WORD
        if key not in self._known:
            ngram = self.words.ngram
            self._known[key] = ngram.extended(*key), ngram.log_probability(key[1], key[0])
        history, worth = self._known[key]
        return WordState(history, "", state.ngram + worth, state.whole + 1, False)
