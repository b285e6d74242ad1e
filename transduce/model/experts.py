"""Sparsely gated mixtures of experts (Shazeer et al. 2017), https://arxiv.org/abs/1701.06538.

    token -> gates -> the k experts with the highest gates -> sum of their outputs, weighted by the gates

An expert is a feed-forward network. Tokens are sorted into one slot each of their experts, so that all experts compute as one
batched product; in training an expert has a fixed number of slots, which keeps shapes fixed, and tokens beyond it skip it.

Differs from the paper: experts take the place of the Transformer's feed-forward networks, where the paper has one layer of them
between LSTMs; gates and outputs are computed by softmax over the chosen experts only, which is the paper's equation (3).

Axes: N tokens, D d_model, E experts, K experts of a token, C slots of an expert, F inner width of an expert.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from transduce.config.models import MoeConfig
from transduce.model.dropout import Dropout, generator_of_thread
from transduce.model.layers import ACTIVATIONS
from transduce.model.shapes import Bool, Float, Int


@dataclass(frozen=True)
class Routing:
    """Which experts compute each token, and how much each counts."""

    experts: Int[Tensor, "N K"]
    weights: Float[Tensor, "N K"]


class Experts(nn.Module):
    """A layer of experts with noisy top-k gating, in place of a `FeedForward`."""

    def __init__(self, config: MoeConfig) -> None:
        super().__init__()
        count, d, inner = config.num_experts, config.d_model, config.d_ff
        self.per_token, self.capacity = config.experts_per_token, config.expert_capacity
        self.gated = config.activation == "swiglu"
        self.activation = silu if self.gated else ACTIVATIONS[config.activation]
        self.gate, self.noise = nn.Linear(d, count, bias=False), nn.Linear(d, count, bias=False)
        self.inner = nn.Parameter(torch.empty(count, d, inner * (2 if self.gated else 1)))
        self.inner_bias = nn.Parameter(torch.zeros(count, 1, self.inner.shape[2]))
        self.outer, self.outer_bias = nn.Parameter(torch.empty(count, inner, d)), nn.Parameter(torch.zeros(count, 1, d))
        self.dropout = Dropout(config.activation_dropout)
        self.imbalance: Tensor | None = None  # of the last batch in training, until the loss takes it
        self.counts: Tensor | None = None  # tokens that each expert got; None unless they are counted
        for matrix in (*(m for e in self.inner for m in e.split(inner, dim=1)), *self.outer):
            nn.init.xavier_uniform_(matrix)
        nn.init.zeros_(self.gate.weight)  # all experts begin equally likely (appendix A)
        nn.init.zeros_(self.noise.weight)

    def forward(self, x: Float[Tensor, "R W D"], segment: Int[Tensor, "R W"]) -> Float[Tensor, "R W D"]:
        tokens, real = x.flatten(0, 1), (segment != 0).flatten()
        routing = self.route(tokens, real)
        slots = Slots.assign(routing.experts, real, len(self.inner), self._limit(routing.experts, real))
        computed = self._compute(slots.filled(tokens)).flatten(0, 1)
        chosen = slots.collected(computed).unflatten(0, routing.weights.shape)
        return (chosen * routing.weights[..., None].to(x.dtype)).sum(1).view_as(x)

    def route(self, tokens: Float[Tensor, "N D"], real: Bool[Tensor, "N"]) -> Routing:
        """The experts with the highest gates; in training, noise decides among those that are close."""
        gates = self.gate(tokens).float()
        clean, deviation = gates, torch.ones_like(gates)
        if self.training:
            deviation = softplus(self.noise(tokens).float())
            gates = clean + deviation * _standard_normal(gates)
        highest, experts = gates.topk(self.per_token, dim=1)
        weights = highest.softmax(1)
        if self.training:
            self.imbalance = _imbalance(Routing(experts, weights), clean, gates, deviation, real)
        if self.counts is not None:
            self.counts += torch.bincount(experts[real].flatten(), minlength=len(self.counts))
        return Routing(experts, weights)

    def _limit(self, experts: Int[Tensor, "N K"], real: Bool[Tensor, "N"]) -> int:
        """Slots of an expert: a multiple of an even share in training; otherwise as many as the busiest one needs."""
        tokens, per_token = experts.shape
        if self.training:
            return min(tokens, math.ceil(self.capacity * tokens * per_token / len(self.inner)))
        return max(1, int(torch.bincount(experts[real].flatten(), minlength=1).max()))

    def _compute(self, x: Float[Tensor, "E C D"]) -> Float[Tensor, "E C D"]:
        """Every expert on its slots."""
        inner = torch.baddbmm(self.inner_bias, x, self.inner)
        if self.gated:
            gate, value = inner.chunk(2, dim=-1)
            hidden = self.activation(gate) * value
        else:
            hidden = self.activation(inner)
        return torch.baddbmm(self.outer_bias, self.dropout(hidden), self.outer)


# --- slots ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slots:
    """Which slot each token takes at each of its experts, and which token each slot holds: at most one."""

    slot: Int[Tensor, "N K"]  # the number after the last slot stands for none
    token: Int[Tensor, "S"]  # of each slot: row times K plus choice; the number after the last stands for none
    count: int

    @staticmethod
    def assign(experts: Int[Tensor, "N K"], real: Bool[Tensor, "N"], count: int, limit: int) -> "Slots":
        """Fill the slots of each expert in the order of the tokens, first choices before second ones."""
        tokens, per_token = experts.shape
        wanted = torch.where(real[:, None], experts, count).T.flatten()
        # Along the last axis, a GPU counts in parallel.
        chosen = wanted == torch.arange(count, device=wanted.device)[:, None]
        place = (chosen.cumsum(1) * chosen).sum(0) - 1
        taken = torch.where((place >= 0) & (place < limit), wanted * limit + place, count * limit)
        slot = taken.unflatten(0, (per_token, tokens)).T.contiguous()
        everyone = torch.arange(slot.numel(), device=slot.device)
        token = everyone.new_full((count * limit + 1,), slot.numel()).scatter_(0, slot.flatten(), everyone)
        return Slots(slot, token[:-1], count)

    def filled(self, tokens: Float[Tensor, "N D"]) -> Float[Tensor, "E C D"]:
        """The tokens in their slots; empty slots are zero."""
        rows: Tensor = Rearranged.apply(tokens, self.token // self.slot.shape[1], self.slot)
        return rows.unflatten(0, (self.count, -1))

    def collected(self, computed: Float[Tensor, "S D"]) -> Float[Tensor, "NK D"]:
        """What the slots of each token hold; zero for a choice that got no slot."""
        rows: Tensor = Rearranged.apply(computed, self.slot.flatten(), self.token)
        return rows


class Rearranged(torch.autograd.Function):
    """The rows of x with these indices; the index after the last row stands for a row of zeros.

    `back` says where each row of x went. With it the backward pass is a gather too, whose sums are always in the same order;
    adding to rows in parallel would make it another result every time.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return _rows_or_zeros(x, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (back,) = ctx.saved_tensors
        rows = _rows_or_zeros(gradients[0], back.flatten()).unflatten(0, back.shape)
        return (rows if back.dim() == 1 else rows.sum(1)), None, None


def _rows_or_zeros(x: Tensor, places: Tensor) -> Tensor:
    return torch.cat([x, x.new_zeros(1, x.shape[1])]).index_select(0, places)


# --- balance -------------------------------------------------------------------------------------------------------


def _imbalance(routing: Routing, clean: Tensor, gates: Tensor, deviation: Tensor, real: Tensor) -> Tensor:
    """How unequal the experts are: squared coefficients of variation of their importance and load (section 4, appendix A)."""
    importance = torch.zeros_like(gates).scatter(1, routing.experts, routing.weights)
    total = _squared_variation((importance * real[:, None]).sum(0))
    per_token = routing.experts.shape[1]
    if per_token == gates.shape[1]:  # every expert has every token
        return total
    return total + _squared_variation((_chances(clean, gates, deviation, per_token) * real[:, None]).sum(0))


def _chances(clean: Tensor, gates: Tensor, deviation: Tensor, per_token: int) -> Float[Tensor, "N E"]:
    """The probability that an expert is chosen if its noise is sampled again: a smooth form of the load (equation 9)."""
    highest = gates.topk(per_token + 1, dim=1).values
    least_chosen, first_left_out = highest[:, per_token - 1, None], highest[:, per_token, None]
    to_beat = torch.where(gates > first_left_out, first_left_out, least_chosen)
    return torch.special.ndtr((clean - to_beat) / deviation)


def _squared_variation(x: Float[Tensor, "E"]) -> Float[Tensor, ""]:
    if len(x) == 1:
        return x.sum() * 0
    return x.var() / (x.mean().square() + 1e-10)


def _standard_normal(like: Tensor) -> Tensor:
    """From this thread's generator on a CPU, as dropout is."""
    if like.device.type == "cpu":
        return torch.randn(like.shape, generator=generator_of_thread())
    return torch.randn_like(like)
