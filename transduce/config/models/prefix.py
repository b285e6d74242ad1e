"""The settings of the family `prefix`: a decoder alone that reads the source and continues with the target."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from transduce.config.models.layers import LayersConfig
from transduce.config.models.model import Refusal
from transduce.config.models.tie import tie_refusal, tie_setting
from transduce.config.old_names import Layers
from transduce.config.setting import setting

if TYPE_CHECKING:
    from transduce.config.settings import DataConfig

LEAST_LEARNED = 256  # positions of a packed row, both sides together


@dataclass(frozen=True, kw_only=True)
class PrefixConfig(LayersConfig):
    """The paper's decoder without attention to an encoder: source and target are one sequence."""

    title: ClassVar[str] = "A single decoder for source and target"

    tie: Literal["all", "target", "none"] = tie_setting("all")
    source_mask: Literal["causal", "full"] = setting(
        "causal",
        "Which source tokens a source token attends to.",
        choices={
            "causal": "itself and those before it, as in a language model (Liu et al. 2018)",
            "full": "the whole source, as in the prefix language model of Raffel et al. 2020",
        },
        inherited="always",
    )

    @property
    def description(self) -> str:
        return f"prefix: {self.num_decoder_layers} layers of {self.num_heads} heads, d_model {self.d_model}"

    @property
    def longest_source(self) -> int | None:
        return self.longest_target

    @property
    def longest_target(self) -> int | None:
        """Source and target share the learned positions."""
        return self.max_positions // 2 if self.positions == "learned" else None

    @classmethod
    def fitted(cls, recipe: Layers) -> Layers:
        """As many layers as both stacks of the Transformer together, and so about as many parameters."""
        shape, layers = recipe["model"], super().fitted(recipe)
        both = shape["num_encoder_layers"] + shape["num_decoder_layers"]
        return {**layers, "model": layers["model"] | {"num_decoder_layers": both}}

    def contradictions(self, data: "DataConfig") -> list[Refusal]:
        needed = max(2 * data.max_length, LEAST_LEARNED)
        return [
            *super().contradictions(data),
            (
                self.positions == "learned" and needed > self.max_positions,
                f"model.max_positions = {self.max_positions}: source and target share the positions, "
                f"so set it to at least {needed} (twice data.max_length, and no less than {LEAST_LEARNED})",
            ),
            (
                self.window > 0,
                f"model.window = {self.window}: models of the family prefix attend to the whole sequence: set model.window=0",
            ),
            tie_refusal(self.tie, data),
        ]
