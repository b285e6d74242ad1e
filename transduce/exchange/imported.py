"""A model that was read from another toolkit, and how it becomes a model folder.

Knows nothing of the other toolkit: `from_hf` and `from_marian` do.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from transduce import __version__
from transduce.checkpoint import RunFolder, Tensors, write_bytes, write_tensors, write_text
from transduce.config import Config, DataConfig, TransformerConfig, build, flatten
from transduce.config.settings import Normalization
from transduce.errors import DataError
from transduce.exchange.naming import alternating
from transduce.exchange.pieces import falls_back_to_bytes, normalization, units
from transduce.model import make_model, stored_tensors
from transduce.text import Vocabularies
from transduce.translator import check_shapes, load_weights, parameter_shapes, write_config


@dataclass(frozen=True)
class Imported:
    """A model in our form, before its folder is written."""

    origin: str  # a description of the source, for messages and the card
    config: Config
    vocabularies: Vocabularies
    tensors: Tensors
    notes: list[str] = field(default_factory=list)  # what users should know


def write_imported(found: Imported, folder: RunFolder) -> int:
    """Write a complete model folder, ready to translate or to fine-tune; returns the number of parameters.

    The weights are first loaded into the model, so that a mismatch is found before anything is written.
    """
    both, config = found.vocabularies, found.config
    shapes = {name: tensor.shape for name, tensor in found.tensors.items()}
    check_shapes(parameter_shapes(config.model, both), shapes, found.origin)  # before memory is allocated
    model = make_model(config.model, both.source.size, both.target.size)
    load_weights(model, found.tensors, found.origin)
    for name, parameter in stored_tensors(model).items():
        if not bool(torch.isfinite(parameter).all()):
            raise DataError(f"{found.origin}: {name} contains values that are NaN or infinite")
    folder.path.mkdir(parents=True, exist_ok=True)
    if config.data.joint:
        write_bytes(folder.vocabulary("joint"), both.source.model)
    else:
        write_bytes(folder.vocabulary("source"), both.source.model)
        write_bytes(folder.vocabulary("target"), both.target.model)
    about = {"source_vocabulary": both.source.digest, "target_vocabulary": both.target.digest, "origin": found.origin}
    write_tensors(folder.weights("best"), stored_tensors(model), about)
    parameters = sum(p.numel() for p in model.parameters())
    write_text(folder.card, _card(found, folder.path, parameters))
    write_config(folder, config)  # last, because it marks the folder as complete
    return parameters


def validated(config: Config) -> Config:
    """Validate the configuration."""
    return build({name: vars(getattr(config, name)) for name in ("model", "data", "train", "search")})


@dataclass(frozen=True)
class Tables:
    """The three embedding matrices and the output bias, if there is one, in the order of our ids."""

    source: Tensor
    target: Tensor
    output: Tensor
    bias: Tensor | None  # of every target id except `<pad>`

    def tie(self, joint: bool) -> Literal["all", "target", "none"]:
        """Which matrices are equal and can be shared; two separate vocabularies never share embeddings in our model."""
        if not torch.equal(self.target, self.output):
            return "none"
        return "all" if joint and torch.equal(self.source, self.target) else "target"

    def tensors(self, config: TransformerConfig) -> Tensors:
        """The tensors under our names and with our order of axes; shared tables are stored once, under the first name."""
        named = {"source_embedding.weight": alternating(self.source, 1)}
        if config.tie != "all":
            named["target_embedding.weight"] = alternating(self.target, 1)
        if config.tie == "none":
            named["output_embedding.weight"] = alternating(self.output, 1)
        return named if self.bias is None else named | {"output_bias": self.bias}


def data_settings(both: Vocabularies, languages: tuple[str, ...] = ()) -> DataConfig:
    """The data settings that follow from the vocabularies."""
    target_units, rule = units(both.target.model), normalization(both.source.model)
    return DataConfig(
        task="symbols" if target_units in ("char", "word") else "translation",
        languages=languages,
        source_units=units(both.source.model),
        target_units=target_units,
        normalization=rule if rule in get_args(Normalization) else "nmt_nfkc",  # type: ignore[arg-type]
        joint=both.source is both.target,
        vocabulary_size=max(8, both.target.size),
        unknown="bytes" if falls_back_to_bytes(both.target.model) else "unk",
    )


def _card(found: Imported, path: Path, parameters: int) -> str:
    name = path.resolve().name
    languages = " -> ".join(found.config.data.languages) or "translation"
    settings = {k: v for k, v in flatten(found.config).items() if k.startswith(("model.", "search."))}
    lines = [
        f"# {name}: {languages}",
        "",
        f"A Transformer of {parameters / 1e6:.1f} M parameters, imported by Transduce {__version__} (trained elsewhere).",
        "",
        "## Origin",
        "",
        f"- {found.origin}",
        *(f"- {note}" for note in found.notes),
        "- The licence is that of the original model.",
        "",
        "## Use",
        "",
        "```",
        f"transduce translate {name} < input > output",
        f"transduce train runs/tuned --from {name} --train SOURCE TARGET",
        "```",
        "",
        "## Settings",
        "",
        "| setting | value |",
        "| --- | --- |",
        *(f"| {key} | {value} |" for key, value in settings.items()),
        "",
    ]
    return "\n".join(lines)
