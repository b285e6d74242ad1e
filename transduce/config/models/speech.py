"""The settings of the family `speech`: frames of sound in, text out."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from transduce.config.models.model import ModelConfig, Refusal
from transduce.config.models.transformer import TransformerConfig
from transduce.config.old_names import Layers
from transduce.config.setting import rate, setting

if TYPE_CHECKING:
    from transduce.config.settings import DataConfig

SHORTER = 4  # times fewer positions than frames: two convolutions of stride 2


@dataclass(frozen=True, kw_only=True)
class SpeechConfig(ModelConfig):
    """The shape of a speech recogniser: two convolutions, then the encoder and the decoder of a Transformer."""

    title: ClassVar[str] = "A speech recogniser"
    fewest_epochs: ClassVar[int] = 10
    shortens: ClassVar[int] = SHORTER
    bins: ClassVar[int] = 80  # numbers of a frame

    d_model: int = setting(256, "Width of embeddings and hidden states.", least=4, most=100_000, inherited="always")
    d_ff: int = setting(
        1024, "Width of the inner layer of the feed-forward networks.", least=1, most=100_000, inherited="always"
    )
    num_heads: int = setting(4, "Attention heads of each layer.", least=1, most=100_000, inherited="always")
    num_encoder_layers: int = setting(12, "Layers of the encoder.", least=1, most=1_000, inherited="always")
    num_decoder_layers: int = setting(4, "Layers of the decoder.", least=1, most=1_000, inherited="always")
    attention_dropout: float = rate(0.0, "Dropout on the attention weights.")
    norm: Literal["post", "pre"] = setting(
        "pre",
        "Where normalization is applied.",
        choices={"post": "after each residual connection, as in the paper", "pre": "before each sub-layer"},
        inherited="always",
    )
    positions: Literal["sinusoidal", "rotary"] = setting(
        "sinusoidal",
        "How the model knows the position of a token or frame.",
        choices={
            "sinusoidal": "sines and cosines are added to the inputs, as in the paper",
            "rotary": "queries and keys are rotated by their position (RoPE)",
        },
        inherited="always",
    )
    convolution: int = setting(
        15,
        "Width of the convolution in each layer of the encoder, which makes it a Conformer (Gulati et al. 2020).",
        unit="positions of 40 ms", zero="the layers of the paper", least=0, most=1_001, inherited="always",
    )  # fmt: skip
    ctc_weight: float = rate(
        0.3,
        "Weight of the encoder's CTC loss in the loss. 0: there is no CTC output, so the search cannot use it.",
        inherited="always",
    )
    ctc_search: float = rate(
        0.3, "Weight of CTC's log-probabilities in a search; the decoder has the rest.", resumable=True
    )

    @property
    def transformer(self) -> TransformerConfig:
        """The settings of its layers, which are those of a Transformer."""
        return TransformerConfig(
            d_model=self.d_model,
            d_ff=self.d_ff,
            num_heads=self.num_heads,
            num_encoder_layers=self.num_encoder_layers,
            num_decoder_layers=self.num_decoder_layers,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            norm=self.norm,
            positions=self.positions,
            activation="swish" if self.convolution else "relu",
        )

    @property
    def description(self) -> str:
        kind = f"convolutions of {self.convolution}, " if self.convolution else ""
        return f"speech: {self.num_encoder_layers} + {self.num_decoder_layers} layers, {kind}d_model {self.d_model}"

    @property
    def has_dropout(self) -> bool:
        return bool(self.dropout or self.attention_dropout)

    @classmethod
    def fitted(cls, recipe: Layers) -> Layers:
        """Twice as many layers in the encoder as in the decoder."""
        layers = super().fitted(recipe)
        depth = layers["model"]["num_decoder_layers"]
        return {**layers, "model": layers["model"] | {"num_encoder_layers": 2 * depth}}

    def contradictions(self, data: "DataConfig") -> list[Refusal]:
        return [
            (
                self.d_model % self.num_heads != 0,
                f"model.d_model = {self.d_model} does not divide by model.num_heads = {self.num_heads}: change one",
            ),
            (
                self.d_model % 2 == 1 or self.d_model // self.num_heads % 2 == 1,
                f"model.d_model = {self.d_model}: positions come in pairs, so the width of a head must be even",
            ),
            (
                self.convolution > 0 and self.convolution % 2 == 0,
                f"model.convolution = {self.convolution}: must be odd, so that it has a middle, or 0",
            ),
            (
                self.ctc_search > 0 and self.ctc_weight == 0,
                f"model.ctc_search = {self.ctc_search}: without model.ctc_weight there is no CTC output: set it to 0",
            ),
        ]
