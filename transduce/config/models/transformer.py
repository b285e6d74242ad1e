"""The settings of the Transformer; the defaults are the paper's base model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from transduce.config.models.layers import LayersConfig
from transduce.config.models.model import Refusal
from transduce.config.models.tie import tie_refusal, tie_setting
from transduce.config.setting import setting

if TYPE_CHECKING:
    from transduce.config.settings import DataConfig


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(LayersConfig):
    """The shape of the Transformer."""

    title: ClassVar[str] = "A Transformer"

    num_encoder_layers: int = setting(6, "Layers of the encoder.", least=1, most=1_000, inherited="always")
    tie: Literal["all", "target", "none"] = tie_setting("all", paper="all")

    @property
    def description(self) -> str:
        return (
            f"{self.num_encoder_layers} + {self.num_decoder_layers} layers of {self.num_heads} heads, "
            f"d_model {self.d_model}"
        )

    @property
    def longest_source(self) -> int | None:
        return self.longest_target

    def contradictions(self, data: "DataConfig") -> list[Refusal]:
        return [
            *super().contradictions(data),
            (
                self.positions == "learned" and data.max_length > self.max_positions,
                f"data.max_length = {data.max_length} is over model.max_positions = {self.max_positions}: raise the latter",
            ),
            tie_refusal(self.tie, data),
        ]
