"""Makes the n-gram model of a speech model from transcripts or other text, and finds the weights for it on validation data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.audio.utterances import features_of_source
from transduce.checkpoint import write_text
from transduce.data import Corpus, found_setting, groups_from_setting, is_manifest, read_lines, read_pairs
from transduce.data.recorded_pairs import check_recordings, naming_lines
from transduce.errors import DataError, SettingError
from transduce.metrics import count_transcript_errors
from transduce.ngrams import UNKNOWN_WORD, NgramModel, estimate, read_arpa, write_arpa
from transduce.text import Vocabulary
from transduce.translator import LoadOptions, Translator, open_folder
from transduce.translator.ctc_engine import Candidate, CtcEngine
from transduce.translator.folder import ModelFolder
from transduce.translator.word_search import Words, WordWeights, check_takes_words, read_lexicon, spellings, word_files

TUNED = 400  # utterances that the weights are tuned on, at most
_TEXTS = 20  # of each utterance
ROUNDS = 3
_CTC = tuple(n / 10 for n in range(11))  # the weights that are tried
_LM = tuple(n / 10 for n in range(21))
_BONUS = tuple(n / 2 for n in range(-4, 11))

Say = Callable[[str], None]


@dataclass(frozen=True)
class WordModel:
    """An n-gram model that was made for a run, and what came of tuning its weights."""

    file: Path
    ngrams: int
    words: int  # that a search may write
    weights: WordWeights
    utterances: int = 0  # that the weights were tuned on
    error_rate: float | None = None  # WER on them with the n-gram model, in percent
    least_error_rate: float | None = None  # of the best text among those that the search found


def make_word_model(
    run: str | Path,
    texts: Sequence[str] = (),
    *,
    order: int = 3,
    lexicon: str | Path = "",
    arpa: str | Path = "",
    valid: Sequence[tuple[str, ...]] = (),
    tuned: bool = True,
    options: LoadOptions | None = None,
    say: Say = print,
) -> WordModel:
    """Write `RUN/ngram`: a model of these texts, or of the run's own transcripts, or a given ARPA file."""
    opened = open_folder(run)
    check_takes_words(opened)
    if texts and arpa:
        raise SettingError("give texts to learn an n-gram model from, or --arpa with a finished one, not both")
    utterances = _utterances(opened, valid) if tuned else None  # refused before anything is written
    vocabulary, files = opened.vocabularies.target, word_files(opened.folder)
    listed = _spellable(vocabulary, read_lexicon(lexicon), say) if lexicon else None
    model = read_arpa(arpa) if arpa else _learned(opened, texts, order, listed or [], say)
    write_arpa(model, files["ngram"])
    files["lexicon"].unlink(missing_ok=True)
    if listed is not None:
        write_text(files["lexicon"], "\n".join(listed) + "\n")
    weights = WordWeights()
    weights.write(opened.folder)
    known = len(listed) if listed is not None else len(model.words)
    made = WordModel(files["ngram"], len(model.probabilities), known, weights)
    return _tuned(opened, made, Words(vocabulary, model, listed), utterances, options, say) if utterances else made


def _learned(opened: ModelFolder, texts: Sequence[str], order: int, listed: Sequence[str], say: Say) -> NgramModel:
    sentences = [line.split() for line in _lines(opened, texts)]
    if not any(sentences):
        raise DataError(
            f"{' '.join(map(str, texts)) or opened.folder.path}: no words to learn from: every line is empty"
        )
    words = sorted({word for sentence in sentences for word in sentence})
    written = dict(zip(words, _written(opened.vocabularies.target, words), strict=True))
    say(f"learning an n-gram model of order {order} from {len(sentences):,} lines")
    return estimate(([written[word] or UNKNOWN_WORD for word in sentence] for sentence in sentences), order, listed)


def _written(vocabulary: Vocabulary, words: Sequence[str]) -> list[str]:
    """Each word as the model would write it; empty where it cannot write it."""
    texts = vocabulary.decode(vocabulary.encode(list(words), every_core=True))
    return [text if spelling else "" for text, spelling in zip(texts, spellings(vocabulary, words), strict=True)]


def _lines(opened: ModelFolder, texts: Sequence[str]) -> list[str]:
    """The texts of manifests and of plain text files; by default the training data of the run."""
    groups: list[tuple[str, ...]] = [(str(text),) for text in texts] or list(
        _recorded(opened, opened.config.data.train)
    )
    if not groups:
        raise DataError(f"{opened.folder.path}: the run does not record its training data: name files with text")
    return [line for group in groups for line in (_transcripts(group) if is_manifest(group) else read_lines(group[0]))]


def _transcripts(group: tuple[str, ...]) -> list[str]:
    return read_pairs(Corpus((group,)))[1]


