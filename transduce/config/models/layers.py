"""The settings that all families made of the paper's layers share: the shape of a layer, positions and norms."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from transduce.config.models.model import ModelConfig, Refusal
from transduce.config.setting import rate, setting

if TYPE_CHECKING:
    from transduce.config.settings import DataConfig


@dataclass(frozen=True, kw_only=True)
class LayersConfig(ModelConfig):
    """Attention and feed-forward layers."""

    d_ff: int = setting(
        2048, "Width of the inner layer of the feed-forward networks.", least=1, most=100_000, inherited="always"
    )
    num_heads: int = setting(8, "Attention heads of each layer.", least=1, most=100_000, inherited="always")
    num_decoder_layers: int = setting(6, "Layers of the decoder.", least=1, most=1_000, inherited="always")
    d_k: int = setting(
        0, "Width of a head's queries and keys.", zero="d_model / num_heads", least=0, most=100_000, inherited="always"
    )
    d_v: int = setting(
        0, "Width of a head's values.", zero="d_model / num_heads", least=0, most=100_000, inherited="always"
    )
    attention_dropout: float = rate(0.0, "Dropout on the attention weights.")
    activation_dropout: float = rate(0.0, "Dropout on the inner layer of the feed-forward networks.")
    norm: Literal["post", "pre"] = setting(
        "post",
        "Where normalization is applied.",
        choices={"post": "after each residual connection, as in the paper", "pre": "before each sub-layer"},
        inherited="always",
    )
    norm_kind: Literal["layer", "rms", "batch"] = setting(
        "layer",
        "Which normalization is used.",
        choices={
            "layer": "LayerNorm, as in the paper",
            "rms": "RMSNorm",
            "batch": "BatchNorm over the real tokens of a batch, for comparison; cannot be exported",
        },
        inherited="always",
    )
    attention: Literal["scaled", "dot", "additive"] = setting(
        "scaled",
        "How queries and keys are compared.",
        choices={
            "scaled": "dot products divided by the square root of d_k, as in the paper",
            "dot": "dot products without the factor",
            "additive": "v . tanh(query + key), with a learned vector v per head (Bahdanau et al. 2015)",
        },
        inherited="always",
    )
    window: int = setting(
        0, "How many neighbours on each side a position attends to in self-attention.",
        unit="tokens", zero="the whole sentence", least=0, most=100_000, inherited="always",
    )  # fmt: skip
    positions: Literal["sinusoidal", "marian", "learned", "rotary", "none"] = setting(
        "sinusoidal",
        "How the model knows the position of a token.",
        choices={
            "sinusoidal": "sines and cosines are added to the embeddings, as in the paper",
            "marian": "sinusoidal, in Marian's layout, for imported models",
            "learned": "a learned vector is added for each of max_positions positions",
            "rotary": "queries and keys are rotated by their position (RoPE)",
            "none": "no positional encoding",
        },
        inherited="always",
    )
    max_positions: int = setting(
        1024, "How many positions are learned; used only with positions=learned.",
        unit="tokens", least=1, most=10_000_000, inherited="always",
    )  # fmt: skip
    activation: Literal["relu", "gelu", "swish", "swiglu"] = setting(
        "relu",
        "Activation function of the feed-forward networks.",
        choices={
            "relu": "as in the paper",
            "gelu": "the exact form, by the error function",
            "swish": "x * sigmoid(x), also called SiLU",
            "swiglu": "a product of two projections, one of them through swish",
        },
        inherited="always",
    )
    output_bias: bool = setting(False, "Whether the projection to the vocabulary has a bias.", inherited="always")

    @property
    def key_width(self) -> int:
        return self.d_k or self.d_model // self.num_heads

    @property
    def value_width(self) -> int:
        return self.d_v or self.d_model // self.num_heads

    @property
    def heads_fill_d_model(self) -> bool:
        """Whether the keys of all heads together are as wide as d_model, and their values too, as most runtimes require."""
        return self.key_width * self.num_heads == self.value_width * self.num_heads == self.d_model

    @property
    def longest_target(self) -> int | None:
        return self.max_positions if self.positions == "learned" else None

    @property
    def has_dropout(self) -> bool:
        return bool(self.dropout or self.attention_dropout or self.activation_dropout)

    def contradictions(self, data: "DataConfig") -> list[Refusal]:
        split_evenly = self.d_model % self.num_heads == 0
        return [
            (
                not split_evenly and not (self.d_k and self.d_v),
                f"model.d_model = {self.d_model} does not divide by model.num_heads = {self.num_heads}: "
                "change one, or set model.d_k and model.d_v",
            ),
            (
                self.positions in ("sinusoidal", "marian") and self.d_model % 2 == 1,
                f"model.d_model = {self.d_model}: sinusoids come in pairs, so it must be even",
            ),
            (
                self.positions == "marian" and self.d_model < 4,
                f"model.d_model = {self.d_model}: Marian's sinusoids need at least two pairs, so at least 4",
            ),
            (
                self.positions == "rotary" and self.key_width % 2 == 1,
                f"model.d_k = {self.key_width}: rotary positions turn pairs, so it must be even",
            ),
        ]
