"""Export of language models to Hugging Face: a folder that AutoModelForCausalLM and AutoTokenizer load without our code.

A model with rotary positions becomes a `GPTNeoXForCausalLM`, any other an `OPTForCausalLM`, whose learned positions can be
sinusoids too. Ids stay the same. Their output layers have no bias and predict every id, while ours never predict the start of a
document; `output_layer` shows how the last LayerNorm makes up for it.

Axes: V ids, D d_model.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from transduce import __version__
from transduce.checkpoint import Tensors
from transduce.config import DecoderConfig
from transduce.config.support import ANY, DROPOUT, SIZES, Supports
from transduce.errors import SettingError
from transduce.exchange.cards import write_card
from transduce.exchange.hf_runtime import quietly
from transduce.exchange.language_models.tokenizer import refuse_vocabulary, write_tokenizer
from transduce.exchange.language_models.verification import until_end
from transduce.exchange.naming import hf_names, sines_first
from transduce.exchange.verification import Ids
from transduce.model import Decoder
from transduce.text import EOS, UNKNOWN
from transduce.translator import ModelFolder

NEVER = -1e4  # the logit of the start symbol: its probability is zero in every precision

_SHARED = {**SIZES, **DROPOUT, "family": ("decoder",), "context": ANY, "output_bias": ANY}
_ACTIVATIONS = ("relu", "gelu", "swish")


@dataclass(frozen=True)
class HfClass:
    """A class of transformers, what it can compute, and our model as its tensors and settings."""

    name: str
    model_type: str
    supports: Supports
    tensors: Callable[[Decoder], Tensors]
    settings: Callable[[DecoderConfig], dict[str, Any]]


def refuse(opened: ModelFolder) -> None:
    """Refuse settings that no class of transformers supports."""
    config = opened.config.model
    assert isinstance(config, DecoderConfig)
    chosen = hf_class(config)
    refused = chosen.supports.refusal(config)
    if not refused:
        refused = next(
            (
                f"model.{name} = {getattr(config, name)}"
                for name in ("d_k", "d_v")
                if _differs_from_d_model(config, name)
            ),
            "",
        )
    if refused:
        raise SettingError(
            f"{refused}: not supported by Hugging Face's {chosen.name}; train with {_fitting(chosen.supports, refused)}"
        )
    refuse_vocabulary(opened.vocabularies.target)


def _differs_from_d_model(config: DecoderConfig, name: str) -> bool:
    width = {"d_k": config.key_width, "d_v": config.value_width}[name]
    return width * config.num_heads != config.d_model


def _fitting(supports: Supports, refused: str) -> str:
    """The setting that would fit instead, such as `model.norm=pre`."""
    name = refused.split(" = ")[0].removeprefix("model.")
    default = next(one.default for one in fields(supports.family) if one.name == name)
    values = supports.values.get(name)
    return f"model.{name}={values[0] if isinstance(values, tuple) else default}"


def hf_class(config: DecoderConfig) -> HfClass:
    """The class that a model becomes; `refuse` says whether it supports all of its settings."""
    return GPT_NEOX if config.positions == "rotary" else OPT


def write(opened: ModelFolder, model: Decoder, folder: Path) -> None:
    """Write all files of the folder."""
    chosen, config = hf_class(model.config), model.config
    with torch.no_grad():
        tensors = {name: tensor.detach().contiguous().clone() for name, tensor in chosen.tensors(model).items()}
    (folder / "model.safetensors").write_bytes(save(tensors, {"format": "pt", "transduce": __version__}))
    ends = opened.config.data.documents == "line"
    ids = {"bos_token_id": model.target_pad, "pad_token_id": model.target_pad, "eos_token_id": EOS if ends else None}
    shared = {
        "model_type": chosen.model_type,
        "architectures": [chosen.name],
        "vocab_size": model.target_pad + 1,
        "tie_word_embeddings": False,
        "dtype": "float32",
        **ids,
    }
    _write_json(folder / "config.json", shared | chosen.settings(config))
    # No max_length: the library would warn of it whenever max_new_tokens is given.
    _write_json(folder / "generation_config.json", ids | {"suppress_tokens": [UNKNOWN]})
    tokenizer = write_tokenizer(opened.vocabularies.target, config.context, ends, folder)
    _write_json(folder / "tokenizer_config.json", tokenizer)
    write_card(opened, folder, USE, FRONT)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


# --- both ends of the model ------------------------------------------------------------------------------------


def input_embedding(model: Decoder) -> Tensor:
    """The embeddings [V, D] with their factor; that of the start symbol, the last one, is zero."""
    return model.output_embedding.weight * model.config.d_model**0.5


@dataclass(frozen=True)
class OutputLayer:
    """The last LayerNorm and the output matrix of a model that needs no output bias."""

    weight: Tensor
    bias: Tensor
    matrix: Tensor


def output_layer(model: Decoder) -> OutputLayer:
    """The logits of all ids, the start symbol included, without an output bias.

    The features z of a LayerNorm sum to zero before its weight g and bias b. With g = b = 1 they sum to D, so adding c to a row of
    the matrix E adds c D to its logit: a bias. So E (g z + b) + bias becomes E' (z + 1), where E' = E g + c.
    """
    norm = model.norm if model.config.norm == "pre" else model.layers[-1].feed_forward_residual.norm
    assert isinstance(norm, nn.LayerNorm)
    table = model.output_embedding.weight.double()
    bias = torch.full((len(table),), NEVER, dtype=torch.double)
    given = 0 if model.output_bias is None else model.output_bias
    bias[: model.target_pad] = table[: model.target_pad] @ norm.bias.double() + given
    matrix = table * norm.weight
    matrix += ((bias - matrix.sum(1)) / model.config.d_model)[:, None]
    ones = torch.ones(model.config.d_model)
    return OutputLayer(ones, ones, matrix.float())


# --- OPT -------------------------------------------------------------------------------------------------------


def opt_tensors(model: Decoder) -> Tensors:
    """Names and layout of `OPTForCausalLM`."""
    ours, theirs = dict(model.named_parameters()), Tensors()
    parts = {name.split(".", 2)[2].rsplit(".", 1)[0] for name in ours if name.startswith("layers.")}
    for layer in range(model.config.num_decoder_layers):
        for part in sorted(parts):
            for kind in ("weight", "bias"):
                names = hf_names("decoder", layer, part, kind)
                theirs |= dict(zip(names, ours[f"layers.{layer}.{part}.{kind}"].chunk(len(names)), strict=True))
    last = output_layer(model)
    norm = "final_layer_norm" if model.config.norm == "pre" else _last_norm(model)
    return theirs | {
        "model.decoder.embed_tokens.weight": input_embedding(model),
        "model.decoder.embed_positions.weight": _positions(model),
        f"model.decoder.{norm}.weight": last.weight,
        f"model.decoder.{norm}.bias": last.bias,
        "lm_head.weight": last.matrix,
    }


def _last_norm(model: Decoder) -> str:
    return f"layers.{model.config.num_decoder_layers - 1}.final_layer_norm"


def _positions(model: Decoder) -> Tensor:
    """The table of positions; OPT has two more before the first."""
    table = model.positions.table_of(model.config.context)
    return torch.cat([table.new_zeros(2, model.config.d_model), table])


def opt_settings(config: DecoderConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.d_model,
        "word_embed_proj_dim": config.d_model,
        "num_hidden_layers": config.num_decoder_layers,
        "num_attention_heads": config.num_heads,
        "ffn_dim": config.d_ff,
        "activation_function": config.activation,
        "do_layer_norm_before": config.norm == "pre",
        "max_position_embeddings": config.context,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "layerdrop": 0.0,
    }


# --- GPT-NeoX --------------------------------------------------------------------------------------------------

_NEOX = {
    "attention.output": "attention.dense",
    "attention_residual.norm": "input_layernorm",
    "feed_forward.inner": "mlp.dense_h_to_4h",
    "feed_forward.outer": "mlp.dense_4h_to_h",
    "feed_forward_residual.norm": "post_attention_layernorm",
}


def neox_tensors(model: Decoder) -> Tensors:
    """Names and layout of `GPTNeoXForCausalLM`."""
    ours, theirs = dict(model.named_parameters()), Tensors()
    for layer in range(model.config.num_decoder_layers):
        for kind in ("weight", "bias"):
            stacked = split_heads(ours[f"layers.{layer}.attention.stacked.{kind}"], model.config.num_heads)
            there = f"gpt_neox.layers.{layer}"
            theirs[f"{there}.attention.query_key_value.{kind}"] = torch.cat(stacked, dim=1).flatten(0, 1)
            theirs |= {f"{there}.{name}.{kind}": ours[f"layers.{layer}.{part}.{kind}"] for part, name in _NEOX.items()}
    last = output_layer(model)
    return theirs | {
        "gpt_neox.embed_in.weight": input_embedding(model),
        "gpt_neox.final_layer_norm.weight": last.weight,
        "gpt_neox.final_layer_norm.bias": last.bias,
        "embed_out.weight": last.matrix,
    }


def split_heads(stacked: Tensor, heads: int) -> list[Tensor]:
    """Queries, keys and values, each [heads, width, ...].

    Ours rotate neighbours (2i, 2i + 1) by position, theirs the two halves of a head (i, i + width / 2).
    """
    queries, keys, values = (part.unflatten(0, (heads, -1)) for part in stacked.chunk(3))
    return [sines_first(queries, 1), sines_first(keys, 1), values]


def neox_settings(config: DecoderConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.d_model,
        "num_hidden_layers": config.num_decoder_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.d_ff,
        "hidden_act": config.activation,
        "use_parallel_residual": False,
        "attention_bias": True,
        "rotary_pct": 1.0,
        "rotary_emb_base": 10_000,
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": config.context,
        "hidden_dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
    }


GPT_NEOX = HfClass(
    "GPTNeoXForCausalLM",
    "gpt_neox",
    Supports(DecoderConfig, {**_SHARED, "norm": ("pre",), "positions": ("rotary",), "activation": _ACTIVATIONS}),
    neox_tensors,
    neox_settings,
)
OPT = HfClass(
    "OPTForCausalLM",
    "opt",
    Supports(
        DecoderConfig,
        {
            **_SHARED,
            "norm": ("post", "pre"),
            "positions": ("sinusoidal", "marian", "learned", "none"),
            "activation": _ACTIVATIONS,
        },
    ),
    opt_tensors,
    opt_settings,
)


# --- verification ----------------------------------------------------------------------------------------------


class HfText:
    """An exported folder: its model and tokenizer."""

    def __init__(self, folder: Path) -> None:
        with quietly() as transformers:
            self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.start = self.model.config.bos_token_id

    def ids(self, text: str) -> list[int]:
        with quietly():  # longer texts than the context are reported
            found: list[int] = self.tokenizer(text)["input_ids"]
        return found[1:] if found[:1] == [self.start] else found

    @torch.inference_mode()
    def logits(self, ids: Ids) -> Tensor:
        found: Tensor = self.model(input_ids=torch.tensor([[self.start, *ids]])).logits[0]
        assert bool((found.softmax(-1)[:, self.start :] == 0).all()), "the start symbol must be impossible"
        return found[:, : self.start]

    @torch.inference_mode()
    def continued(self, beginnings: Sequence[Ids], limit: int) -> list[list[int]]:
        """All at once, as a batch that is padded on the left."""
        batch = self.tokenizer.pad({"input_ids": [[self.start, *ids] for ids in beginnings]}, return_tensors="pt")
        with quietly():
            found = self.model.generate(**batch, max_length=None, max_new_tokens=limit, do_sample=False)
        new = found[:, batch["input_ids"].shape[1] :].tolist()
        return [until_end(row, self.model.config.eos_token_id is not None) for row in new]


# --- card ------------------------------------------------------------------------------------------------------

FRONT = [
    "---",
    "tags:",
    "- text-generation",
    "- transduce",
    "pipeline_tag: text-generation",
    "library_name: transformers",
    "# license: add one; it depends on the training data",
    "---",
    "",
]

USE = """
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForCausalLM.from_pretrained(".")
batch = tokenizer(["..."], return_tensors="pt", padding=True)
tokenizer.batch_decode(model.generate(**batch, max_new_tokens=100), skip_special_tokens=True)
```

The tokenizer puts `<s>`, the start of a document, before every text.
"""
