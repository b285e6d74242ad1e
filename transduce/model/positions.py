"""Positional encodings: sinusoids (section 3.5), learned vectors, rotations, or none.

Axes: R rows, W positions, D d_model, H heads, K width of a head.
"""

import torch
from torch import Tensor, nn

from transduce.config import LayersConfig
from transduce.errors import DataError
from transduce.model.shapes import Float, Int


def sinusoids(position: Int[Tensor, "*positions"], width: int, last: int = 0) -> Float[Tensor, "*positions {width}"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/width)) and PE(pos, 2i+1) = the cosine at the same frequency.

    With `last` = width - 2 the slowest frequency is exactly 1/10000, as in Marian and tensor2tensor.
    """
    angle = _angles(position, width, last or width)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


def rotate(x: Float[Tensor, "R H W K"], position: Int[Tensor, "R W"]) -> Float[Tensor, "R H W K"]:
    """Rotary positions: rotate each pair (2i, 2i+1) of a query or key by its position times the pair's frequency."""
    angle = _angles(position, x.shape[-1], x.shape[-1])[:, None]
    cosine, sine = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1).flatten(-2)


def _angles(position: Tensor, width: int, last: int) -> Tensor:
    # In double precision until the angle is known: in float32, position 1000 would lose three digits.
    exponent = torch.arange(0, width, 2, dtype=torch.float64, device=position.device) / last
    return (position[..., None] / 10_000.0**exponent).float()


def tokens_beyond(position: Int[Tensor, "*positions"], longest: int, limit: int | None) -> int:
    """The tokens of the longest sentence if they are more than the limit, else 0; `longest` is an upper bound on them.

    A row may be wider than its sentences: a packed row has several, and a padded one may be filled up. So the positions are
    read where the bound is over the limit. Reading them waits for the device. A CUDA graph cannot wait, and needs no check:
    it was warmed up, and the settings limit the lengths of its sentences.
    """
    if limit is None or longest <= limit or (position.is_cuda and torch.cuda.is_current_stream_capturing()):
        return 0
    tokens = int(position.max()) + 1
    return tokens if tokens > limit else 0


def check_positions(
    position: Int[Tensor, "*positions"],
    longest: int,
    limit: int | None,
    sentence: str = "a row has {} tokens",
    remedy: str = "train with sinusoidal positions",
) -> None:
    """Refuse sentences with more tokens than the model learned positions, as `tokens_beyond` counts them."""
    if tokens := tokens_beyond(position, longest, limit):
        raise DataError(
            f"{sentence.format(tokens)}, but the model learned only model.max_positions = {limit} positions: "
            f"shorten the sentence, or {remedy}"
        )


SINUSOIDS = ("sinusoidal", "marian")


class Positions(nn.Module):
    """Adds positions to the embeddings; rotary positions act inside attention and add nothing here."""

    TABLE = 1024  # positions whose sinusoids are computed once; later ones are computed when they occur

    def __init__(self, config: LayersConfig) -> None:
        super().__init__()
        self.kind, self.d_model = config.positions, config.d_model
        self.last = config.d_model - (2 if self.kind == "marian" else 0)
        if self.kind == "learned":
            self.table: Tensor = nn.Parameter(torch.empty(config.max_positions, config.d_model))
            nn.init.normal_(self.table, std=config.d_model**-0.5)
        elif self.kind in SINUSOIDS:
            self.register_buffer("table", self.sinusoids(torch.arange(self.TABLE)), persistent=False)

    @property
    def limit(self) -> int | None:
        """The longest sentence that has positions, or None if there is no limit."""
        return self.table.shape[0] if self.kind == "learned" else None

    def forward(
        self, embedded: Float[Tensor, "R W D"], position: Int[Tensor, "R W"], longest: int
    ) -> Float[Tensor, "R W D"]:
        """`longest` is an upper bound on the positions; reading them from the tensor would wait for the device."""
        if self.kind == "learned":
            return embedded + nn.functional.embedding(position, self.table)
        if self.kind in SINUSOIDS:
            known = longest <= self.TABLE
            added = nn.functional.embedding(position, self.table) if known else self.sinusoids(position)
            return embedded + added.to(embedded.dtype)
        return embedded

    def table_of(self, count: int) -> Float[Tensor, "{count} D"]:
        """What is added at each of the first `count` positions."""
        if self.kind == "learned":
            return self.table[:count]
        if self.kind in SINUSOIDS:
            return self.sinusoids(torch.arange(count))
        return torch.zeros(count, self.d_model)

    def sinusoids(self, position: Int[Tensor, "*positions"]) -> Float[Tensor, "*positions D"]:
        """Sinusoids of any position, also beyond the table."""
        return sinusoids(position, self.d_model, self.last)
