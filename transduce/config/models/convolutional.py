"""The settings of the convolutional models: ConvS2S (Gehring et al. 2017) and ByteNet (Kalchbrenner et al. 2016)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from transduce.config.models.model import ModelConfig, Refusal
from transduce.config.models.tie import tie_refusal, tie_setting
from transduce.config.old_names import Layers
from transduce.config.setting import rate, setting

if TYPE_CHECKING:
    from transduce.config.settings import DataConfig


BLOCKS_OF_A_SET = 5  # of ByteNet


@dataclass(frozen=True, kw_only=True)
class ConvS2SConfig(ModelConfig):
    """Gated convolutions with attention in every decoder layer; the defaults are the model for WMT16 English-Romanian.

    Sections 4.2 and 5.1 of the paper: 20 layers on each side, 512 units, kernels of width 3.
    """

    title: ClassVar[str] = "A convolutional network with attention"

    dropout: float = rate(0.1, "Dropout on the embeddings, the input of each convolution and the decoder's output.")
    num_encoder_layers: int = setting(20, "Convolutions of the encoder.", least=1, most=1_000, inherited="always")
    num_decoder_layers: int = setting(
        20, "Convolutions of the decoder, each followed by attention.", least=1, most=1_000, inherited="always"
    )
    kernel_width: int = setting(
        3, "Positions that a convolution sees.", unit="tokens", least=1, most=1_000, inherited="always"
    )
    widths: tuple[str, ...] = setting(
        (), "Units of each layer, from the first to the last, on both sides; if empty, all layers have d_model units.",
        inherited="always",
    )  # fmt: skip
    kernels: tuple[str, ...] = setting(
        (), "Kernel width of each layer, on both sides; if empty, all layers have kernel_width.", inherited="always"
    )
    max_positions: int = setting(
        1024, "Positions that are learned.", unit="tokens", least=1, most=10_000_000, inherited="always"
    )
    tie: Literal["all", "target", "none"] = tie_setting("none", paper="none")

    @property
    def encoder_shape(self) -> list[tuple[int, int]]:
        """Units and kernel width of each layer."""
        return self._shape(self.num_encoder_layers)

    @property
    def decoder_shape(self) -> list[tuple[int, int]]:
        return self._shape(self.num_decoder_layers)

    def _shape(self, layers: int) -> list[tuple[int, int]]:
        widths = [int(width) for width in self.widths] or layers * [self.d_model]
        kernels = [int(width) for width in self.kernels] or layers * [self.kernel_width]
        return list(zip(widths, kernels, strict=True))

    @property
    def description(self) -> str:
        layers = f"{self.num_encoder_layers} + {self.num_decoder_layers} convolutions"
        return f"convs2s, {layers} of width {self.kernel_width}, d_model {self.d_model}"

    @property
    def longest_source(self) -> int | None:
        return self.max_positions

    @property
    def longest_target(self) -> int | None:
        return self.max_positions

    @classmethod
    def fitted(cls, recipe: Layers) -> Layers:
        """Deeper than a Transformer of the same width, since a layer sees only its neighbours; clipped more tightly."""
        shape, train = recipe["model"], recipe["train"]
        layers = {f"num_{side}_layers": shape[f"num_{side}_layers"] + 1 for side in ("encoder", "decoder")}
        model = {"d_model": shape["d_model"], "dropout": shape["dropout"], "tie": shape["tie"], **layers}
        return {**recipe, "model": model, "train": {**train, "clip_norm": 0.1}}

    def contradictions(self, data: "DataConfig") -> list[Refusal]:
        return [
            *_refused_lists(self, {"widths": self.widths, "kernels": self.kernels}),
            (
                data.max_length > self.max_positions,
                f"data.max_length = {data.max_length} is over model.max_positions = {self.max_positions}: raise the latter",
            ),
            tie_refusal(self.tie, data),
        ]


@dataclass(frozen=True, kw_only=True)
class ByteNetConfig(ModelConfig):
    """Dilated convolutions without attention; the defaults are the model for WMT14 English-German.

    Section 5 of the paper: 30 residual blocks on each side in sets of five, 800 units inside a block, twice as many outside.
    """

    title: ClassVar[str] = "A convolutional network without attention"

    d_model: int = setting(
        1600, "Width of embeddings and hidden states; residual blocks compute in half of it.",
        least=2, most=100_000, inherited="always",
    )  # fmt: skip
    dropout: float = rate(0.1, "Dropout on the embeddings and on the output of each residual block.")
    num_encoder_layers: int = setting(30, "Residual blocks of the encoder.", least=1, most=1_000, inherited="always")
    num_decoder_layers: int = setting(30, "Residual blocks of the decoder.", least=1, most=1_000, inherited="always")
    kernel_width: int = setting(
        3, "Positions that a convolution sees.", unit="tokens", least=1, most=1_000, inherited="always"
    )
    largest_dilation: int = setting(
        16, "Distance between these positions doubles from block to block up to this, and begins again at 1.",
        unit="tokens", least=1, most=100_000, inherited="always",
    )  # fmt: skip
    tie: Literal["all", "target", "none"] = tie_setting("none", paper="none")

    @property
    def description(self) -> str:
        return f"bytenet, {self.num_encoder_layers} + {self.num_decoder_layers} residual blocks, d_model {self.d_model}"

    def dilations(self, layers: int) -> list[int]:
        """1, 2, 4, ... up to the largest, and again."""
        period = self.largest_dilation.bit_length()
        return [1 << number % period for number in range(layers)]

    @classmethod
    def fitted(cls, recipe: Layers) -> Layers:
        """A set of five blocks, with dilations from 1 to 16, for each layer of a Transformer: the published model has six sets."""
        shape = recipe["model"]
        layers = {
            f"num_{side}_layers": BLOCKS_OF_A_SET * shape[f"num_{side}_layers"] for side in ("encoder", "decoder")
        }
        model = {"d_model": shape["d_model"], "dropout": shape["dropout"], "tie": shape["tie"], **layers}
        return {**recipe, "model": model}

    def contradictions(self, data: "DataConfig") -> list[Refusal]:
        odd = self.d_model % 2 == 1
        return [
            (odd, f"model.d_model = {self.d_model}: blocks have half of it, so it must be even"),
            tie_refusal(self.tie, data),
        ]


def _refused_lists(config: ConvS2SConfig, lists: dict[str, Any]) -> list[Refusal]:
    """Lists with a number for each layer need positive numbers, and as many as each side has layers."""
    layers = {config.num_encoder_layers, config.num_decoder_layers}
    return [
        *(
            (
                bool(values) and not all(value.isdecimal() and int(value) > 0 for value in values),
                f"model.{name} = {','.join(values)}: must be whole numbers of at least 1",
            )
            for name, values in lists.items()
        ),
        *(
            (
                bool(values) and layers != {len(values)},
                f"model.{name} has {len(values)} numbers: set model.num_encoder_layers and model.num_decoder_layers to it",
            )
            for name, values in lists.items()
        ),
    ]
