"""The settings of the recurrent families `rnn`, `seq2seq` and `gnmt`; the defaults are the published models."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from transduce.config.models.model import ModelConfig, Refusal
from transduce.config.models.tie import tie_refusal, tie_setting
from transduce.config.old_names import Layers
from transduce.config.setting import rate, setting

if TYPE_CHECKING:
    from transduce.config.settings import DataConfig

CELLS = {"gru": "gated recurrent units (Cho et al. 2014)", "lstm": "long short-term memory"}

TIES = ("all", "target", "inputs", "none")
RATE = 5.0  # of the learning rate for a Transformer (docs/log.md)


def _width(default: int, meaning: str, **others: Any) -> int:
    return setting(default, meaning, least=0, most=100_000, inherited="always", **others)


def _layers(default: int, meaning: str) -> int:
    return setting(default, meaning, least=1, most=1_000, inherited="always")


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(ModelConfig):
    """What the recurrent families share."""

    d_model: int = setting(1000, "Width of the recurrent layers.", least=1, most=100_000, inherited="always")
    dropout: float = rate(0.2, "Dropout on embeddings and on the input of each later layer.")
    d_embedding: int = _width(0, "Width of the embeddings.", zero="d_model")
    num_encoder_layers: int = _layers(1, "Recurrent layers of the encoder.")
    num_decoder_layers: int = _layers(1, "Recurrent layers of the decoder.")
    output_bias: bool = setting(True, "Whether the projection to the vocabulary has a bias.", inherited="always")
    tie: Literal["all", "target", "inputs", "none"] = tie_setting("none", TIES)

    @property
    def embedding_width(self) -> int:
        return self.d_embedding or self.d_model

    @property
    def output_width(self) -> int:
        """The width of the vectors that are projected to the vocabulary."""
        return self.d_model

    @property
    def description(self) -> str:
        return f"{self.family}: {self.num_encoder_layers} + {self.num_decoder_layers} layers, d_model {self.d_model}"

    @classmethod
    def fitted(cls, recipe: Layers) -> Layers:
        """Few layers, since recurrent layers are deep in time, and a learning rate that they stand."""
        layers = super().fitted(recipe)
        shape = {"num_encoder_layers": 1, "num_decoder_layers": 2, "d_embedding": 0}
        rate = layers["train"]["learning_rate"] * RATE
        return {
            **layers,
            "model": layers["model"] | shape,
            "train": layers["train"] | {"learning_rate": float(f"{rate:.2g}")},
        }

    def contradictions(self, data: "DataConfig") -> list[Refusal]:
        return [
            tie_refusal(self.tie, data),
            (
                self.tie in ("all", "target") and self.output_width != self.embedding_width,
                f'model.tie = "{self.tie}": embeddings of {self.embedding_width} values cannot be the output matrix, '
                f"which has {self.output_width}: set model.d_embedding or model.tie=none",
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class RnnConfig(RecurrentConfig):
    """The shape of the recurrent network with attention; the defaults are RNNsearch-50 (Bahdanau et al. 2015)."""

    title: ClassVar[str] = "A recurrent network with attention"

    d_embedding: int = _width(620, "Width of the embeddings.", zero="d_model")
    d_readout: int = _width(
        500, "Width of the maxout layer before the projection to the vocabulary.", zero="that of the embeddings"
    )
    num_decoder_layers: int = _layers(
        2,
        "Recurrent layers of the decoder. The first one reads target tokens; later ones also read the context.",
    )
    cell: Literal["gru", "lstm"] = setting("gru", "The recurrent unit.", choices=CELLS, inherited="always")
    attention: Literal["additive", "dot"] = setting(
        "additive",
        "How the decoder's states are compared with those of the encoder.",
        choices={
            "additive": "by a network with one hidden layer, as in the paper",
            "dot": "by scaled dot products with projected states, which is Luong's general form",
        },
        inherited="always",
    )

    @property
    def output_width(self) -> int:
        return self.d_readout or self.embedding_width

    @classmethod
    def fitted(cls, recipe: Layers) -> Layers:
        layers = super().fitted(recipe)
        return {**layers, "model": layers["model"] | {"d_readout": 0}}


@dataclass(frozen=True, kw_only=True)
class Seq2seqConfig(RecurrentConfig):
    """The shape of the encoder-decoder without attention; the defaults are those of Sutskever et al. 2014."""

    title: ClassVar[str] = "A recurrent encoder-decoder without attention"

    dropout: float = rate(0.0, "Dropout on embeddings and on the output of each layer.")
    num_encoder_layers: int = _layers(4, "Recurrent layers of the encoder; as many as of the decoder.")
    num_decoder_layers: int = _layers(4, "Recurrent layers of the decoder; as many as of the encoder.")
    cell: Literal["gru", "lstm"] = setting("lstm", "The recurrent unit.", choices=CELLS, inherited="always")
    reverse_source: bool = setting(
        True, "Whether the source is read backwards, so that its first tokens are near the first target tokens.",
        inherited="always",
    )  # fmt: skip

    @classmethod
    def fitted(cls, recipe: Layers) -> Layers:
        layers = super().fitted(recipe)
        return {**layers, "model": layers["model"] | {"num_encoder_layers": 2, "num_decoder_layers": 2}}

    def contradictions(self, data: "DataConfig") -> list[Refusal]:
        return [
            *super().contradictions(data),
            (
                self.num_encoder_layers != self.num_decoder_layers,
                f"model.num_encoder_layers = {self.num_encoder_layers} and model.num_decoder_layers = "
                f"{self.num_decoder_layers}: each layer of the decoder begins in the last state of one of the encoder, "
                "so set both to the same number",
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class GnmtConfig(RecurrentConfig):
    """The shape of GNMT; the defaults are NVIDIA's GNMT v2."""

    title: ClassVar[str] = "A deep recurrent network with attention (GNMT)"

    d_model: int = setting(1024, "Width of the recurrent layers.", least=1, most=100_000, inherited="always")
    num_encoder_layers: int = setting(
        4, "LSTM layers of the encoder; the first one is bidirectional.", least=2, most=1_000, inherited="always"
    )
    num_decoder_layers: int = _layers(4, "LSTM layers of the decoder; all but the first one read the context.")
    first_residual: int = setting(
        3,
        "The first layer whose input is added to its output, on both sides. 2: in the encoder, whose second layer reads both "
        "directions, their sum is added.",
        least=2, most=1_000, inherited="always",
    )  # fmt: skip
    tie: Literal["all", "target", "inputs", "none"] = tie_setting("inputs", TIES)

    @classmethod
    def fitted(cls, recipe: Layers) -> Layers:
        """Two to four layers, one less than a Transformer. With the published residuals, so few would learn to attend late."""
        layers, count = super().fitted(recipe), min(4, max(2, recipe["model"]["num_encoder_layers"] - 1))
        shape = {"num_encoder_layers": count, "num_decoder_layers": count, "first_residual": 2}
        return {**layers, "model": layers["model"] | shape}
