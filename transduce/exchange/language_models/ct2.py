"""Export of language models to CTranslate2: a folder that `ctranslate2.Generator` loads, and a runner to verify it.

Tokens are the pieces of the vocabulary: `</s>` stands for a line break, and `<s>` begins a document. Weights are written in
float32; users choose the precision when they load the model (`compute_type="int8"`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.config import DecoderConfig
from transduce.config.support import ANY, DROPOUT, SIZES, Supports
from transduce.errors import SettingError
from transduce.exchange.cards import write_card
from transduce.exchange.ct2 import require
from transduce.exchange.language_models.verification import until_end
from transduce.exchange.verification import Ids
from transduce.model import Decoder
from transduce.text import Vocabulary
from transduce.translator import ModelFolder

__all__ = ["Ct2Text", "refuse", "require", "write"]

START = "<s>"
NEVER = -1e4  # the logit of the start symbol: its probability is zero in every precision
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH", "swiglu": "SWISH"}

SUPPORTS = Supports(
    DecoderConfig,
    {
        **SIZES,
        **DROPOUT,
        "family": ("decoder",),
        "context": ANY,
        "norm": ("post", "pre"),
        "norm_kind": ("layer", "rms"),
        "positions": ("sinusoidal", "marian", "learned", "rotary", "none"),
        "activation": tuple(ACTIVATIONS),
        "output_bias": ANY,
    },
)


def refuse(opened: ModelFolder) -> None:
    """Refuse settings that CTranslate2 does not support."""
    config = opened.config.model
    assert isinstance(config, DecoderConfig)
    widths = "" if config.heads_fill_d_model else f"model.d_k = {config.key_width} and model.d_v = {config.value_width}"
    if what := SUPPORTS.refusal(config) or widths:
        raise SettingError(f"{what}: not supported by CTranslate2; train with the default value")
    if START in opened.vocabularies.target.pieces(range(opened.vocabularies.target.pad)):
        raise SettingError(f"the vocabulary's piece {START}: CTranslate2 needs the name for the start of a document")


def write(opened: ModelFolder, model: Decoder, folder: Path) -> None:
    """Write the model, its vocabulary, and the sentencepiece model that splits lines into tokens."""
    spec = make_spec(model)
    vocabulary = opened.vocabularies.target
    ends = opened.config.data.documents == "line"
    spec.register_vocabulary([*vocabulary.pieces(range(vocabulary.pad)), START])
    spec.config.unk_token, spec.config.bos_token = "<unk>", START
    spec.config.eos_token = "</s>" if ends else START  # which is never predicted: a line break ends nothing
    spec.config.layer_norm_epsilon = 1e-5
    spec.validate()
    spec.optimize(quantization="float32")
    spec.save(str(folder))
    (folder / "text.spm").write_bytes(vocabulary.model)
    write_card(opened, folder, USE)


# --- the model -------------------------------------------------------------------------------------------------


def make_spec(model: Decoder) -> Any:
    """CTranslate2's description of a decoder, with our weights."""
    import ctranslate2.specs as specs

    config = model.config
    spec = specs.TransformerDecoderModelSpec.from_config(
        config.num_decoder_layers,
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation=specs.Activation[ACTIVATIONS[config.activation]],
        ffn_glu=config.activation == "swiglu",
        rms_norm=config.norm_kind == "rms",
        rotary_dim=0 if config.positions == "rotary" else None,  # 0: all of a head
        rotary_interleave=True,
    )
    weights = _Weights(model)
    _set_ends(spec.decoder, model, weights)
    for number, layer in enumerate(spec.decoder.layer):
        _set_layer(layer, weights, f"layers.{number}", config.activation == "swiglu")
    return spec


class _Weights:
    """Copies of our parameters by name."""

    def __init__(self, model: Decoder) -> None:
        self.parameters = dict(model.named_parameters())

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        return self.parameters[name].detach().numpy().copy()

    def set_linear(self, linear: Any, name: str) -> None:
        linear.weight, linear.bias = self[f"{name}.weight"], self[f"{name}.bias"]

    def set_norm(self, norm: Any, name: str) -> None:
        norm.gamma = self[f"{name}.weight"]
        if f"{name}.bias" in self.parameters:  # RMSNorm has none
            norm.beta = self[f"{name}.bias"]


