"""Prepare the GPU while the data is read: PyTorch's late imports, the driver's context and the model's Triton kernels.

On a machine that has never trained these shapes this takes twenty seconds, about as long as learning the vocabulary.
Knows settings and the device, but no data; keeps only what is loaded and compiled.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from transduce.config import Config, TransformerConfig
from transduce.data.packing import WIDTH
from transduce.device import Device, choose_device
from transduce.training.speed import Sentences, one_update

NAME = "transduce-warm-up"


@contextmanager
def warming_up(config: Config) -> Iterator[None]:
    """Prepare the device in a thread while the body of this context runs; leaving the context waits for both."""
    device = choose_device(config.train.device, config.train.precision, config.train.threads)
    if device.kind != "cuda" or not isinstance(config.model, TransformerConfig):
        yield
        return
    thread = threading.Thread(target=_warm_up, args=(config, device), name=NAME, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _warm_up(config: Config, device: Device) -> None:
    """Update a model with one encoder and one decoder layer; further layers use the same kernels."""
    model = replace(config.transformer, num_encoder_layers=1, num_decoder_layers=1)
    size = config.data.vocabulary_size
    try:
        one_update(model, config.train, Sentences(size, size, WIDTH, WIDTH), device)
        torch.cuda.empty_cache()
    except Exception:  # the real model will raise the same error, where the user expects it
        return
