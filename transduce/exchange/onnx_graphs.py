"""Export to ONNX: one graph for the encoder, and one for a decoder step with its cache.

The encoder computes the keys and values of the source for every decoder layer, so the decoder does not need its output.
The decoder graph takes one token per row and the cache of earlier tokens; for the first token, the cache is empty. Each graph
contains its own weights. The graphs are traced from the model's own layers.

Axes: R rows, S source positions, T target positions so far, H heads, E width of a head.
"""

import copy
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transduce import __version__
from transduce.config import TransformerConfig
from transduce.config.support import ANY, DROPOUT, SIZES, Supports
from transduce.errors import RunError, SettingError
from transduce.exchange.cards import write_card
from transduce.model import DecoderState, Tokens, Transformer
from transduce.model.attention import Cache, KeysValues
from transduce.model.positions import SINUSOIDS
from transduce.model.tokens import keep_source
from transduce.text import EOS, UNKNOWN
from transduce.translator import LONGEST_SOURCE, ModelFolder

MANIFEST, ENCODER, DECODER = "manifest.json", "encoder.onnx", "decoder.onnx"
MAX_POSITIONS = 2 * LONGEST_SOURCE  # positions whose sinusoids are stored in the graphs
LARGEST_FILE = 1_500_000_000  # bytes; more weights go into a separate file, since ONNX files are limited to 2 GB
USE = """
```python
import json, numpy, onnxruntime, sentencepiece

about = json.load(open("manifest.json"))
encoder, decoder = (onnxruntime.InferenceSession(about[part]["file"]) for part in ("encoder", "decoder"))
source, target = (sentencepiece.SentencePieceProcessor(about["vocabularies"][side]) for side in ("source", "target"))
ids = numpy.array([[*source.encode("..."), about["ids"]["end"]]])
keep = numpy.ones_like(ids)  # 0 where the shorter sentences of a batch are padded with source_pad
memory = encoder.run(None, {"ids": ids, "keep": keep})
cache, token, output = about["cache"], about["ids"]["start"], []
widths = [cache["key_width"], cache["value_width"]] * cache["layers"]
past = [numpy.zeros((1, cache["heads"], 0, width), numpy.float32) for width in widths]  # empty for the first token
while len(output) < ids.shape[1] + 50:
    given = [numpy.array([token]), keep, *memory, *past]
    logits, *past = decoder.run(None, dict(zip(about["decoder"]["inputs"], given)))
    token = int(logits[0].argmax())
    if token == about["ids"]["end"]:
        break
    output.append(token)
print(target.decode(output))
```

This is greedy search; `manifest.json` names every input and output.
"""


class Encoder(nn.Module):
    """(ids [R, S], keep [R, S]) -> the keys and values [R, H, S, E] of every decoder layer, alternating."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, keep: Tensor) -> tuple[Tensor, ...]:
        position = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        state = self.model.begin(self.model.encode(Tokens(ids, position, keep)))
        return flat(state.source)


class Decoder(nn.Module):
    """(tokens [R], keep [R, S], source, past) -> logits [R, V], and the past with the new position appended."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, keep: Tensor, source: list[Tensor], past: list[Tensor]) -> tuple[Tensor, ...]:
        caches = [ConcatenatingCache(one) for one in paired(past)]
        source_keep = keep_source(torch.ones_like(keep[:, :1]), keep)
        state = DecoderState(paired(source), source_keep, list(caches), past[0].shape[2])
        logits = self.model.step(tokens, state)
        return (logits, *flat([cache.all for cache in caches]))


class ConcatenatingCache(Cache):
    """A cache that concatenates instead of writing into a buffer, which a graph cannot do."""

    def __init__(self, past: KeysValues) -> None:
        super().__init__()
        self.all = past

    def append(self, new: KeysValues) -> KeysValues:
        keys, values = torch.cat((self.all.keys, new.keys), 2), torch.cat((self.all.values, new.values), 2)
        self.all = KeysValues(keys, values)
        return self.all


def flat(layers: Sequence[KeysValues]) -> tuple[Tensor, ...]:
    return tuple(tensor for layer in layers for tensor in (layer.keys, layer.values))


def paired(tensors: Sequence[Tensor]) -> list[KeysValues]:
    return [KeysValues(keys, values) for keys, values in zip(tensors[::2], tensors[1::2], strict=True)]


@dataclass(frozen=True)
class Names:
    """The names of the inputs and outputs of the graphs, in order."""

    layers: int

    def _each(self, prefix: str) -> list[str]:
        return [f"{prefix}{kind}_{layer}" for layer in range(self.layers) for kind in ("keys", "values")]

    @property
    def encoder(self) -> dict[str, list[str]]:
        return {"inputs": ["ids", "keep"], "outputs": self._each("source_")}

    @property
    def decoder(self) -> dict[str, list[str]]:
        inputs = ["tokens", "keep", *self._each("source_"), *self._each("past_")]
        return {"inputs": inputs, "outputs": ["logits", *self._each("")]}


