"""Import Hugging Face models: Marian folders, and the Pegasus folders that we export for pre-norm models.

Weights are read from safetensors only. For pickled weights, the error gives the command that converts them.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.checkpoint import Tensors, read_foreign
from transduce.config import Config, SearchConfig, TransformerConfig
from transduce.errors import DamagedFile, DataError
from transduce.exchange.imported import Imported, Tables, data_settings, validated
from transduce.exchange.naming import alternating, hf_names, layer_parameters, to_ours
from transduce.exchange.pieces import read_model, renumber
from transduce.files import read_plain
from transduce.model.positions import Positions
from transduce.text import Vocabularies, Vocabulary

Json = dict[str, Any]
WEIGHTS = "model.safetensors"
LARGEST_JSON = 100_000_000  # bytes
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
SAME = 1e-4  # positions that differ less than this from sinusoids are sinusoids


def is_hf(source: Path) -> bool:
    return (source / "config.json").is_file()


def read_hf(folder: Path) -> Imported:
    """Read the model of a folder, with its vocabularies and search settings."""
    config = _json(folder / "config.json")
    _refuse(folder, config)
    theirs = _weights(folder)
    numbering = _Numbering.read(folder)
    both, notes = numbering.vocabularies()
    tables = _tables(folder, config, theirs, numbering)
    ours = validated(
        _config(folder, config, both, numbering, tables)
    )  # checks the bounds of all sizes before they are used
    _check_width(folder, ours.transformer, tables)
    read = _HfWeights(folder, theirs)
    positions = _positions(read, ours.transformer)
    ours = validated(replace(ours, model=positions.model))
    tensors = {parameter.ours: to_ours(read, parameter) for parameter in layer_parameters(ours.transformer, hf_names)}
    if ours.transformer.norm == "pre":
        for side in ("encoder", "decoder"):
            for kind in ("weight", "bias"):
                tensors[f"{side}_norm.{kind}"] = alternating(read(f"model.{side}.layer_norm.{kind}"), 0)
    tensors |= tables.tensors(ours.transformer) | positions.tensors
    return Imported(f"Hugging Face {config['model_type']} model {folder.resolve().name}", ours, both, tensors, notes)


# --- reading files ---------------------------------------------------------------------------------------------


def _json(path: Path) -> Json:
    try:
        found = json.loads(read_plain(path, LARGEST_JSON))
    except FileNotFoundError:
        raise DataError(f"{path}: not found; a Hugging Face Marian model needs it") from None
    except OSError as error:
        raise DamagedFile(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{path}: not JSON ({error})") from None
    if not isinstance(found, dict):
        raise DamagedFile(f"{path}: not a JSON object")
    return found


def _weights(folder: Path) -> Tensors:
    path = folder / WEIGHTS
    if not path.exists() and (folder / "model.safetensors.index.json").exists():
        raise DataError(f"{folder}: its weights are in several files: save them in one file with save_pretrained")
    if not path.exists() and list(folder.glob("*.bin")):
        raise DataError(
            f"{folder}: its weights are pickled (pytorch_model.bin), and opening a pickle can run any code. If you trust "
            'its source, convert them: python -c "import sys, transformers as t; '
            't.AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])" '
            f"{folder}"
        )
    if not path.exists():
        raise DataError(f"{path}: not found: the weights are missing")
    return {name: tensor.float() for name, tensor in read_foreign(path).items()}


class _HfWeights:
    """Looks up a parameter by name."""

    def __init__(self, folder: Path, theirs: Tensors) -> None:
        self.folder, self.theirs = folder, theirs

    def __call__(self, name: str) -> Tensor:
        if name not in self.theirs:
            raise DataError(f"{self.folder / WEIGHTS}: has no {name}, which its config.json requires")
        return self.theirs[name]


# --- settings --------------------------------------------------------------------------------------------------


def _refuse(folder: Path, config: Json) -> None:
    """Refuse what our model does not support, by its name in config.json."""
    kind = config.get("model_type")
    if kind not in ("marian", "pegasus"):
        raise DataError(
            f"{folder}: config.json has model_type {kind}; only marian, and pegasus as `transduce export` writes it, can be imported"
        )
    activation = config.get("activation_function")
    differ = [n for n in ("attention_heads", "ffn_dim") if config.get(f"encoder_{n}") != config.get(f"decoder_{n}")]
    wrong = [
        *((True, f"encoder_{name} and decoder_{name} differ") for name in differ),
        (not isinstance(activation, str) or activation not in ACTIVATIONS, f"activation_function {activation}"),
        (config.get("scale_embedding") is not True, "scale_embedding is not true"),
        (config.get("normalize_embedding") is True, "normalize_embedding"),
        (kind == "marian" and config.get("normalize_before") is True, "normalize_before"),
        (config.get("decoder_start_token_id") != config.get("pad_token_id"), "decoding does not start from <pad>"),
    ]
    for refused, what in wrong:
        if refused:
            raise DataError(f"{folder / 'config.json'}: {what}: not supported by Transduce")


def _check_width(folder: Path, model: TransformerConfig, tables: Tables) -> None:
    """The width in the settings must be that of the embeddings."""
    for table in (tables.source, tables.target, tables.output):
        if table.dim() != 2 or table.shape[1] != model.d_model:
            raise DataError(
                f"{folder}: config.json has d_model {model.d_model}, but the embeddings are {list(table.shape)}"
            )


def _config(folder: Path, config: Json, both: Vocabularies, numbering: "_Numbering", tables: Tables) -> Config:
    tokenizer = _json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").exists() else {}
    languages = tuple(str(tokenizer.get(name) or "") for name in ("source_lang", "target_lang"))
    data = data_settings(both, languages if all(languages) else ())
    generation = folder / "generation_config.json"
    generation_settings = {**config, **(_json(generation) if generation.exists() else {})}
    try:
        model = _model_settings(config, tables, data.joint)
        search = _search_settings(generation_settings, numbering.ids[1].get("<unk>"))
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise DamagedFile(f"{folder / 'config.json'}: cannot be read: {error}") from None
    return Config(model=model, data=data, search=search)


def _model_settings(config: Json, tables: Tables, joint: bool) -> TransformerConfig:
    return TransformerConfig(
        d_model=int(config["d_model"]),
        d_ff=int(config["encoder_ffn_dim"]),
        num_heads=int(config["encoder_attention_heads"]),
        num_encoder_layers=int(config["encoder_layers"]),
        num_decoder_layers=int(config["decoder_layers"]),
        dropout=float(config.get("dropout", 0.1)),
        attention_dropout=float(config.get("attention_dropout", 0)),
        activation_dropout=float(config.get("activation_dropout", 0)),
        norm="pre" if config["model_type"] == "pegasus" else "post",
        activation=ACTIVATIONS[config["activation_function"]],  # type: ignore[arg-type]
        output_bias=tables.bias is not None,
        tie=tables.tie(joint),
    )


def _search_settings(generation: Json, unknown: int | None) -> SearchConfig:
    penalty = generation.get("length_penalty")
    return SearchConfig(
        beam=int(generation.get("num_beams") or 1),
        alpha=1.0 if penalty is None else float(penalty),
        length_penalty="power",
        allow_unknown=unknown not in (generation.get("suppress_tokens") or []),
    )


# --- vocabularies and embeddings -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Numbering:
    """The two sentencepiece models of a folder, and the ids of their pieces in its JSON files."""

    folder: Path
    models: tuple[bytes, bytes]
    ids: tuple[dict[str, int], dict[str, int]]  # source and target; the same dictionary unless the folder has two

    @staticmethod
    def read(folder: Path) -> "_Numbering":
        for name in ("source.spm", "target.spm"):
            if not (folder / name).is_file():
                raise DataError(
                    f"{folder / name}: not found; a Hugging Face Marian model needs source.spm and target.spm"
                )
        source = _json(folder / "vocab.json")
        target = _json(folder / "target_vocab.json") if (folder / "target_vocab.json").exists() else source
        for ids, name in ((source, "vocab.json"), (target, "target_vocab.json")):
            if not all(type(number) is int and number >= 0 for number in ids.values()):
                raise DamagedFile(f"{folder / name}: every piece must have an id that is an integer of at least 0")
        models = (read_model(folder / "source.spm"), read_model(folder / "target.spm"))
        return _Numbering(folder, models, (source, target))

    def vocabularies(self) -> tuple[Vocabularies, list[str]]:
        found: list[Vocabulary] = []
        notes: list[str] = []
        for model, ids, side in zip(self.models, self.ids, ("source", "target"), strict=True):
            renumbered = renumber(model, self.names(ids)[:-1], codes=side == "source")
            found.append(Vocabulary(renumbered.model))
            if renumbered.without_id:
                notes.append(
                    f"{renumbered.without_id} pieces of {side}.spm have no id in vocab.json: Hugging Face replaces them by "
                    "<unk>; here their text is split into smaller pieces"
                )
        if found[0].model == found[1].model:
            found[1] = found[0]
        return Vocabularies(found[0], found[1]), notes

    def names(self, ids: dict[str, int]) -> list[str]:
        """In our order: `</s>`, `<unk>`, the pieces, `<pad>`."""
        special = ("</s>", "<unk>", "<pad>")
        if missing := [name for name in special if name not in ids]:
            raise DataError(f"{self.folder}: its vocabulary has no {', '.join(missing)}")
        pieces = sorted((name for name in ids if name not in special), key=ids.__getitem__)
        return ["</s>", "<unk>", *pieces, "<pad>"]

    def rows(self, side: int) -> Tensor:
        """The rows of our ids in the tables of the file."""
        return torch.tensor([self.ids[side][name] for name in self.names(self.ids[side])])


def _tables(folder: Path, config: Json, theirs: Tensors, numbering: _Numbering) -> Tables:
    shared = theirs.get("model.shared.weight")

    def table(*names: str) -> Tensor:
        found = next((theirs[name] for name in names if name in theirs), shared)
        if found is None:
            raise DataError(f"{folder / WEIGHTS}: has no {names[0]}, which its config.json requires")
        return found

    source = table("model.encoder.embed_tokens.weight")
    target = table("model.decoder.embed_tokens.weight")
    untied = config.get("tie_word_embeddings") is False and "lm_head.weight" in theirs
    output = theirs["lm_head.weight"] if untied else target
    source_rows, target_rows = numbering.rows(0), numbering.rows(1)
    for rows, size, name in ((source_rows, len(source), "vocab.json"), (target_rows, len(target), "the target's ids")):
        if int(rows.max()) >= size:
            raise DataError(f"{folder}: {name} has ids up to {int(rows.max())}, but there are {size} embeddings")
    bias = theirs.get("final_logits_bias", target.new_zeros(1, len(target)))[0]
    _refuse_unnamed(folder, bias, target_rows)
    bias = bias[target_rows[:-1]]
    return Tables(source[source_rows], target[target_rows], output[target_rows], bias if bool(bias.any()) else None)


def _refuse_unnamed(folder: Path, bias: Tensor, rows: Tensor) -> None:
    """Refuse ids without a piece, unless their bias of -inf prevents them from being predicted."""
    unnamed = torch.isfinite(bias).index_fill(0, rows, False)
    if bool(unnamed.any()):
        raise DataError(f"{folder}: {int(unnamed.sum())} ids have embeddings but no piece in its vocabulary")


# --- positions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Positions:
    """The model settings with the kind of positions, and the tables of learned positions."""

    model: TransformerConfig
    tensors: Tensors


def _positions(read: _HfWeights, model: TransformerConfig) -> _Positions:
    """Which positions the model has: Hugging Face computes sinusoids if the file has no table; a table may hold any."""
    names = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    if not any(name in read.theirs for name in names):
        return _Positions(model, {})
    tables = [alternating(read(name), 1) for name in names]
    for kind in ("sinusoidal", "marian", "none"):
        formula = replace(model, positions=kind)
        if all(float((table - _formula(formula, len(table))).abs().max()) < SAME for table in tables):
            return _Positions(formula, {})
    learned = replace(model, positions="learned", max_positions=len(tables[0]))
    return _Positions(learned, {"source_positions.table": tables[0], "target_positions.table": tables[1]})


def _formula(model: TransformerConfig, positions: int) -> Tensor:
    if model.positions == "none":
        return torch.zeros(positions, model.d_model)
    return Positions(model).sinusoids(torch.arange(positions))
