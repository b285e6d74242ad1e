"""Import Marian's own models: model.npz with its options, and one or two sentencepiece vocabularies.

numpy reads the archive and is never allowed to unpickle. Only the Transformer that Marian trains by default is supported
(post-norm, complete layers, sinusoids); an option that asks for anything else is refused by name.
"""

import math
import os
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from transduce.config import Config, SearchConfig, TransformerConfig
from transduce.errors import DamagedFile, DataError
from transduce.exchange.imported import Imported, Tables, data_settings, validated
from transduce.exchange.naming import layer_parameters, marian_names, to_ours
from transduce.exchange.pieces import check_spelling
from transduce.files import open_plain, read_plain
from transduce.text import Vocabularies, Vocabulary

OPTIONS = "special:model.yml"
Options = dict[str, Any]  # text, or a list of texts
Arrays = dict[str, np.ndarray[Any, Any]]

LARGEST_SMALL = 64_000_000  # bytes that any archive may decompress to
MOST_UNPACKED = 20  # further bytes per byte of the archive: trained weights hardly compress
# The supported values of options; the first is Marian's default.
REQUIRED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-preprocess": ("",),
    "transformer-postprocess": ("dan",),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-postprocess-top": ("",),
    "transformer-ffn-activation": ("swish", "relu"),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-ffn-depth": ("0", "2"),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-train-position-embeddings": ("false",),
    "transformer-disable-position-embeddings": ("false",),
    "transformer-alibi-shift": ("false",),
    "transformer-no-projection": ("false",),
    "transformer-no-bias": ("false",),
    "transformer-no-affine": ("false",),
    "transformer-rnn-projection": ("false",),
    "transformer-tied-layers": ([],),
    "transformer-pool": ("false",),
    "input-types": ([],),
    "right-left": ("false",),
    "ulr": ("false",),
    "factors-dim-emb": ("0",),
    "lemma-dim-emb": ("0",),
}


def find_archive(source: Path) -> Path | None:
    """The .npz of a Marian folder, or the file itself."""
    if source.is_file():
        return source if source.suffix == ".npz" else None
    found = [path for path in sorted(source.glob("*.npz")) if not path.name.endswith(".optimizer.npz")]
    if len(found) > 1 and source / "model.npz" not in found:
        raise DataError(
            f"{source}: has {len(found)} models ({', '.join(p.name for p in found)}): give the path of one of them"
        )
    return (source / "model.npz" if source / "model.npz" in found else found[0]) if found else None


def read_marian(path: Path) -> Imported:
    """Read the model of a Marian archive, with its vocabularies and search settings."""
    arrays = _read_arrays(path)
    try:
        options = parse_options(_text(arrays[OPTIONS]))
    except (KeyError, ValueError):
        raise DamagedFile(f"{path}: has no {OPTIONS}, so it is not a Marian model") from None
    _refuse(path, options)
    decoder = _read_options(path.with_name(path.name + ".decoder.yml"))
    training = _read_options(path.with_name(path.name + ".yml"))
    both = _vocabularies(path, training | decoder)
    read = _MarianWeights(path, arrays)
    tables = _tables(read, options, both)
    config = _config(path, options, decoder, training, both, tables)
    tensors = {
        parameter.ours: to_ours(read, parameter) for parameter in layer_parameters(config.transformer, marian_names)
    }
    version = str(options.get("version", "")).split(" ")[0]
    return Imported(f"Marian {version} model {path.name}", config, both, tensors | tables.tensors(config.transformer))


# --- weights ---------------------------------------------------------------------------------------------------


class _MarianWeights:
    """Looks up a parameter by name, [out, in] as in torch; Marian stores the transpose, and vectors as one row."""

    def __init__(self, path: Path, arrays: Arrays) -> None:
        self.path, self.arrays = path, arrays

    def __call__(self, name: str) -> Tensor:
        tensor = self.matrix(name)
        return tensor[0] if tensor.shape[0] == 1 else tensor.T.contiguous()

    def matrix(self, name: str) -> Tensor:
        if name not in self.arrays:
            raise DataError(f"{self.path}: has no {name}, which its options require")
        values = self.arrays[name]
        if values.dtype != np.float32 or values.ndim != 2:
            raise DataError(
                f"{self.path}: {name} is {values.dtype} of {values.ndim} axes, not a float32 matrix: import the model "
                "from before quantisation"
            )
        return torch.from_numpy(values)


def _tables(read: _MarianWeights, options: Options, both: Vocabularies) -> Tables:
    """The embeddings. Marian's have no `<pad>`: its decoder starts from zeros, so our row for `<pad>` is zero."""
    everything, source_target = (
        options.get("tied-embeddings-all") == "true",
        options.get("tied-embeddings-src") == "true",
    )
    if everything or source_target:
        source = target = read.matrix("Wemb")
    else:
        source, target = read.matrix("encoder_Wemb"), read.matrix("decoder_Wemb")
    output = (
        target if everything or options.get("tied-embeddings") == "true" else read.matrix("decoder_ff_logit_out_W").T
    )
    bias = None if options.get("output-omit-bias") == "true" else read("decoder_ff_logit_out_b")
    for table, vocabulary, side in ((source, both.source, "source"), (target, both.target, "target")):
        if len(table) != vocabulary.size - 1:
            raise DataError(
                f"{read.path}: has {len(table):,} {side} embeddings, but the vocabulary beside it has "
                f"{vocabulary.size - 1:,} pieces: it belongs to another model"
            )
    return Tables(_with_pad(source), _with_pad(target), _with_pad(output), bias)


