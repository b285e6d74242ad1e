"""Settings of models: what every family has, and a file for each family.

Importable without torch. `transduce/model/families.py` is the other table: it says how a model of each family is made.
"""

from transduce.config.models.convolutional import ByteNetConfig, ConvS2SConfig
from transduce.config.models.decoder import DecoderConfig
from transduce.config.models.layers import LayersConfig
from transduce.config.models.model import ModelConfig, Refusal
from transduce.config.models.recurrent import RecurrentConfig, RnnConfig
from transduce.config.models.transformer import TransformerConfig

FAMILIES: dict[str, type[ModelConfig]] = {
    "transformer": TransformerConfig,
    "decoder": DecoderConfig,
    "rnn": RnnConfig,
    "convs2s": ConvS2SConfig,
    "bytenet": ByteNetConfig,
}

__all__ = [
    "FAMILIES",
    "ByteNetConfig",
    "ConvS2SConfig",
    "DecoderConfig",
    "LayersConfig",
    "ModelConfig",
    "RecurrentConfig",
    "Refusal",
    "RnnConfig",
    "TransformerConfig",
]
