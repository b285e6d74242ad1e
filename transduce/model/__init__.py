"""Models: the Transformer of the paper and its variants, which see only ids and vectors."""

from transduce.model.ablation import Head, has_heads, without_heads
from transduce.model.attention import MultiHeadAttention
from transduce.model.checks import check_family
from transduce.model.decoder import Decoder, TextState
from transduce.model.dropout import Dropout
from transduce.model.embeddings import make_embedding
from transduce.model.ensemble import Ensemble
from transduce.model.families import FAMILIES, Family, kept_activations, make_model, register, training_flops
from transduce.model.losses import IGNORED, Loss
from transduce.model.model import Matrices, Model, State, has_running_statistics, stored_tensors
from transduce.model.prefix import Prefix
from transduce.model.sliding import SlidingDecoder, SlidingState
from transduce.model.taps import AttentionMaps, watch
from transduce.model.tokens import Frames, Sequences, Source, SourceItem, Tokens, collate
from transduce.model.transformer import DecoderState, Memory, Transformer, as_transformer
from transduce.model.uninitialised import parameter_shapes, uninitialised_model

__all__ = [
    "FAMILIES",
    "IGNORED",
    "AttentionMaps",
    "Decoder",
    "DecoderState",
    "Dropout",
    "Ensemble",
    "Family",
    "Frames",
    "Head",
    "Loss",
    "Matrices",
    "Memory",
    "Model",
    "MultiHeadAttention",
    "Prefix",
    "Sequences",
    "SlidingDecoder",
    "SlidingState",
    "Source",
    "SourceItem",
    "State",
    "TextState",
    "Tokens",
    "Transformer",
    "as_transformer",
    "check_family",
    "collate",
    "has_heads",
    "has_running_statistics",
    "kept_activations",
    "make_embedding",
    "make_model",
    "parameter_shapes",
    "register",
    "stored_tensors",
    "training_flops",
    "uninitialised_model",
    "watch",
    "without_heads",
]
