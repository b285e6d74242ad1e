"""Prepare the GPU while the data is read: PyTorch's late imports, the driver's context and the model's Triton kernels.

On a machine that has never trained these shapes this takes twenty seconds, about as long as learning the vocabulary.
Knows settings and the device, but no data; keeps only what is loaded and compiled.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from transduce.config import Config, DecoderConfig, ModelConfig, TransformerConfig
from transduce.config.models import PrefixConfig
from transduce.data.packing import WIDTH
from transduce.device import Device, choose_device
from transduce.model import Prefix
from transduce.training.speed import Sentences, Windows, one_update

NAME = "transduce-warm-up"


@contextmanager
def warming_up(config: Config) -> Iterator[None]:
    """Prepare the device in a thread while the body of this context runs; leaving the context waits for both."""
    device = choose_device(config.train.device, config.train.precision, config.train.threads)
    if device.kind != "cuda" or not isinstance(config.model, TransformerConfig | DecoderConfig | PrefixConfig):
        yield
        return
    thread = threading.Thread(target=_warm_up, args=(config, device), name=NAME, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _warm_up(config: Config, device: Device) -> None:
    """Update a model with a single layer in each stack; further layers use the same kernels."""
    model, sentences = _small(config)
    try:
        one_update(model, config.train, sentences, device)
        torch.cuda.empty_cache()
    except Exception:  # the real model will raise the same error, where the user expects it
        return


def _small(config: Config) -> tuple[ModelConfig, Sentences]:
    """A model with a single layer in each stack, and rows as wide as those of training."""
    size = config.data.vocabulary_size
    if isinstance(config.model, DecoderConfig):
        kind = Windows if config.data.documents == "file" else Sentences  # short documents share rows
        return replace(config.model, num_decoder_layers=1), kind(size, size, 0, config.model.context)
    if isinstance(config.model, PrefixConfig):
        return replace(config.model, num_decoder_layers=1), Sentences(size, size, Prefix.page_width, Prefix.page_width)
    small = replace(config.transformer, num_encoder_layers=1, num_decoder_layers=1)
    return small, Sentences(size, size, WIDTH, WIDTH)
