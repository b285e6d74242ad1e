"""What speech adds to the layers of a Transformer: the convolutions that shorten frames, and the Conformer's layer.

Axes: R rows, W frames or positions, F numbers of a frame, C channels, D d_model.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import glu, relu, silu

from transduce.config import SpeechConfig
from transduce.model.attention import MultiHeadAttention
from transduce.model.layers import FeedForward, Residual
from transduce.model.shapes import Bool, Float, Int
from transduce.model.tokens import Frames, Keep


class Subsampling(nn.Module):
    """Two convolutions of stride 2 over time and frequency: one position for every four frames."""

    def __init__(self, config: SpeechConfig) -> None:
        super().__init__()
        channels = max(4, config.d_model // 4)
        self.first = nn.Conv2d(1, channels, 3, stride=2, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.output = nn.Linear(channels * (config.bins // 4), config.d_model)

    def forward(self, source: Frames) -> Float[Tensor, "R W4 D"]:
        """Padding is zero before each convolution, so that it cannot be told from the silence before and after a recording."""
        real = source.real
        x = (source.values * real[..., None]).to(self.first.weight.dtype)[:, None]
        x = relu(self.first(x)) * real[:, None, ::2, None]
        x = relu(self.second(x))
        return self.output(x.transpose(1, 2).flatten(2))


class ConvolutionModule(nn.Module):
    """Gated, depthwise over time, and mixed again (Gulati et al. 2020, figure 2).

    Differs from that paper: LayerNorm in place of BatchNorm, so that a row depends on no other row and not on padding.
    """

    def __init__(self, config: SpeechConfig) -> None:
        super().__init__()
        d = config.d_model
        self.gates = nn.Linear(d, 2 * d)
        self.depthwise = nn.Conv1d(d, d, config.convolution, padding=config.convolution // 2, groups=d)
        self.norm = nn.LayerNorm(d)
        self.output = nn.Linear(d, d)

    def forward(self, x: Float[Tensor, "R W D"], real: Bool[Tensor, "R W"]) -> Float[Tensor, "R W D"]:
        x = glu(self.gates(x), dim=-1) * real[..., None]
        x = self.depthwise(x.mT).mT
        return self.output(silu(self.norm(x)))


class ConformerLayer(nn.Module):
    """Half a feed-forward network, self-attention, a convolution, and the other half (Gulati et al. 2020, figure 1)."""

    def __init__(self, config: SpeechConfig) -> None:
        super().__init__()
        layers = config.transformer
        self.attention, self.attention_residual = MultiHeadAttention(layers), Residual(layers)
        self.convolution, self.convolution_residual = ConvolutionModule(config), Residual(layers)
        self.before, self.before_residual = FeedForward(layers), Residual(layers)
        self.after, self.after_residual = FeedForward(layers), Residual(layers)

    def forward(self, x: Float[Tensor, "R W D"], position: Int[Tensor, "R W"], keep: Keep) -> Float[Tensor, "R W D"]:
        segment = keep.query
        x = self.before_residual(x, segment, lambda y: 0.5 * self.before(y))
        x = self.attention_residual(x, segment, lambda y: self.attention.to_self(y, position, keep))
        x = self.convolution_residual(x, segment, lambda y: self.convolution(y, segment != 0))
        return self.after_residual(x, segment, lambda y: 0.5 * self.after(y))


def subsampled(frames: Frames) -> tuple[Int[Tensor, "R W4"], Int[Tensor, "R W4"]]:
    """The positions and segments after the convolutions."""
    return torch.div(frames.position[:, ::4], 4, rounding_mode="floor"), frames.segment[:, ::4]
