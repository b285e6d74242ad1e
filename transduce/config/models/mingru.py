"""The settings of the family `mingru`: a Transformer whose self-attention is replaced by a minimal gated recurrence."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from transduce.config.models.model import ModelConfig, Refusal
from transduce.config.models.tie import tie_refusal, tie_setting
from transduce.config.models.transformer import TransformerConfig
from transduce.config.setting import setting

if TYPE_CHECKING:
    from transduce.config.settings import DataConfig


@dataclass(frozen=True, kw_only=True)
class MinGruConfig(ModelConfig):
    """Layers of a gated linear recurrence and a feed-forward network; the defaults are the sizes of the base Transformer."""

    title: ClassVar[str] = "A minimal gated recurrent network with attention"

    d_ff: int = setting(
        2048, "Width of the inner layer of the feed-forward networks.", least=1, most=100_000, inherited="always"
    )
    num_heads: int = setting(8, "Heads of the attention to the source.", least=1, most=100_000, inherited="always")
    num_encoder_layers: int = setting(6, "Layers of the encoder.", least=1, most=1_000, inherited="always")
    num_decoder_layers: int = setting(6, "Layers of the decoder.", least=1, most=1_000, inherited="always")
    longest_memory: int = setting(
        32,
        "How many tokens the slowest channels remember before training; the fastest remember one or two.",
        unit="tokens", least=2, most=100_000, inherited="always",
    )  # fmt: skip
    tie: Literal["all", "target", "none"] = tie_setting("all")

    @property
    def transformer(self) -> TransformerConfig:
        """The settings of those parts that are a Transformer's."""
        return TransformerConfig(
            d_model=self.d_model, d_ff=self.d_ff, num_heads=self.num_heads, dropout=self.dropout, norm="pre"
        )

    @property
    def description(self) -> str:
        return f"mingru: {self.num_encoder_layers} + {self.num_decoder_layers} layers, d_model {self.d_model}"

    def contradictions(self, data: "DataConfig") -> list[Refusal]:
        return [
            (
                self.d_model % self.num_heads != 0,
                f"model.d_model = {self.d_model} does not divide by model.num_heads = {self.num_heads}: change one",
            ),
            tie_refusal(self.tie, data),
        ]
