"""A recurrent layer that runs over whole rows, over packed rows, or one step at a time.

Axes: R rows, W positions of a row, I width of the input, D width of the layer.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, gru_cell, lstm_cell, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from transduce.model.shapes import Float
from transduce.model.tokens import Tokens

LayerState = tuple[Tensor, ...]  # the hidden state of a GRU; the hidden state and the cell of an LSTM; each [R, D]
GATES = {"gru": 3, "lstm": 4}  # matrices that are stacked in one
TENSORS = {"gru": 1, "lstm": 2}  # in the state of a layer


class RecurrentLayer(nn.Module):
    """One layer of GRUs or LSTMs, in one direction or in both."""

    def __init__(self, cell: str, inputs: int, width: int, bidirectional: bool = False) -> None:
        super().__init__()
        self.cell = cell
        kind = {"gru": nn.GRU, "lstm": nn.LSTM}[cell]
        self.rnn = kind(inputs, width, batch_first=True, bidirectional=bidirectional)

    def forward(self, x: Float[Tensor, "R W I"], state: LayerState) -> Float[Tensor, "R W D"]:
        """The hidden states at all positions, from left to right. What follows a sentence does not change it."""
        kind = self.rnn.weight_hh_l0.dtype
        first = tuple(tensor[None].to(kind) for tensor in state)
        with _own_precision(x):
            outputs: Tensor = self.rnn(x.to(kind), first if self.cell == "lstm" else first[0])[0]
        return outputs

    def over_packed(self, x: PackedSequence) -> tuple[PackedSequence, LayerState]:
        """The hidden states of packed rows, and the last state of each direction in each row: [directions, R, D]."""
        with _own_precision(x.data):
            outputs, last = self.rnn(x._replace(data=x.data.to(self.rnn.weight_hh_l0.dtype)))
        return outputs, last if self.cell == "lstm" else (last,)

    def step(self, x: Float[Tensor, "R I"], state: LayerState) -> LayerState:
        """The state after one more input."""
        weights = self.rnn.weight_ih_l0, self.rnn.weight_hh_l0, self.rnn.bias_ih_l0, self.rnn.bias_hh_l0
        if self.cell == "lstm":
            return lstm_cell(x, state, *weights)
        return (gru_cell(x, state[0], *weights),)


@contextmanager
def _own_precision(x: Tensor) -> Iterator[None]:
    """Compute in the precision of the weights: autocast would make it float16, in which small gradients become zero.

    Without a warning that cuDNN copies the weights at every call: in training they are parts of one vector of all weights.
    """
    with torch.autocast(x.device.type, enabled=False), warnings.catch_warnings():
        if x.is_cuda:
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        yield


def pack_ids(tokens: Tokens) -> PackedSequence:
    """The ids without padding, position by position. Waits for the device: packing needs the lengths on the host."""
    lengths = tokens.real.sum(1).clamp(min=1).cpu()
    return pack_padded_sequence(tokens.ids, lengths, batch_first=True, enforce_sorted=False)


def unpack(x: PackedSequence, width: int) -> Float[Tensor, "R W D"]:
    """The rows again, with zeros as padding."""
    return pad_packed_sequence(x, batch_first=True, total_length=width)[0]


def reversed_rows(tokens: Tokens) -> Tokens:
    """The tokens of each row backwards; padding stays at the end."""
    columns = torch.arange(tokens.width, device=tokens.ids.device)
    last = tokens.real.sum(1, keepdim=True) - 1
    backwards = (last - columns).where(tokens.real, columns)
    return Tokens(tokens.ids.gather(1, backwards), tokens.position, tokens.segment)