def _set_ends(decoder: Any, model: Decoder, weights: _Weights) -> None:
    config = model.config
    table = weights["output_embedding.weight"]
    decoder.embeddings.weight = table * np.float32(config.d_model**0.5)
    decoder.scale_embeddings = False
    decoder.projection.weight = table
    bias = np.full(len(table), NEVER, np.float32)
    bias[: model.target_pad] = weights["output_bias"] if config.output_bias else 0
    decoder.projection.bias = bias
    if config.norm == "pre":
        weights.set_norm(decoder.layer_norm, "norm")
    if config.positions != "rotary":
        decoder.position_encodings.encodings = model.positions.table_of(config.context).detach().numpy().copy()


def _set_layer(layer: Any, weights: _Weights, name: str, gated: bool) -> None:
    stacked, output = layer.self_attention.linear
    weights.set_linear(stacked, f"{name}.attention.stacked")
    weights.set_linear(output, f"{name}.attention.output")
    weights.set_norm(layer.self_attention.layer_norm, f"{name}.attention_residual.norm")
    weights.set_linear(layer.ffn.linear_0, f"{name}.feed_forward.inner")
    if gated:
        _split_gate(layer.ffn)
    weights.set_linear(layer.ffn.linear_1, f"{name}.feed_forward.outer")
    weights.set_norm(layer.ffn.layer_norm, f"{name}.feed_forward_residual.norm")


def _split_gate(ffn: Any) -> None:
    """Our inner matrix stacks two: the one that passes through swish, and the other."""
    both = ffn.linear_0.weight, ffn.linear_0.bias
    (ffn.linear_0.weight, ffn.linear_0_noact.weight), (ffn.linear_0.bias, ffn.linear_0_noact.bias) = (
        np.split(one, 2) for one in both
    )


# --- verification ----------------------------------------------------------------------------------------------


class Ct2Text:
    """An exported folder: its model and vocabulary."""

    def __init__(self, folder: Path, ends: bool) -> None:
        import ctranslate2

        self.generator = ctranslate2.Generator(
            str(folder), device="cpu", compute_type="float32", inter_threads=1, intra_threads=torch.get_num_threads()
        )
        self.vocabulary, self.ends = Vocabulary.load(folder / "text.spm"), ends

    def ids(self, text: str) -> list[int]:
        return [token for line in self.vocabulary.encode(text.split("\n")) for token in line][:-1]

    def logits(self, ids: Ids) -> Tensor:
        found = self.generator.forward_batch([self._tokens(ids)], return_log_probs=False)
        logits = torch.from_numpy(np.array(found))[0]
        assert bool((logits.softmax(-1)[:, -1] == 0).all()), "the start symbol must be impossible"
        return logits[:, :-1]

    def continued(self, beginnings: Sequence[Ids], limit: int) -> list[list[int]]:
        found = self.generator.generate_batch(
            [self._tokens(ids) for ids in beginnings],
            max_length=limit,
            sampling_topk=1,
            include_prompt_in_result=False,
            disable_unk=True,
        )
        return [until_end(list(result.sequences_ids[0]), self.ends) for result in found]

    def _tokens(self, ids: Ids) -> list[str]:
        return [START, *self.vocabulary.pieces(ids)]


USE = """
```python
import ctranslate2, sentencepiece

vocabulary = sentencepiece.SentencePieceProcessor("text.spm")
generator = ctranslate2.Generator(".", compute_type="int8")
lines = [vocabulary.encode(line, out_type=str) for line in "...".split("\\n")]
prompt = ["<s>", *lines[0], *(piece for line in lines[1:] for piece in ("</s>", *line))]
found = generator.generate_batch([prompt], max_length=100, sampling_topk=10, disable_unk=True)
text = [[]]
for piece in found[0].sequences[0]:
    if piece == "</s>":
        text.append([])
    elif piece != "<s>":
        text[-1].append(piece)
print("\\n".join(map(vocabulary.decode_pieces, text)))
```

`<s>` begins a document, and `</s>` stands for a line break. A text can have as many tokens as the context of the model.
"""
