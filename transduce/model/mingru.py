"""minGRU: a Transformer whose self-attention is replaced by a minimal gated recurrence (Feng et al., "Were RNNs All We
Needed?", 2024).

    encoder layer:  x -> recurrence, half of the channels in each direction -> feed-forward network
    decoder layer:  x -> recurrence -> attention to the source -> feed-forward network
    recurrence:     h_t = f_t * h_{t-1} + (1 - f_t) * c_t,  where f_t = sigmoid(W_f x_t) and c_t = W_c x_t

Gates and candidates depend on the input alone and not on h, so they are computed for whole rows, and all states of a row are
found by a scan: on a GPU in log2(W) rounds instead of W steps. There are no positions: the recurrence knows the order. Each
sub-layer is normalised before and added to its input.

Differs from the paper, whose models are decoders without a source: attention to the source, the feed-forward networks and the
sizes are those of the Transformer, and no convolution precedes the recurrence.

Axes: R rows, S source positions, W target positions, D d_model, C channels, V target classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from transduce.config.models.mingru import MinGruConfig
from transduce.model.attention import KeysValues, MultiHeadAttention
from transduce.model.cost import OPERATIONS_PER_WEIGHT
from transduce.model.dropout import Dropout
from transduce.model.embeddings import embed, make_embeddings
from transduce.model.layers import FeedForward, Residual, layer_matrices
from transduce.model.model import Matrices, Model
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Keep, Source, Tokens, keep_source
from transduce.model.transformer import Memory

# --- the recurrence ----------------------------------------------------------------------------------------------


def scan(decay: Float[Tensor, "R W C"], inputs: Float[Tensor, "R W C"]) -> Float[Tensor, "R W C"]:
    """All states of h_t = decay_t * h_{t-1} + input_t, starting from h = 0.

    On a CPU step by step, which computes less: five to twelve times as fast there (docs/log.md). A GPU would wait for each step.
    """
    return sequential_scan(decay, inputs) if decay.device.type == "cpu" else parallel_scan(decay, inputs)


def sequential_scan(decay: Float[Tensor, "R W C"], inputs: Float[Tensor, "R W C"]) -> Float[Tensor, "R W C"]:
    states, state = torch.empty_like(inputs), torch.zeros_like(inputs[:, 0])
    for t in range(inputs.shape[1]):
        state = torch.addcmul(inputs[:, t], decay[:, t], state)
        states[:, t] = state
    return states


def parallel_scan(decay: Float[Tensor, "R W C"], inputs: Float[Tensor, "R W C"]) -> Float[Tensor, "R W C"]:
    """log2(W) rounds: after round n, a state has the last 2^n inputs in it, and `decay` is what is left of earlier ones."""
    distance = 1
    while distance < decay.shape[1]:
        inputs = inputs + decay * _shifted(inputs, distance)
        decay = decay * _shifted(decay, distance)
        distance *= 2
    return inputs


def _shifted(x: Float[Tensor, "R W C"], by: int) -> Float[Tensor, "R W C"]:
    """The rows moved `by` positions to the right, or to the left if negative; zeros fill the gap."""
    return pad(x[:, :-by], (0, 0, by, 0)) if by > 0 else pad(x[:, -by:], (0, 0, 0, -by))


class Scan(torch.autograd.Function):
    """The scan, with a gradient that is a scan too, so that no round has to be kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, decay: Tensor, inputs: Tensor) -> Tensor:
        states = scan(decay, inputs)
        ctx.save_for_backward(decay, states)
        return states

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor, Tensor]:
        decay, states = ctx.saved_tensors
        gradient = scan(_shifted(decay, -1).flip(1), above[0].flip(1)).flip(1)
        return gradient * _shifted(states, 1), gradient


def states_of_rows(
    decay: Float[Tensor, "R W C"], inputs: Float[Tensor, "R W C"], segment: Int[Tensor, "R W"], backwards: bool
) -> Float[Tensor, "R W C"]:
    """The states of all sentences in each row; every sentence begins with none."""
    if backwards:
        return states_of_rows(decay.flip(1), inputs.flip(1), segment.flip(1), False).flip(1)
    continues = segment == pad(segment[:, :-1], (1, 0))  # False at the first token of a sentence
    states: Tensor = Scan.apply(decay * continues[..., None], inputs)
    return states


