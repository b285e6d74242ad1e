"""A sentencepiece vocabulary as a tokenizer.json of Hugging Face's `tokenizers`, for language models.

Ids stay the same. In a language model `</s>` stands for the line break, so its token is spelt as one; `<pad>`, which begins a
document, is spelt `<s>`.
"""

from pathlib import Path
from typing import Any

from sentencepiece import sentencepiece_model_pb2 as protocol

from transduce.errors import SettingError
from transduce.text import EOS, UNKNOWN, WORD_START, Vocabulary

START, LINE_BREAK, SPACE = "<s>", "\n", WORD_START
UNITS = {1: "unigram", 2: "bpe", 4: "char"}
_PIECE = protocol.ModelProto.SentencePiece
_NEVER = -1e4  # the score of a piece that is not found in texts


def refuse_vocabulary(vocabulary: Vocabulary) -> None:
    """Refuse vocabularies that the exported tokenizer would not segment alike."""
    model = _read(vocabulary)
    symbols = [piece.piece for piece in model.pieces if piece.type == _PIECE.USER_DEFINED]
    wrong = [
        (model.trainer_spec.model_type not in UNITS, "data.target_units = word", "data.target_units=char"),
        (bool(model.normalizer_spec.precompiled_charsmap), "data.normalization", "data.normalization=identity"),
        (model.normalizer_spec.remove_extra_whitespaces, "data.normalization", "data.normalization=identity"),
        (bool(symbols), f"data.symbols = {','.join(symbols[:1])}", "no symbols"),
        (
            any(piece.piece in (START, LINE_BREAK) for piece in model.pieces),
            "the vocabulary's piece <s>",
            "another vocabulary",
        ),
    ]
    for refused, what, instead in wrong:
        if refused:
            raise SettingError(
                f"{what}: not supported by the tokenizer of an exported language model; train with {instead}"
            )


def write_tokenizer(vocabulary: Vocabulary, context: int, ends_in_line_break: bool, folder: Path) -> dict[str, Any]:
    """Write tokenizer.json; the result is tokenizer_config.json."""
    from tokenizers import AddedToken, processors

    tokenizer = make_tokenizer(vocabulary)
    tokenizer.add_special_tokens([AddedToken(START, normalized=False)])
    tokenizer.add_tokens([AddedToken(LINE_BREAK, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", pair=f"{START} $A $B", special_tokens=[(START, vocabulary.pad)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": START,
        "pad_token": START,
        "unk_token": "<unk>",
        "eos_token": LINE_BREAK if ends_in_line_break else None,
        "padding_side": "left",
        "model_max_length": context,
        "split_special_tokens": True,  # `<s>` in the input is ordinary text
        "clean_up_tokenization_spaces": False,
    }


def make_tokenizer(vocabulary: Vocabulary) -> Any:
    """The `tokenizers.Tokenizer` that splits lines as sentencepiece does."""
    from tokenizers import Tokenizer, decoders, normalizers

    model = _read(vocabulary)
    prefixed = model.normalizer_spec.add_dummy_prefix
    tokenizer = Tokenizer(_model(model))
    prefix = [normalizers.Prepend(SPACE)] if prefixed else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE)])
    spelling = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefixed:  # every line begins with a space that is not in the text
        spelling += [decoders.Replace("\n ", "\n"), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(spelling)
    return tokenizer


def _model(model: protocol.ModelProto) -> Any:
    from tokenizers import models

    names = _names(model)
    by_bytes = bool(model.trainer_spec.byte_fallback)
    if UNITS[model.trainer_spec.model_type] == "unigram":
        scores = [piece.score if piece.type == _PIECE.NORMAL else _NEVER for piece in model.pieces]
        return models.Unigram(list(zip(names, [*scores, _NEVER], strict=True)), UNKNOWN, by_bytes)
    ids = {name: number for number, name in enumerate(names)}
    return models.BPE(ids, _merges(model), unk_token="<unk>", fuse_unk=not by_bytes, byte_fallback=by_bytes)


def _names(model: protocol.ModelProto) -> list[str]:
    names = [*(piece.piece for piece in model.pieces), START]
    names[EOS] = LINE_BREAK
    return names


def _merges(model: protocol.ModelProto) -> list[tuple[str, str]]:
    """Every way to make a piece from two others; better pieces first. Characters have none."""
    known = {piece.piece: piece.score for piece in model.pieces if piece.type == _PIECE.NORMAL}
    found = [
        (-score, (piece[:cut], piece[cut:]))
        for piece, score in known.items()
        for cut in range(1, len(piece))
        if piece[:cut] in known and piece[cut:] in known
    ]
    return [pair for _, pair in sorted(found)]


def _read(vocabulary: Vocabulary) -> protocol.ModelProto:
    model = protocol.ModelProto()
    model.ParseFromString(vocabulary.model)
    return model
