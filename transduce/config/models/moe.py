"""The settings of the Transformer with mixtures of experts (Shazeer et al. 2017) in place of its feed-forward networks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from transduce.config.models.model import Refusal
from transduce.config.models.transformer import TransformerConfig
from transduce.config.setting import setting

if TYPE_CHECKING:
    from transduce.config.settings import DataConfig


@dataclass(frozen=True, kw_only=True)
class MoeConfig(TransformerConfig):
    """The Transformer's settings, and those of the experts. `d_ff` is the inner width of one expert."""

    title: ClassVar[str] = "A Transformer with mixtures of experts"

    num_experts: int = setting(8, "Experts of each layer.", least=1, most=10_000, inherited="always")
    experts_per_token: int = setting(
        2, "Experts that compute each token, the ones with the highest gates.", least=1, most=10_000, inherited="always"
    )
    expert_capacity: float = setting(
        1.5,
        "Tokens that an expert takes in training, as a multiple of an even share; the others skip it. In evaluation there is no limit.",
        least=1,
        most=10_000,
    )
    expert_balance: float = setting(
        0.1, "Weight of the loss that makes experts equally important and equally busy.", least=0, most=1_000
    )

    @property
    def description(self) -> str:
        return f"{super().description}, {self.num_experts} experts of which {self.experts_per_token} per token"

    def contradictions(self, data: "DataConfig") -> list[Refusal]:
        return [
            *super().contradictions(data),
            (
                self.experts_per_token > self.num_experts,
                f"model.experts_per_token = {self.experts_per_token}: there are only model.num_experts = {self.num_experts}",
            ),
        ]
