"""The families of models, and the one place where a model is made from its settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transduce.config import FAMILIES as SETTINGS
from transduce.config import ModelConfig
from transduce.errors import SettingError
from transduce.model.convolutional import ByteNet, ConvS2S
from transduce.model.convolutional.cost import bytenet_activations, bytenet_flops, convs2s_activations, convs2s_flops
from transduce.model.cost import transformer_activations, transformer_flops
from transduce.model.decoder import Decoder, decoder_activations, decoder_flops
from transduce.model.feed_forward_baseline import (
    FeedForwardBaseline,
    feed_forward_activations,
    feed_forward_flops,
)
from transduce.model.mingru import MinGru, mingru_activations, mingru_flops
from transduce.model.mixture import MixtureOfExperts, moe_activations, moe_flops
from transduce.model.model import Model
from transduce.model.prefix import Prefix, prefix_activations, prefix_flops
from transduce.model.recurrent import Gnmt, RnnSearch, Seq2seq
from transduce.model.recurrent.cost import recurrent_activations, recurrent_flops
from transduce.model.speech import SpeechModel
from transduce.model.speech.cost import speech_activations, speech_flops
from transduce.model.transformer import Transformer


@dataclass(frozen=True)
class Family:
    """How to make a model of the family, and what training it costs."""

    make: Callable[[Any, int, int], Model]  # settings, source size, target size
    training_flops: Callable[[Any, int, int, int, float], float]
    activations: Callable[[Any, int, int, bool], int]


FAMILIES = {
    "transformer": Family(Transformer, transformer_flops, transformer_activations),
    "ff": Family(FeedForwardBaseline, feed_forward_flops, feed_forward_activations),
    "seq2seq": Family(Seq2seq, recurrent_flops, recurrent_activations),
    "rnn": Family(RnnSearch, recurrent_flops, recurrent_activations),
    "gnmt": Family(Gnmt, recurrent_flops, recurrent_activations),
    "decoder": Family(Decoder, decoder_flops, decoder_activations),
    "convs2s": Family(ConvS2S, convs2s_flops, convs2s_activations),
    "bytenet": Family(ByteNet, bytenet_flops, bytenet_activations),
    "speech": Family(SpeechModel, speech_flops, speech_activations),
    "moe": Family(MixtureOfExperts, moe_flops, moe_activations),
    "mingru": Family(MinGru, mingru_flops, mingru_activations),
    "prefix": Family(Prefix, prefix_flops, prefix_activations),
}


def register(name: str, settings: type[ModelConfig], family: Family) -> None:
    """Make a family known to this process, under a name that is free; docs/adding-a-model.md shows how."""
    if name in FAMILIES:
        raise SettingError(f"model.family = {name}: there is a family of this name: choose another one")
    SETTINGS[name], FAMILIES[name] = settings, family


def make_model(config: ModelConfig, source_size: int, target_size: int) -> Model:
    """A new model of the family that the settings name.

    `source_size` is the size of the source vocabulary, or the number of values in a frame where sources are frames.
    """
    return FAMILIES[config.family].make(config, source_size, target_size)


def training_flops(
    config: ModelConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float
) -> float:
    """Floating-point operations to train on this many tokens (padding excluded) in sentences of about `mean_length`."""
    count = FAMILIES[config.family].training_flops
    return count(config, classes, source_tokens, target_tokens, mean_length)


def kept_activations(config: ModelConfig, source_positions: int, target_positions: int, masks: bool) -> int:
    """How many numbers a training step keeps for the backward pass, without the logits; `masks`: dropout masks too."""
    return FAMILIES[config.family].activations(config, source_positions, target_positions, masks)
