"""The feed-forward baseline: a bag of source words and the last few target tokens, without recurrence or self-attention.

It shows what word order is worth: the order of the source changes nothing. The decoder is the neural language model of Bengio
et al. 2003 and the encoder the bag of words of Rush, Chopra and Weston, "A Neural Attention Model for Abstractive
Sentence Summarization" (EMNLP 2015), whose sizes are the defaults.

    source ids -> embeddings -> mean ----------------------.
    last 5 target ids -> embeddings, end to end --- hidden layer -> linear -> logits

With `model.encoder=separate`, a hidden layer is applied to each source token separately, and the decoder's window attends to the results.
Differs from the paper: the source enters the hidden layer, where the paper adds it to the logits. This network can
combine source and history.

Axes: R rows, S source positions, W target positions, N tokens of the window, D d_model, V target classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from transduce.config import FeedForwardConfig
from transduce.model.cost import OPERATIONS_PER_WEIGHT
from transduce.model.dropout import Dropout
from transduce.model.embeddings import embed, make_embedding
from transduce.model.model import Attention, Model
from transduce.model.recurrent.attention import AttendedSource, SourceAttention
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Source, Tokens

FeedForwardMemory = Float[Tensor, "R 1 D"] | AttendedSource  # the bag of words, or the tokens one by one


@dataclass
class WindowState:
    """The last target tokens of each row, and its source."""

    recent: Int[Tensor, "R N"]  # one less than the window
    memory: FeedForwardMemory

    def select(self, rows: Int[Tensor, "M"]) -> "WindowState":
        memory = self.memory
        self.recent = self.recent.index_select(0, rows)
        self.memory = memory.index_select(0, rows) if isinstance(memory, Tensor) else memory.select(rows)
        return self


class FeedForwardBaseline(Model):
    """Predicts each token from the source as a bag of words and the tokens right before it."""

    config: FeedForwardConfig

    def __init__(self, config: FeedForwardConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        d, self.config, self.target_pad = config.d_model, config, target_size - 1
        self.source_embedding = make_embedding(source_size, d)
        self.target_embedding = make_embedding(target_size, d)
        self.output_embedding = self.target_embedding if config.tie != "none" else make_embedding(target_size, d)
        if config.tie == "all":
            self.source_embedding = self.target_embedding
        self.output_bias = nn.Parameter(torch.zeros(self.target_pad)) if config.output_bias else None
        self.dropout = Dropout(config.dropout)
        if config.encoder == "separate":
            self.each = nn.Sequential(nn.Linear(d, config.d_ff), nn.Tanh(), nn.Linear(config.d_ff, d))
            self.query = nn.Linear(config.window * d, d)
            self.attention = SourceAttention("dot", query_width=d, source_width=d, width=d)
        self.inner = nn.Linear(config.window * d + d, config.d_ff)
        self.outer = nn.Linear(config.d_ff, d)

    def encode(self, source: Source) -> FeedForwardMemory:
        """The mean of the source's embeddings, or its tokens one by one."""
        assert isinstance(source, Tokens)
        x = self._embed(self.source_embedding, source.ids)
        if self.config.encoder == "separate":
            return self.attention.source(self.each(x) + x, source.real)
        real = source.real[..., None]
        return (x * real).sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)

    def decode(self, target: Tokens, memory: FeedForwardMemory) -> Float[Tensor, "R W D"]:
        return self._hidden(pad(target.ids, (self.config.window - 1, 0), value=self.target_pad), memory)

    def begin(self, memory: FeedForwardMemory) -> WindowState:
        like = memory if isinstance(memory, Tensor) else memory.values
        start = torch.full((like.shape[0], self.config.window - 1), self.target_pad, device=like.device)
        return WindowState(start, memory)

    def step(self, tokens: Int[Tensor, "R"], state: WindowState) -> Float[Tensor, "R V"]:
        window = torch.cat([state.recent, tokens[:, None]], 1)
        state.recent = window[:, 1:]
        return self.project(self._hidden(window, state.memory)[:, 0])

    def attentions(self) -> dict[str, list[Attention]]:
        if self.config.encoder == "average":
            super().attentions()  # refuses
        return {"encoder": [], "decoder": [], "cross": [self.attention]}

    def _hidden(self, ids: Int[Tensor, "R P"], memory: FeedForwardMemory) -> Float[Tensor, "R W D"]:
        """The hidden state after each token; the window of the first one is all that comes before it."""
        windows = self._embed(self.target_embedding, ids.unfold(1, self.config.window, 1)).flatten(2)
        context = memory if isinstance(memory, Tensor) else self.attention(self.query(windows), memory)
        context = context.expand(*windows.shape[:2], -1)
        return self.outer(self.dropout(self.inner(torch.cat([windows, context], -1)).tanh()))

    def _embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        return self.dropout(embed(table, ids))


def feed_forward_flops(
    config: FeedForwardConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float
) -> float:
    """Operations to train on this many tokens, counted as in `transduce/model/cost.py`."""
    d, windows = config.d_model, config.window * config.d_model
    separate = config.encoder == "separate"
    source = separate * (2 * d * config.d_ff + d * d)
    attention = separate * (windows * d + 2 * d * mean_length)
    target = (windows + d) * config.d_ff + config.d_ff * d + d * classes + attention
    return OPERATIONS_PER_WEIGHT * (source * source_tokens + target * target_tokens)


def feed_forward_activations(
    config: FeedForwardConfig, source_positions: int, target_positions: int, masks: bool
) -> int:
    """How many numbers the forward pass keeps for the backward pass, without the logits."""
    d, windows, kept = config.d_model, config.window * config.d_model, 1 + (masks and config.dropout > 0)
    separate = config.encoder == "separate"
    source = kept * d + separate * (config.d_ff + 3 * d)
    target = kept * windows + (windows + d) + kept * config.d_ff + d + separate * 2 * d
    return source * source_positions + target * target_positions
