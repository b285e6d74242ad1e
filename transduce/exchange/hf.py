"""Export to Hugging Face: a folder that AutoModelForSeq2SeqLM and AutoTokenizer load without our code.

A post-norm model becomes a `MarianMTModel` and a pre-norm model a `PegasusForConditionalGeneration`. Both use a
`MarianTokenizer`, which reads ids from a JSON file and not from the sentencepiece models. Ids stay the same; if the two sides
have separate embeddings, the shorter table is extended, because `<pad>` must be the last id of both.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from transduce import __version__
from transduce.checkpoint import Tensors
from transduce.config import Config, TransformerConfig
from transduce.config.support import ANY, DROPOUT, SIZES, Supports
from transduce.errors import SettingError
from transduce.exchange.cards import write_card
from transduce.exchange.naming import hf_names, layer_parameters, sines_first, to_theirs
from transduce.exchange.pieces import is_language_code, language_codes, piece_names
from transduce.model import Transformer
from transduce.text import EOS, UNKNOWN, WORD_START, Vocabularies, Vocabulary
from transduce.translator import LONGEST_SOURCE, ModelFolder

LONGEST_OUTPUT = 512  # tokens; `generate` has one limit for all sentences, ours depends on the input


# Marian and Pegasus together.
SUPPORTS = Supports(
    TransformerConfig,
    {
        **SIZES,
        **DROPOUT,
        "norm": ("post", "pre"),
        "positions": ("sinusoidal", "marian", "learned", "none"),
        "activation": ("relu", "gelu", "swish"),
        "output_bias": ANY,
        "tie": ("all", "target", "none"),
    },
)


def refuse(opened: ModelFolder) -> None:
    """Refuse settings that Marian and Pegasus do not support."""
    model = opened.config.transformer
    wrong = [
        (bool(setting := SUPPORTS.refusal(model)), setting),
        (model.key_width * model.num_heads != model.d_model, f"model.d_k = {model.d_k}"),
        (model.value_width * model.num_heads != model.d_model, f"model.d_v = {model.d_v}"),
        *((True, f"the vocabulary's piece {name}") for name in _unsupported_pieces(opened.vocabularies)),
    ]
    for refused, what in wrong:
        if refused:
            raise SettingError(f"{what}: not supported by Hugging Face's Marian and Pegasus")


def _unsupported_pieces(both: Vocabularies) -> list[str]:
    """Pieces that the exported tokenizer cannot produce: it removes a language code before segmenting, with its space."""
    codes = [name for name in language_codes(both.source.model) if not name.startswith(WORD_START)]
    return codes + [name for one in (both.source, both.target) for name in piece_names(one.model) if name == "<pad>"]


def write(opened: ModelFolder, model: Transformer, folder: Path) -> None:
    """Write all files of the folder."""
    both, config = opened.vocabularies, opened.config
    size = max(both.source.size, both.target.size)
    tensors = {
        name: tensor.detach().contiguous().clone()
        for name, tensor in hf_tensors(model, size, max_positions(config)).items()
    }
    (folder / "model.safetensors").write_bytes(save(tensors, {"format": "pt", "transduce": __version__}))
    _write_json(folder / "config.json", hf_settings(config, size))
    _write_json(folder / "generation_config.json", _generation(config, size))
    _write_tokenizer(config, both, size, folder)
    write_card(opened, folder, USE, _front(opened))


# --- weights ---------------------------------------------------------------------------------------------------


def hf_tensors(model: Transformer, size: int, positions: int) -> Tensors:
    """Every parameter under its Hugging Face name; embeddings have `size` ids, the last of which is `<pad>`."""
    ours: Tensors = dict(model.named_parameters())
    theirs: Tensors = {}
    for parameter in layer_parameters(model.config, hf_names):
        theirs |= to_theirs(ours, parameter)
    if model.config.norm == "pre":
        for side in ("encoder", "decoder"):
            theirs |= {f"model.{side}.layer_norm.{kind}": sines_first(ours[f"{side}_norm.{kind}"], 0) for kind in ("weight", "bias")}  # fmt: skip
    for side, kind in (("encoder", model.source_positions), ("decoder", model.target_positions)):
        theirs[f"model.{side}.embed_positions.weight"] = sines_first(kind.table_of(positions), 1)
    return theirs | _embeddings(model, size) | {"final_logits_bias": _bias(model, size)}


def _embeddings(model: Transformer, size: int) -> Tensors:
    target = _extended(model.target_embedding.weight, size)
    if model.config.tie == "all":
        return {"model.shared.weight": target}
    named = {
        "model.encoder.embed_tokens.weight": _extended(model.source_embedding.weight, size),
        "model.decoder.embed_tokens.weight": target,
        "lm_head.weight": _extended(model.output_embedding.weight, size),
    }
    return named if model.config.norm == "post" else named | {"model.shared.weight": target}


def _extended(table: Tensor, size: int) -> Tensor:
    """The embeddings of the pieces, zeros for unused ids, and `<pad>`."""
    unused = table.new_zeros(size - len(table), table.shape[1])
    return sines_first(torch.cat([table[:-1], unused, table[-1:]]), 1)


def _bias(model: Transformer, size: int) -> Tensor:
    """The output bias. Hugging Face can predict every id; -inf excludes those that are not classes of our model."""
    bias = torch.full((1, size), -torch.inf)
    bias[0, : model.target_pad] = 0 if model.output_bias is None else model.output_bias.detach()
    return bias


# --- settings --------------------------------------------------------------------------------------------------


def max_positions(config: Config) -> int:
    """The number of positions, which bounds the length of sentences."""
    if limit := config.model.longest_target:
        return limit
    return LONGEST_SOURCE + min(config.search.max_extra, LONGEST_SOURCE)


def hf_settings(config: Config, size: int) -> dict[str, Any]:
    """config.json."""
    model = config.transformer
    kind = {"post": ("marian", "MarianMTModel"), "pre": ("pegasus", "PegasusForConditionalGeneration")}[model.norm]
    return {
        "model_type": kind[0],
        "architectures": [kind[1]],
        "is_encoder_decoder": True,
        "vocab_size": size,
        "d_model": model.d_model,
        "encoder_layers": model.num_encoder_layers,
        "decoder_layers": model.num_decoder_layers,
        "num_hidden_layers": model.num_encoder_layers,
        **{f"{side}_attention_heads": model.num_heads for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": model.d_ff for side in ("encoder", "decoder")},
        "activation_function": model.activation,
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.activation_dropout,
        "scale_embedding": True,
        "max_position_embeddings": max_positions(config),
        "tie_word_embeddings": model.tie == "all",
        "pad_token_id": size - 1,
        "decoder_start_token_id": size - 1,
        "eos_token_id": EOS,
        "bos_token_id": None,
        "forced_eos_token_id": None,  # would add `</s>` at the limit with probability 1
        "dtype": "float32",
        **_specific_settings(model, size),
    }


def _specific_settings(model: TransformerConfig, size: int) -> dict[str, Any]:
    """Settings that only one of the two has; CTranslate2's converter needs those of Pegasus."""
    if model.norm == "pre":
        return {"normalize_before": True, "normalize_embedding": False, "add_final_layer_norm": True}
    return {"decoder_vocab_size": size, "share_encoder_decoder_embeddings": model.tie == "all"}


