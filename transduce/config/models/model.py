"""The settings that every family of models has."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from transduce.config.old_names import Layers
from transduce.config.setting import rate, setting

if TYPE_CHECKING:
    from transduce.config.settings import DataConfig

Refusal = tuple[bool, str]  # whether it applies, and what to say


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What every family of models has; each family adds settings of its own."""

    title: ClassVar[str] = "A model"  # what a model card calls it
    fewest_epochs: ClassVar[int] = (
        0  # in fewer, a model learns little whatever the data; a budget in minutes warns of it
    )
    shortens: ClassVar[int] = 1  # how many tokens or frames of a source become one position

    family: str = setting("transformer", "The family (architecture) of the model.", inherited="always")
    d_model: int = setting(512, "Width of embeddings and hidden states.", least=1, most=100_000, inherited="always")
    dropout: float = rate(0.1, "Dropout on the output of each sub-layer and on the sum of embedding and position.")

    @property
    def description(self) -> str:
        """The shape in a few words."""
        return f"{self.family}, d_model {self.d_model}"

    @property
    def longest_source(self) -> int | None:
        """The most tokens or frames a source can have, where the model has a limit."""
        return None

    @property
    def longest_target(self) -> int | None:
        """The most tokens a target can have, `</s>` counted, where the model has a limit."""
        return None

    @property
    def reads_text(self) -> bool:
        """Whether the family learns from running text instead of pairs."""
        return False

    @property
    def has_dropout(self) -> bool:
        return self.dropout > 0

    @classmethod
    def fitted(cls, recipe: Layers) -> Layers:
        """The settings chosen for the data for this family, from those for a Transformer: of the model, those that it has."""
        known = {one.name for one in fields(cls)}
        return {**recipe, "model": {key: value for key, value in recipe["model"].items() if key in known}}

    def contradictions(self, data: "DataConfig") -> list[Refusal]:
        """Combinations of the family's settings that cannot work."""
        return []
