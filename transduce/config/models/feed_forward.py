"""The settings of the feed-forward baseline; the defaults are the sizes of Rush et al. 2015."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from transduce.config.models.model import ModelConfig, Refusal
from transduce.config.models.tie import tie_refusal, tie_setting
from transduce.config.setting import rate, setting

if TYPE_CHECKING:
    from transduce.config.settings import DataConfig


@dataclass(frozen=True, kw_only=True)
class FeedForwardConfig(ModelConfig):
    """The shape of the feed-forward baseline, which has no layer that knows the order of the source."""

    title: ClassVar[str] = "A feed-forward network"

    d_model: int = setting(200, "Width of the embeddings.", least=1, most=100_000, inherited="always")
    dropout: float = rate(0.1, "Dropout on embeddings and on the hidden layer.")
    d_ff: int = setting(400, "Width of the hidden layers.", least=1, most=100_000, inherited="always")
    window: int = setting(
        5,
        "How many of the last target tokens the decoder reads.",
        unit="tokens",
        least=1,
        most=1_000,
        inherited="always",
    )
    encoder: Literal["average", "separate"] = setting(
        "average",
        "What the decoder knows of the source.",
        choices={
            "average": "the mean of its embeddings",
            "separate": "each token passes through a hidden layer by itself; only the decoder's attention mixes tokens",
        },
        inherited="always",
    )
    output_bias: bool = setting(True, "Whether the projection to the vocabulary has a bias.", inherited="always")
    tie: Literal["all", "target", "none"] = tie_setting("none")

    @property
    def description(self) -> str:
        return f"ff: window {self.window}, d_model {self.d_model}"

    def contradictions(self, data: "DataConfig") -> list[Refusal]:
        return [tie_refusal(self.tie, data)]
