"""Settings of models: what every family has, and a file for each family.

Importable without torch. `transduce/model/families.py` is the other table: it says how a model of each family is made.
"""

from transduce.config.models.convolutional import ByteNetConfig, ConvS2SConfig
from transduce.config.models.decoder import DecoderConfig
from transduce.config.models.feed_forward import FeedForwardConfig
from transduce.config.models.layers import LayersConfig
from transduce.config.models.mingru import MinGruConfig
from transduce.config.models.model import ModelConfig, Refusal
from transduce.config.models.moe import MoeConfig
from transduce.config.models.prefix import PrefixConfig
from transduce.config.models.recurrent import GnmtConfig, RecurrentConfig, RnnConfig, Seq2seqConfig
from transduce.config.models.speech import SpeechConfig
from transduce.config.models.transformer import TransformerConfig

FAMILIES: dict[str, type[ModelConfig]] = {
    "transformer": TransformerConfig,
    "ff": FeedForwardConfig,
    "seq2seq": Seq2seqConfig,
    "decoder": DecoderConfig,
    "rnn": RnnConfig,
    "gnmt": GnmtConfig,
    "convs2s": ConvS2SConfig,
    "bytenet": ByteNetConfig,
    "speech": SpeechConfig,
    "moe": MoeConfig,
    "mingru": MinGruConfig,
    "prefix": PrefixConfig,
}

__all__ = [
    "FAMILIES",
    "ByteNetConfig",
    "ConvS2SConfig",
    "DecoderConfig",
    "FeedForwardConfig",
    "GnmtConfig",
    "LayersConfig",
    "MinGruConfig",
    "ModelConfig",
    "MoeConfig",
    "PrefixConfig",
    "RecurrentConfig",
    "Refusal",
    "RnnConfig",
    "Seq2seqConfig",
    "SpeechConfig",
    "TransformerConfig",
]
