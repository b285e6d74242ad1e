"""The settings of the decoder without an encoder: a language model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from transduce.config.models.layers import LayersConfig
from transduce.config.models.model import Refusal
from transduce.config.setting import setting

if TYPE_CHECKING:
    from transduce.config.settings import DataConfig


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(LayersConfig):
    """The paper's decoder without attention to a source."""

    title: ClassVar[str] = "A language model (decoder)"

    context: int = setting(
        256,
        "The model predicts a token from at most this many tokens before it. Longer documents are cut into windows of this length, "
        "which do not overlap; in training, an offset is drawn in each epoch.",
        unit="tokens", least=2, most=1_000_000, inherited="always",
    )  # fmt: skip

    @property
    def description(self) -> str:
        return (
            f"{self.num_decoder_layers} layers of {self.num_heads} heads, d_model {self.d_model}, "
            f"a context of {self.context} tokens"
        )

    @property
    def reads_text(self) -> bool:
        return True

    @property
    def longest_target(self) -> int | None:
        return self.context

    def contradictions(self, data: "DataConfig") -> list[Refusal]:
        return [
            *super().contradictions(data),
            (
                self.positions == "learned" and self.context > self.max_positions,
                f"model.context = {self.context} is over model.max_positions = {self.max_positions}: raise the latter",
            ),
            (
                data.task != "text",
                f"model.family = {self.family} learns from text, not from pairs: give --text instead of --train",
            ),
        ]