class GatedRecurrence(nn.Module):
    """Channels that each keep a share of what they hold, and take the rest from the new token."""

    def __init__(self, width: int, bidirectional: bool, longest_memory: int) -> None:
        super().__init__()
        self.forwards = width - width // 2 if bidirectional else width
        self.gates, self.output = nn.Linear(width, 2 * width), nn.Linear(width, width)
        for matrix in [*self.gates.weight.split(width), self.output.weight]:
            nn.init.xavier_uniform_(matrix)
        nn.init.zeros_(self.output.bias)
        nn.init.zeros_(self.gates.bias)
        with torch.no_grad():
            self.gates.bias[:width] = _initial_biases(self.forwards, width, longest_memory)

    def forward(self, x: Float[Tensor, "R W D"], segment: Int[Tensor, "R W"]) -> Float[Tensor, "R W D"]:
        """The recurrence over whole rows; the first channels read from left to right."""
        decay, inputs = self._decay_and_input(x)
        n = self.forwards
        forward = states_of_rows(decay[..., :n], inputs[..., :n], segment, backwards=False)
        backward = states_of_rows(decay[..., n:], inputs[..., n:], segment, backwards=True)
        return self.output(torch.cat([forward, backward], -1).to(x.dtype))

    def step(self, x: Float[Tensor, "R 1 D"], state: Float[Tensor, "R D"]) -> tuple[Tensor, Float[Tensor, "R D"]]:
        """The output at one more position, and the new state."""
        decay, inputs = self._decay_and_input(x)
        state = decay[:, 0] * state + inputs[:, 0]
        return self.output(state[:, None].to(x.dtype)), state

    def _decay_and_input(self, x: Float[Tensor, "R W D"]) -> tuple[Float[Tensor, "R W D"], Float[Tensor, "R W D"]]:
        """In float32: in bfloat16, a gate near 1 would be 1, and what a channel holds would never fade."""
        decay, candidates = self.gates(x).float().chunk(2, -1)
        decay = decay.sigmoid()
        return decay, (1 - decay) * candidates


def _initial_biases(forwards: int, width: int, longest: int) -> Float[Tensor, "D"]:
    """Biases with which channels of each direction remember from 2 to `longest` tokens (Tallec and Ollivier 2018)."""
    spread = [torch.linspace(2, longest, channels) for channels in (forwards, width - forwards)]
    return torch.log(torch.cat(spread) - 1)


# --- layers ------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    """A recurrence, attention to the source if it is a layer of the decoder, and a feed-forward network."""

    def __init__(self, config: MinGruConfig, in_decoder: bool) -> None:
        super().__init__()
        parts = config.transformer
        self.recurrence = GatedRecurrence(config.d_model, not in_decoder, config.longest_memory)
        self.recurrence_residual = Residual(parts)
        if in_decoder:
            self.attention, self.attention_residual = MultiHeadAttention(parts), Residual(parts)
        self.feed_forward, self.feed_forward_residual = FeedForward(parts), Residual(parts)

    def forward(
        self,
        x: Float[Tensor, "R W D"],
        segment: Int[Tensor, "R W"],
        recur: Callable[[Tensor], Tensor],
        source: tuple[KeysValues, Keep] | None = None,
    ) -> Float[Tensor, "R W D"]:
        """`recur` computes the recurrence: over whole rows, or one step of a search."""
        x = self.recurrence_residual(x, segment, recur)
        if source is not None:
            x = self.attention_residual(x, segment, lambda y: self.attention.to_memory(y, *source))
        return self.feed_forward_residual(x, segment, self.feed_forward)


# --- the model ---------------------------------------------------------------------------------------------------


@dataclass
class MinGruState:
    """Translations in progress: the state of each layer, and the keys and values of the source."""

    layers: list[Float[Tensor, "R D"]]
    source: list[KeysValues]
    keep: Keep

    def advance(self, number: int, recurrence: GatedRecurrence, x: Tensor) -> Tensor:
        """The output of a layer's recurrence after one more token."""
        output, self.layers[number] = recurrence.step(x, self.layers[number])
        return output

    def select(self, rows: Int[Tensor, "N"]) -> "MinGruState":
        self.layers = [layer.index_select(0, rows) for layer in self.layers]
        self.source = [layer.select(rows) for layer in self.source]
        self.keep = self.keep.select(rows)
        return self


