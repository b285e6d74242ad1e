"""Length penalties, which divide a hypothesis's log-probability so that short outputs are not preferred.

The length n counts `</s>`. Each penalty works on Python numbers and on tensors.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Length = TypeVar("Length", float, "Tensor")


class Penalty(Protocol):
    """Maps a length to the positive divisor of its log-probability."""

    def __call__(self, length: Length, /) -> Length: ...


@dataclass(frozen=True)
class PaperPenalty:
    """The paper's ((5 + n) / 6)^alpha, after Wu et al. 2016, equation 14."""

    alpha: float

    def __call__(self, length: Length, /) -> Length:
        return ((5 + length) / 6) ** self.alpha


@dataclass(frozen=True)
class PowerPenalty:
    """n^alpha, as in Marian, HF and CTranslate2; alpha = 1 is the mean log-probability of a token."""

    alpha: float

    def __call__(self, length: Length, /) -> Length:
        return length**self.alpha


def length_penalty(kind: Literal["paper", "power"], alpha: float) -> Penalty:
    """The penalty for the settings `search.length_penalty` and `search.alpha`."""
    return PaperPenalty(alpha) if kind == "paper" else PowerPenalty(alpha)
