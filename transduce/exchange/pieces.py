"""Renumber the ids of a sentencepiece model, so that another toolkit's vocabulary becomes a `Vocabulary`.

Hugging Face's Marian models number their pieces in a file of their own (vocab.json), apart from the two sentencepiece
models that segment. Here the numbering goes into each model. Knows no tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as protocol

from transduce.errors import DamagedFile, DataError
from transduce.files import read_plain
from transduce.text import EOS, UNKNOWN, Units

_PIECE = protocol.ModelProto.SentencePiece
_LEARNED = (_PIECE.NORMAL, _PIECE.USER_DEFINED, _PIECE.BYTE)
_NEVER = -1e6  # the score of a piece that no text may become


@dataclass(frozen=True)
class Laid:
    """A sentencepiece model, and how many of its pieces had no id in the other numbering and were given up."""

    model: bytes
    without_id: int


def piece_names(model: bytes) -> list[str]:
    """The pieces in the order of their ids."""
    return [piece.piece for piece in _read(model).pieces]


def language_codes(model: bytes) -> list[str]:
    """Pieces like `>>de<<` that a text may begin with, as they stand in the model."""
    named = (piece.piece for piece in _read(model).pieces if piece.type == _PIECE.USER_DEFINED)
    return [name for name in named if is_language_code(name.removeprefix("▁"))]


def is_language_code(name: str) -> bool:
    return name.startswith(">>") and name.endswith("<<")


def lay_out(model: bytes, names: Sequence[str], codes: bool = True) -> Laid:
    """The model whose id n is the piece names[n]; the first two are `</s>` and `<unk>`.

    A name the model does not have can be read out but no text becomes it. With `codes`, a language code (which the
    model never saw because it was cut off before) becomes a piece that takes the blank before it along.
    """
    given = _read(model)
    if [piece.piece for piece in given.pieces] == list(names):
        return Laid(model, 0)
    known = {piece.piece: piece for piece in given.pieces if piece.type in _LEARNED}
    laid = protocol.ModelProto()
    laid.CopyFrom(given)
    del laid.pieces[:]
    laid.pieces.append(_PIECE(piece="</s>", score=0, type=_PIECE.CONTROL))
    laid.pieces.append(_PIECE(piece="<unk>", score=0, type=_PIECE.UNKNOWN))
    laid.pieces.extend(known.get(name) or _unseen(name, codes) for name in names[UNKNOWN + 1 :])
    _settle(laid)
    return Laid(laid.SerializeToString(), len(known.keys() - set(names)))


def _unseen(name: str, codes: bool) -> protocol.ModelProto.SentencePiece:
    if codes and is_language_code(name):
        return _PIECE(piece=f"▁{name}", score=0, type=_PIECE.USER_DEFINED)
    return _PIECE(piece=name, score=_NEVER, type=_PIECE.UNUSED)


def _settle(laid: protocol.ModelProto) -> None:
    """What the model says of itself must fit its pieces."""
    spec = laid.trainer_spec
    spec.eos_id, spec.unk_id, spec.bos_id, spec.pad_id = EOS, UNKNOWN, -1, -1
    spec.eos_piece, spec.unk_piece, spec.vocab_size = "</s>", "<unk>", len(laid.pieces)
    if spec.byte_fallback and sum(piece.type == _PIECE.BYTE for piece in laid.pieces) < 256:
        spec.byte_fallback = False
        for piece in laid.pieces:
            piece.type = _PIECE.UNUSED if piece.type == _PIECE.BYTE else piece.type


def read_model(path: Path) -> bytes:
    """The file, if it is a sentencepiece model at all, and one that can be used."""
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
    """A text is what its pieces spell, each by itself."""
    if _read(model).denormalizer_spec.precompiled_charsmap:
        raise DataError(f"{path}: rewrites texts after decoding (denormalization), which is not supported")


def _read(model: bytes) -> protocol.ModelProto:
    given = protocol.ModelProto()
    given.ParseFromString(model)
    return given


def units(model: bytes) -> Units:
    """The kind of pieces, as the setting `data.source_units` names it."""
    kinds: dict[int, Units] = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
    return kinds[_read(model).trainer_spec.model_type]


def normalization(model: bytes) -> str:
    """The rule a text goes through first, by its name; that of a rule of somebody's own is not known."""
    return str(_read(model).normalizer_spec.name)


def falls_back_to_bytes(model: bytes) -> bool:
    return bool(_read(model).trainer_spec.byte_fallback)