def _generation(config: Config, size: int) -> dict[str, Any]:
    """generation_config.json: our search settings, as far as Hugging Face supports them."""
    search = config.search
    beam = {"length_penalty": search.alpha, "early_stopping": "never"} if search.beam > 1 else {}
    return {
        "eos_token_id": EOS,
        "pad_token_id": size - 1,
        "decoder_start_token_id": size - 1,
        "bos_token_id": None,
        "forced_eos_token_id": None,
        "max_length": min(LONGEST_OUTPUT, max_positions(config)),
        "num_beams": search.beam,
        **beam,
        **({} if search.allow_unknown else {"suppress_tokens": [UNKNOWN]}),
    }


# --- tokenizer -------------------------------------------------------------------------------------------------


def _write_tokenizer(config: Config, both: Vocabularies, size: int, folder: Path) -> None:
    apart = config.transformer.tie != "all"
    source_language, target_language = config.data.languages or (None, None)
    (folder / "source.spm").write_bytes(both.source.model)
    (folder / "target.spm").write_bytes(both.target.model)
    _write_json(folder / "vocab.json", _ids(both.source, size))
    if apart:
        _write_json(folder / "target_vocab.json", _ids(both.target, size))
    settings: dict[str, Any] = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": source_language,
        "target_lang": target_language,
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "model_max_length": min(LONGEST_SOURCE, max_positions(config)),
        "separate_vocabs": apart,
        "split_special_tokens": True,  # `</s>` in the input is ordinary text
        "clean_up_tokenization_spaces": False,
        "sp_model_kwargs": {},
    }
    _write_json(folder / "tokenizer_config.json", settings)


def _ids(vocabulary: Vocabulary, size: int) -> dict[str, int]:
    names = piece_names(vocabulary.model)
    codes = {name: name.removeprefix(WORD_START) for name in names if is_language_code(name.removeprefix(WORD_START))}
    return {**{codes.get(name, name): number for number, name in enumerate(names)}, "<pad>": size - 1}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


# --- card ------------------------------------------------------------------------------------------------------


def _front(opened: ModelFolder) -> list[str]:
    """Metadata for the Hugging Face hub; the user must add the licence, which depends on the data."""
    languages = opened.config.data.languages
    return [
        "---",
        *(["language:", *(f"- {code}" for code in dict.fromkeys(languages))] if languages else []),
        "tags:",
        "- translation",
        "- transduce",
        "pipeline_tag: translation",
        "library_name: transformers",
        "# license: add one; it depends on the training data",
        "---",
        "",
    ]


USE = """
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForSeq2SeqLM.from_pretrained(".")
batch = tokenizer(["..."], return_tensors="pt", padding=True)
tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True)
```
"""