def _with_pad(table: Tensor) -> Tensor:
    return torch.cat([table, table.new_zeros(1, table.shape[1])])


def _read_arrays(path: Path) -> Arrays:
    """Read all arrays of the archive, without unpickling."""
    try:
        with open_plain(path) as file:
            if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise ValueError("it is a single array")
            with zipfile.ZipFile(file) as archive:
                _check_archive(archive, os.fstat(file.fileno()).st_size)
                return {info.filename.removesuffix(".npy"): _read_array(archive, info) for info in archive.infolist()}
    except (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise DamagedFile(f"{path}: cannot be read as an .npz archive ({error})") from None


def _check_archive(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse archives that numpy does not write, and those that decompress to more than weights can."""
    for info in archive.infolist():
        if info.flag_bits & 1:
            raise ValueError(f"{info.filename} is encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{info.filename} is compressed by a method that numpy does not use")
    unpacked, most = sum(info.file_size for info in archive.infolist()), LARGEST_SMALL + MOST_UNPACKED * size
    if unpacked > most:
        raise ValueError(f"{size:,} bytes that decompress to {unpacked:,}: weights do not compress that much")


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray[Any, Any]:
    """Read an array, after checking its header against the size of its file; only then is memory allocated."""
    with archive.open(info) as file:
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{info.filename} has an unknown version {version}")
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, in_columns, kind = read(file)
        if kind.hasobject:
            raise ValueError(f"{info.filename} contains Python objects, which would have to be unpickled")
        if math.prod(shape) * kind.itemsize != info.file_size - file.tell():
            raise ValueError(f"{info.filename} claims to be {shape} of {kind}, but its file has another size")
        values = np.frombuffer(file.read(), kind).copy()
    return values.reshape(shape, order="F" if in_columns else "C")


# --- options ---------------------------------------------------------------------------------------------------


def parse_options(text: str) -> Options:
    """Marian's options: `key: value` lines, and lists as `- item` lines below their key; values stay strings."""
    options: Options = {}
    key = ""
    for line in text.splitlines():
        if item := re.match(r"\s*-\s+(.*)", line):
            options[key] = [*(options.get(key) or []), _scalar(item[1])]
        elif pair := re.match(r"([\w-]+):\s*(.*)", line):
            key, value = pair[1], pair[2]
            options[key] = [] if value == "[]" else _scalar(value)
        elif line.strip() == "[]":
            options[key] = []
    return options


def _scalar(text: str) -> str:
    return text.strip().strip("\"'")


def _text(values: np.ndarray[Any, Any]) -> str:
    return values.tobytes().split(b"\0")[0].decode()


def _read_options(path: Path) -> Options:
    try:
        return parse_options(read_plain(path, LARGEST_SMALL).decode())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFile(f"{path}: cannot be read ({error})") from None


def _refuse(path: Path, options: Options) -> None:
    for name, allowed in REQUIRED.items():
        if options.get(name, allowed[0]) not in allowed:
            raise DataError(
                f"{path}: {name} is {options[name] or 'empty'}, which Transduce does not support "
                f"(only {' or '.join(str(one) or 'none' for one in allowed)})"
            )
    feed = options.get("transformer-decoder-dim-ffn", "0")
    if feed not in ("0", options.get("transformer-dim-ffn")):
        raise DataError(
            f"{path}: transformer-decoder-dim-ffn is {feed}, but models of Transduce have one width for both sides"
        )


def _config(
    path: Path, options: Options, decoder: Options, training: Options, both: Vocabularies, tables: Tables
) -> Config:
    data = data_settings(both)
    try:
        model = TransformerConfig(
            d_model=int(options["dim-emb"]),
            d_ff=int(options["transformer-dim-ffn"]),
            num_heads=int(options["transformer-heads"]),
            num_encoder_layers=int(options["enc-depth"]),
            num_decoder_layers=int(options["dec-depth"]),
            dropout=float(training.get("transformer-dropout", 0.1)),
            attention_dropout=float(training.get("transformer-dropout-attention", 0)),
            activation_dropout=float(training.get("transformer-dropout-ffn", 0)),
            positions="marian",
            activation=options["transformer-ffn-activation"],
            output_bias=tables.bias is not None,
            tie=tables.tie(data.joint),
        )
        search = SearchConfig(
            beam=int(decoder.get("beam-size", 12)),
            alpha=float(decoder.get("normalize", 0)),
            length_penalty="power",
            allow_unknown=decoder.get("allow-unk") == "true",
        )
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise DamagedFile(f"{path}: its options cannot be read: {error}") from None
    return validated(Config(model=model, data=data, search=search))


def _vocabularies(path: Path, options: Options) -> Vocabularies:
    named = [path.parent / Path(name).name for name in options.get("vocabs", [])]
    found = named or sorted(path.parent.glob("*.spm"))
    if not found or len(found) > 2:
        raise DataError(
            f"{path}: needs one or two sentencepiece vocabularies (.spm) beside it, but there are {len(found)}"
        )
    for file in found:
        if file.suffix != ".spm":
            raise DataError(f"{file}: only sentencepiece vocabularies (.spm) can be imported")
    loaded = {file: _vocabulary(file) for file in found}  # one object for both sides if they share a file
    return Vocabularies(loaded[found[0]], loaded[found[-1]])


def _vocabulary(file: Path) -> Vocabulary:
    vocabulary = Vocabulary.load(file)
    check_spelling(vocabulary.model, file)
    return vocabulary
