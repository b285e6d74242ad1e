"""Convolutional models: ConvS2S, with attention in every decoder layer, and ByteNet, with none."""

from transduce.model.convolutional.bytenet import ByteNet
from transduce.model.convolutional.convs2s import ConvS2S

__all__ = ["ByteNet", "ConvS2S"]
