"""The times and confidences of the words of a transcript, from the CTC output of a speech model."""

from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray

from transduce.audio.features import FRAME_SECONDS
from transduce.audio.utterances import Features
from transduce.config.models.speech import SHORTER
from transduce.model import collate
from transduce.model.speech import SpeechModel
from transduce.scripts import is_unspaced, script_of_texts
from transduce.search.ctc_alignment import align
from transduce.text import WORD_START, Vocabulary
from transduce.translator.translator import Translator

POSITION_SECONDS = SHORTER * FRAME_SECONDS


@dataclass(frozen=True)
class Word:
    """A word with its time in the recording."""

    text: str
    begin: float  # seconds
    end: float
    confidence: float  # the mean probability of its tokens where they are heard, as a geometric mean


def knows_times(translator: Translator) -> bool:
    """Whether the model has a CTC output, from which the times of words come."""
    return isinstance(translator.model, SpeechModel) and translator.model.ctc is not None


@dataclass(frozen=True)
class CtcAlignment:
    """Which positions of the encoder emit which token of a text, on the most probable path of CTC."""

    ids: list[int]
    spans: list[tuple[int, int]]  # the first position of each token, and the one after its last
    log_probs: NDArray[np.float32]  # [position, token]

    def emitted(self) -> list[int | None]:
        """For each position, the number of the token that it emits; None for blank."""
        found: list[int | None] = [None] * len(self.log_probs)
        for number, (begin, end) in enumerate(self.spans):
            found[begin:end] = [number] * (end - begin)
        return found

    def probabilities(self) -> list[float]:
        """For each position, the probability of what it emits; of a blank, that of the blank."""
        blank = self.log_probs.shape[1] - 1
        emitted = [blank if number is None else self.ids[number] for number in self.emitted()]
        return [float(np.exp(row[token])) for row, token in zip(self.log_probs, emitted, strict=True)]


def ctc_alignment(translator: Translator, features: Features, text: str) -> CtcAlignment | None:
    """The alignment of an utterance with its text.

    There is none if the model has no CTC output, or if the utterance is too short to hold the text.
    """
    model, vocabulary = translator.model, translator.vocabularies.target
    ids = vocabulary.encode([text])[0][:-1]
    if not isinstance(model, SpeechModel) or model.ctc is None or not ids:
        return None
    with torch.inference_mode():
        memory = model.eval().encode(collate([features], 0).to(translator.device.torch))
        log_probs = model.ctc_log_probs(memory)[0].cpu().numpy()
    spans = align(log_probs, ids)
    return CtcAlignment(ids, spans, log_probs) if spans else None


def words_of(translator: Translator, features: Features, text: str) -> list[Word]:
    """The words of an utterance's text, with times from its beginning; none if there is no alignment."""
    found, vocabulary = ctc_alignment(translator, features, text), translator.vocabularies.target
    if not found:
        return []
    length = len(features) * FRAME_SECONDS
    return [
        _word(vocabulary, [found.ids[n] for n in group], [found.spans[n] for n in group], found.log_probs, length)
        for group in _groups(vocabulary, found.ids, text)
    ]


def _groups(vocabulary: Vocabulary, ids: list[int], text: str) -> list[list[int]]:
    """The numbers of the tokens of each word; without spaces between words, each token is one."""
    pieces = vocabulary.pieces(ids)
    letters = [number for number, piece in enumerate(pieces) if piece != WORD_START]
    if is_unspaced(script_of_texts([text])):
        return [[number] for number in letters]
    word, of_piece = 0, list[int]()
    for piece in pieces:
        word += piece.startswith(WORD_START)
        of_piece.append(word)
    return [list(group) for _, group in groupby(letters, key=lambda number: of_piece[number])]


def _word(
    vocabulary: Vocabulary, ids: list[int], spans: list[tuple[int, int]], log_probs: NDArray[np.float32], length: float
) -> Word:
    heard = [log_probs[begin:end, token].mean() for token, (begin, end) in zip(ids, spans, strict=True)]
    # A position of the encoder is centred on the first of its four frames.
    begin, end = (min(length, max(0.0, (at - 0.5) * POSITION_SECONDS)) for at in (spans[0][0], spans[-1][1]))
    return Word(vocabulary.decode([ids])[0].strip(), begin, end, float(np.exp(np.mean(heard))))
