"""Renumber the ids of a sentencepiece model, so that another toolkit's vocabulary becomes a `Vocabulary`.

Hugging Face's Marian models have their ids in a separate file (vocab.json), and the two sentencepiece models only segment.
Our vocabularies have the ids in the sentencepiece model. Knows no tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as protocol

from transduce.errors import DamagedFile, DataError
from transduce.files import read_plain
from transduce.text import EOS, UNKNOWN, WORD_START, Units

_PIECE = protocol.ModelProto.SentencePiece
_LEARNED = (_PIECE.NORMAL, _PIECE.USER_DEFINED, _PIECE.BYTE)
_NEVER = -1e6  # the score of a piece that no segmentation uses


@dataclass(frozen=True)
class Renumbered:
    """A sentencepiece model, and how many pieces were dropped because they had no id."""

    model: bytes
    without_id: int


def piece_names(model: bytes) -> list[str]:
    """The pieces in the order of their ids."""
    return [piece.piece for piece in _read(model).pieces]


def language_codes(model: bytes) -> list[str]:
    """Pieces like `>>de<<` that a text may begin with, as spelt in the model."""
    named = (piece.piece for piece in _read(model).pieces if piece.type == _PIECE.USER_DEFINED)
    return [name for name in named if is_language_code(name.removeprefix(WORD_START))]


def is_language_code(name: str) -> bool:
    return name.startswith(">>") and name.endswith("<<")


def renumber(model: bytes, names: Sequence[str], codes: bool = True) -> Renumbered:
    """The model in which id n is the piece names[n]; the first two are `</s>` and `<unk>`.

    A name that the model does not have can be decoded, but no text is encoded to it. With `codes`, a language code, which is
    not in the model because Hugging Face removes it before segmenting, becomes a piece that includes the space before it.
    """
    given = _read(model)
    if [piece.piece for piece in given.pieces] == list(names):
        return Renumbered(model, 0)
    known = {piece.piece: piece for piece in given.pieces if piece.type in _LEARNED}
    renumbered = protocol.ModelProto()
    renumbered.CopyFrom(given)
    del renumbered.pieces[:]
    renumbered.pieces.append(_PIECE(piece="</s>", score=0, type=_PIECE.CONTROL))
    renumbered.pieces.append(_PIECE(piece="<unk>", score=0, type=_PIECE.UNKNOWN))
    renumbered.pieces.extend(known.get(name) or _new_piece(name, codes) for name in names[UNKNOWN + 1 :])
    _update_metadata(renumbered)
    return Renumbered(renumbered.SerializeToString(), len(known.keys() - set(names)))


def _new_piece(name: str, codes: bool) -> protocol.ModelProto.SentencePiece:
    if codes and is_language_code(name):
        return _PIECE(piece=f"{WORD_START}{name}", score=0, type=_PIECE.USER_DEFINED)
    return _PIECE(piece=name, score=_NEVER, type=_PIECE.UNUSED)


def _update_metadata(renumbered: protocol.ModelProto) -> None:
    """Make the metadata of the model consistent with its pieces."""
    spec = renumbered.trainer_spec
    spec.eos_id, spec.unk_id, spec.bos_id, spec.pad_id = EOS, UNKNOWN, -1, -1
    spec.eos_piece, spec.unk_piece, spec.vocab_size = "</s>", "<unk>", len(renumbered.pieces)
    if spec.byte_fallback and sum(piece.type == _PIECE.BYTE for piece in renumbered.pieces) < 256:
        spec.byte_fallback = False
        for piece in renumbered.pieces:
            piece.type = _PIECE.UNUSED if piece.type == _PIECE.BYTE else piece.type


def read_model(path: Path) -> bytes:
    """Read a file, and check that it is a sentencepiece model that we support."""
    try:
        content = read_plain(path)
    except OSError as error:
        raise DamagedFile(f"{path}: cannot be read ({error.strerror})") from None
    try:
        sentencepiece.SentencePieceProcessor().LoadFromSerializedProto(content)
    except RuntimeError:
        raise DamagedFile(f"{path}: not a sentencepiece model") from None
    check_spelling(content, path)
    return content


def check_spelling(model: bytes, path: Path) -> None:
    """Refuse models with denormalization: a decoded text must be the concatenation of its pieces."""
    if _read(model).denormalizer_spec.precompiled_charsmap:
        raise DataError(f"{path}: rewrites texts after decoding (denormalization), which is not supported")


def _read(model: bytes) -> protocol.ModelProto:
    given = protocol.ModelProto()
    given.ParseFromString(model)
    return given


def units(model: bytes) -> Units:
    """The kind of pieces, as in the setting `data.source_units`."""
    kinds: dict[int, Units] = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
    return kinds[_read(model).trainer_spec.model_type]


def normalization(model: bytes) -> str:
    """The name of the normalization rule; custom rules have other names than ours."""
    return str(_read(model).normalizer_spec.name)


def falls_back_to_bytes(model: bytes) -> bool:
    return bool(_read(model).trainer_spec.byte_fallback)