# The layers are traced, so all of their variants are supported; position tables are extended before tracing.
SUPPORTS = Supports(
    TransformerConfig,
    {
        **SIZES,
        **DROPOUT,
        "norm": ("post", "pre"),
        "norm_kind": ("layer", "rms"),
        "positions": ("sinusoidal", "marian", "learned", "rotary", "none"),
        "activation": ("relu", "gelu", "swish", "swiglu"),
        "output_bias": ANY,
        "tie": ("all", "target", "none"),
    },
)


def refuse(opened: ModelFolder) -> None:
    """Refuse a setting that the graphs do not support."""
    if setting := SUPPORTS.refusal(opened.config.model):
        raise SettingError(f"{setting}: not supported by the ONNX export")


def write(opened: ModelFolder, model: Transformer, folder: Path) -> None:
    """Write the graphs, their description and the vocabularies."""
    names = Names(model.config.num_decoder_layers)
    traced = _with_long_tables(copy.deepcopy(model).eval())
    with _quietly(), torch.no_grad():
        source = _write_encoder(traced, names, folder / ENCODER)
        _write_decoder(traced, names, source, folder / DECODER)
    (folder / "source.spm").write_bytes(opened.vocabularies.source.model)
    (folder / "target.spm").write_bytes(opened.vocabularies.target.model)
    text = json.dumps(manifest(opened, names), ensure_ascii=False, indent=2)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    write_card(opened, folder, USE)


def manifest(opened: ModelFolder, names: Names) -> dict[str, Any]:
    """manifest.json: what a program needs to know to run the graphs."""
    model, both = opened.config.transformer, opened.vocabularies
    limit = model.longest_target or MAX_POSITIONS
    return {
        "format": "transduce-onnx",
        "transduce": __version__,
        "languages": list(opened.config.data.languages),
        "encoder": {"file": ENCODER, **names.encoder},
        "decoder": {"file": DECODER, **names.decoder},
        "vocabularies": {"source": "source.spm", "target": "target.spm"},
        "ids": {"end": EOS, "unknown": UNKNOWN, "start": both.target.pad, "source_pad": both.source.pad},
        "cache": {
            "layers": model.num_decoder_layers,
            "heads": model.num_heads,
            "key_width": model.key_width,
            "value_width": model.value_width,
        },
        "limits": {"source": min(limit, LONGEST_SOURCE), "target": limit},
        "search": asdict(opened.config.search),
    }


# --- tracing ---------------------------------------------------------------------------------------------------

# The examples have more than one of everything: torch would treat an axis of size 1 as constant, and a tensor passed twice as
# one input.
_ROWS, _SOURCE, _TARGET = 2, 5, 3


def _write_encoder(model: Transformer, names: Names, path: Path) -> list[Tensor]:
    ids, keep = (torch.ones(_ROWS, _SOURCE, dtype=torch.long) for _ in range(2))
    axes = {0: "rows", 1: "source"}
    encoder = Encoder(model).eval()
    _export(encoder, (ids, keep), names.encoder, {"ids": axes, "keep": axes}, path)
    return [tensor.contiguous() for tensor in encoder(ids, keep)]  # a graph has no strides


def _write_decoder(model: Transformer, names: Names, source: list[Tensor], path: Path) -> None:
    past = [tensor[:, :, :1].repeat(1, 1, _TARGET, 1) for tensor in source]
    tokens, keep = torch.ones(_ROWS, dtype=torch.long), torch.ones(_ROWS, _SOURCE, dtype=torch.long)
    of_source, of_past = ([{0: "rows", 2: name} for _ in source] for name in ("source", "past"))
    axes = {"tokens": {0: "rows"}, "keep": {0: "rows", 1: "source"}, "source": of_source, "past": of_past}
    _export(Decoder(model).eval(), (tokens, keep, source, past), names.decoder, axes, path)


def _export(graph: nn.Module, example: tuple[Any, ...], names: dict[str, list[str]], axes: Any, path: Path) -> None:
    size = sum(p.numel() * p.element_size() for p in graph.parameters())
    try:
        torch.onnx.export(
            graph,
            example,
            path,
            input_names=names["inputs"],
            output_names=names["outputs"],
            dynamic_shapes=axes,
            dynamo=True,
            external_data=size > LARGEST_FILE,
            verbose=False,
        )
    except torch.onnx.OnnxExporterError as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise RunError(
            f"{path.name}: PyTorch {torch.__version__} cannot write this model as a graph: {reason}"
        ) from None


def _with_long_tables(model: Transformer) -> Transformer:
    """Precompute the sinusoids of all positions, since a graph cannot extend the table later."""
    for positions in (model.source_positions, model.target_positions):
        if positions.kind in SINUSOIDS:
            positions.TABLE = MAX_POSITIONS
            positions.table = positions.sinusoids(torch.arange(MAX_POSITIONS))
    return model


@contextmanager
def _quietly() -> Iterator[None]:
    """Hide the exporter's warnings about optional packages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