class MinGru(Model):
    """Gated recurrences on both sides, and attention to the source in every layer of the decoder."""

    page_width = 128
    config: MinGruConfig

    def __init__(self, config: MinGruConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config, self.target_pad, self.output_bias = config, target_size - 1, None
        self.source_embedding, self.target_embedding, self.output_embedding = make_embeddings(
            source_size, target_size, config.d_model, config.tie
        )
        self.dropout = Dropout(config.dropout)
        self.encoder: Sequence[Layer] = nn.ModuleList(  # type: ignore[assignment]
            Layer(config, in_decoder=False) for _ in range(config.num_encoder_layers)
        )
        self.decoder: Sequence[Layer] = nn.ModuleList(  # type: ignore[assignment]
            Layer(config, in_decoder=True) for _ in range(config.num_decoder_layers)
        )
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(config.d_model), nn.LayerNorm(config.d_model)

    def encode(self, source: Source) -> Memory:
        assert isinstance(source, Tokens)
        x, segment = self._embed(self.source_embedding, source.ids), source.segment
        for layer in self.encoder:
            x = layer(x, segment, lambda y, of=layer.recurrence: of(y, segment))
        return Memory(self.encoder_norm(x), segment)

    def decode(self, target: Tokens, memory: Memory) -> Float[Tensor, "R W D"]:
        x, segment = self._embed(self.target_embedding, target.ids), target.segment
        keep = keep_source(segment, memory.segment)
        for layer in self.decoder:
            source = layer.attention.keys_values(memory.hidden), keep
            x = layer(x, segment, lambda y, of=layer.recurrence: of(y, segment), source)
        return self.decoder_norm(x)

    def begin(self, memory: Memory) -> MinGruState:
        zeros = memory.hidden.new_zeros(memory.hidden[:, 0].shape, dtype=torch.float32)
        keep = keep_source(torch.ones_like(memory.segment[:, :1]), memory.segment)
        source = [layer.attention.keys_values(memory.hidden) for layer in self.decoder]
        return MinGruState([zeros] * len(self.decoder), source, keep)

    def step(self, tokens: Int[Tensor, "R"], state: MinGruState) -> Float[Tensor, "R V"]:
        x = self._embed(self.target_embedding, tokens[:, None])
        for number, layer in enumerate(self.decoder):
            recur = partial(state.advance, number, layer.recurrence)
            x = layer(x, state.keep.query, recur, (state.source[number], state.keep))
        return self.project(self.decoder_norm(x)[:, 0])

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        return {"encoder": [], "decoder": [], "cross": [layer.attention for layer in self.decoder]}

    def matrices(self) -> Matrices:
        gates: Matrices = {
            module.gates.weight: 2 * [self.config.d_model]
            for module in self.modules()
            if isinstance(module, GatedRecurrence)
        }
        return layer_matrices([*self.encoder, *self.decoder]) | gates

    def _embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        return self.dropout(embed(table, ids))


# --- what training costs -----------------------------------------------------------------------------------------


def mingru_flops(
    config: MinGruConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float
) -> float:
    """Operations to train on this many tokens, counted as in `transduce/model/cost.py`."""
    d = config.d_model
    layer = 3 * d * d + 2 * d * config.d_ff
    keys_values = queries_and_output = 2 * d * d
    source = config.num_encoder_layers * layer + config.num_decoder_layers * keys_values
    target = config.num_decoder_layers * (layer + queries_and_output + 2 * d * mean_length) + d * classes
    return OPERATIONS_PER_WEIGHT * (source * source_tokens + target * target_tokens)


def mingru_activations(config: MinGruConfig, source_positions: int, target_positions: int, masks: bool) -> int:
    """How many numbers the forward pass keeps for the backward pass, without the logits."""
    d, masks_of_a_layer = config.d_model, bool(masks and config.dropout)
    layer = 2 * d + 2 * 5 * d + 2 * config.d_ff + masks_of_a_layer * 2 * d  # gates, candidates and states are float32
    attention = 4 * d + masks_of_a_layer * d
    source = config.num_encoder_layers * layer + config.num_decoder_layers * 2 * d
    return source * source_positions + config.num_decoder_layers * (layer + attention) * target_positions
