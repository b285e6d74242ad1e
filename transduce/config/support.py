"""What a fast path or an export supports: settings of a model, with their values.

A second form of the model's arithmetic (kernels, slots, CTranslate2, another runtime) declares what it can compute. Every
setting that it does not name must have its default value. So a new setting, or a new value of an old one, is refused
by each of them until it is declared there, instead of being computed wrongly.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from transduce.config.models import ModelConfig
from transduce.config.settings import TrainConfig


class _Any:
    """Every value: for numbers and booleans, never for named choices, which may become more."""

    def __repr__(self) -> str:
        return "ANY"


ANY: Final = _Any()
Values = tuple[Any, ...] | _Any

# The Transformer's settings that most declarations share.
SIZES: dict[str, Values] = dict.fromkeys(
    ("d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers", "d_k", "d_v", "max_positions"), ANY
)
DROPOUT: dict[str, Values] = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), ANY)


class Supports:
    """The settings of one family of models, or of training, that some code supports."""

    def __init__(
        self, family: type[ModelConfig] | type[TrainConfig], values: Mapping[str, Values], section: str = "model"
    ) -> None:
        self.family, self.values, self.section = family, dict(values), section

    def refusal(self, config: ModelConfig | TrainConfig) -> str:
        """The first setting that is neither supported nor at its default, such as `model.norm = "pre"`, or nothing."""
        if isinstance(config, ModelConfig) and not isinstance(config, self.family):
            return f"model.family = {_written(config.family)}"
        for one in fields(config):
            value, known = getattr(config, one.name), self.values.get(one.name, (one.default,))
            if not isinstance(known, _Any) and value not in known:
                return f"{self.section}.{one.name} = {_written(value)}"
        return ""


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
