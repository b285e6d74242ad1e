"""The setting `model.tie`: which of the three embedding matrices of a model are the same matrix, and what that needs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transduce.config.setting import setting

if TYPE_CHECKING:
    from transduce.config.settings import DataConfig

_WHICH = {"all": "all three", "target": "target and output", "inputs": "source and target", "none": "each has its own"}
_JOINT = ("all", "inputs")  # those that make source and target the same


def tie_setting(default: str, choices: Sequence[str] = ("all", "target", "none"), paper: str = "") -> Any:
    """The setting of a family; `paper` is the choice of the publication, if the family follows one here."""
    return setting(
        default,
        "Which of the three embedding matrices (source, target, output) are the same matrix.",
        choices={
            name: f"{_WHICH[name]}{', as in the paper' * (name == paper)}{'; needs data.joint=true' * (name in _JOINT)}"
            for name in choices
        },
        inherited="always",
    )


def tie_refusal(tie: str, data: "DataConfig") -> tuple[bool, str]:
    """Two vocabularies cannot have the same embeddings."""
    return (
        tie in _JOINT and not data.joint,
        f'model.tie = "{tie}" needs one vocabulary for both sides: set data.joint=true or model.tie="target"',
    )
