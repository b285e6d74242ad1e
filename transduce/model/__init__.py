"""The Transformer of the paper and its variants; sees ids and vectors only."""

from transduce.model.ablation import Head, without_heads
from transduce.model.attention import MultiHeadAttention
from transduce.model.ensemble import Ensemble
from transduce.model.taps import AttentionMaps, watch
from transduce.model.tokens import Tokens
from transduce.model.transformer import DecoderState, Memory, Transformer
from transduce.model.unfilled import parameter_shapes, unfilled_model

__all__ = [
    "AttentionMaps",
    "DecoderState",
    "Ensemble",
    "Head",
    "Memory",
    "MultiHeadAttention",
    "Tokens",
    "Transformer",
    "parameter_shapes",
    "unfilled_model",
    "watch",
    "without_heads",
]