def _recorded(opened: ModelFolder, setting: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return groups_from_setting(found_setting(setting, opened.folder.path))


def _spellable(vocabulary: Vocabulary, words: list[str], say: Say) -> list[str]:
    """The words of a lexicon as the model would write them, without those that it cannot write."""
    kept = [text for text in _written(vocabulary, words) if text]
    if not kept:
        raise DataError("the model can write none of the words of the lexicon: is it a lexicon of this language?")
    if len(kept) < len(words):
        say(
            f"{len(words) - len(kept):,} of {len(words):,} words of the lexicon are left out: they have characters that the "
            "model does not know"
        )
    return list(dict.fromkeys(kept))


# --- weights -----------------------------------------------------------------------------------------------------


def _tuned(
    opened: ModelFolder,
    made: WordModel,
    words: Words,
    utterances: tuple[list[Any], list[str]],
    options: LoadOptions | None,
    say: Say,
) -> WordModel:
    """The model with the weights that have the fewest word errors.

    Other weights find other texts, so the search is repeated with the weights that were best for the texts of the search before.
    """
    features, references = utterances
    say(f"tuning the weights on {len(features)} utterances")
    torch = Translator.load(opened.folder.path, options or LoadOptions(engine="torch")).engines.torch
    best, weights = None, made.weights
    for _ in range(ROUNDS):
        found = CtcEngine(torch, words, weights).candidates(features, _TEXTS)
        table = CandidateTable.of(found, references, opened.vocabularies.target)
        reached = replace(
            made,
            weights=weights,
            utterances=len(features),
            error_rate=100 * table.errors_with(weights) / max(1, table.words),
            least_error_rate=100 * table.least_errors / max(1, table.words),
        )
        best = min(best or reached, reached, key=lambda one: one.error_rate or 0.0)
        weights = table.best_weights(weights)
    assert best is not None
    best.weights.write(opened.folder)
    return best


def _utterances(opened: ModelFolder, valid: Sequence[tuple[str, ...]]) -> tuple[list[Any], list[str]]:
    """Features and texts of validation data, of which at most `TUNED` utterances are used, evenly spread."""
    groups = tuple(valid) or _recorded(opened, opened.config.data.valid)
    if not groups:
        raise DataError(
            f"{opened.folder.path}: no validation data is recorded: give some with --valid, or use --no-tune"
        )
    places = check_recordings(Corpus(groups))
    sources, references = read_pairs(Corpus(groups))
    chosen = np.linspace(0, len(sources) - 1, min(TUNED, len(sources))).astype(int).tolist()
    with naming_lines(places):
        features = [features_of_source(sources[number], opened.config.data.trim_quiet) for number in chosen]
    return features, [references[number] for number in chosen]


@dataclass(frozen=True)
class CandidateTable:
    """The texts found for utterances, as arrays [utterances, texts], with their errors. Missing texts are never chosen."""

    parts: dict[str, NDArray[np.float64]]  # of the scores
    missing: NDArray[np.float64]  # minus infinity where there is no text
    errors: NDArray[np.int64]
    words: int  # of the references
    lost: int  # errors of utterances for which no text was found

    @staticmethod
    def of(found: Sequence[Sequence[Candidate]], references: Sequence[str], vocabulary: Vocabulary) -> "CandidateTable":
        shape = len(found), max(1, max(map(len, found), default=1))
        parts = {name: np.zeros(shape) for name in ("ctc", "decoder", "ngram", "words")}
        missing, errors = np.full(shape, -np.inf), np.zeros(shape, np.int64)
        words = lost = 0
        for row, (texts, reference) in enumerate(zip(found, references, strict=True)):
            counts = count_transcript_errors(
                ["", *vocabulary.decode([text.tokens for text in texts])], [[reference]] * (len(texts) + 1), "word"
            )
            words += counts[0][1]
            lost += 0 if texts else counts[0][0]
            for column, (text, count) in enumerate(zip(texts, counts[1:], strict=True)):
                errors[row, column], missing[row, column] = count[0], 0.0
                for name, value in (("ctc", text.ctc), ("decoder", sum(text.decoder)), ("ngram", text.ngram)):
                    parts[name][row, column] = value
                parts["words"][row, column] = text.words
        return CandidateTable(parts, missing, errors, words, lost)

    @property
    def least_errors(self) -> int:
        """The errors if the best text of each utterance were chosen."""
        found = np.isfinite(self.missing)
        best = np.where(found, self.errors, self.errors.max()).min(1)
        return int(best[found.any(1)].sum()) + self.lost

    def errors_with(self, weights: WordWeights) -> int:
        parts = self.parts
        heard = weights.ctc_weight * parts["ctc"] + (1 - weights.ctc_weight) * parts["decoder"]
        scores = heard + weights.lm_weight * parts["ngram"] + weights.word_bonus * parts["words"] + self.missing
        chosen = scores.argmax(1)
        return int(self.errors[np.arange(len(chosen)), chosen].sum()) + self.lost

    def best_weights(self, weights: WordWeights) -> WordWeights:
        """The weights with the fewest errors; where several have, those in the middle of them."""
        grid = [weights.but(ctc_weight=c, lm_weight=m, word_bonus=b) for c, m, b in product(_CTC, _LM, _BONUS)]
        errors = np.array([self.errors_with(one) for one in grid])
        best = [grid[number] for number in np.flatnonzero(errors == errors.min())]
        point = np.array([[one.ctc_weight, one.lm_weight, one.word_bonus] for one in best])
        return best[int(np.abs(point - point.mean(0)).sum(1).argmin())]
