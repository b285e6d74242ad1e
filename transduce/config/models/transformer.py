"""The settings of the Transformer; the defaults are the paper's base model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from transduce.config.models.layers import LayersConfig
from transduce.config.models.model import Refusal
from transduce.config.setting import setting

if TYPE_CHECKING:
    from transduce.config.settings import DataConfig


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(LayersConfig):
    """The shape of the Transformer."""

    title: ClassVar[str] = "A Transformer"

    num_encoder_layers: int = setting(6, "Layers of the encoder.", least=1, most=1_000, inherited="always")
    tie: Literal["all", "target", "none"] = setting(
        "all",
        "Which of the three embedding matrices (source, target, output) are the same matrix.",
        choices={
            "all": "all three, as in the paper; needs data.joint=true",
            "target": "target and output",
            "none": "each has its own",
        },
        inherited="always",
    )

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
            (
                self.tie == "all" and not data.joint,
                'model.tie = "all" needs one vocabulary for both sides: set data.joint=true or model.tie="target"',
            ),
        ]
