"""A GPU made ready while the data are read: PyTorch's late imports, the driver's context, and the Triton kernels of the model.

On a machine that has never trained these shapes they take twenty seconds, which the vocabulary takes too. Knows settings
and the device, no data; nothing of it stays but what is loaded and compiled.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from transduce.config import Config, ModelConfig
from transduce.data.packing import WIDTH
from transduce.device import Device, choose_device
from transduce.training.speed import Sentences, one_update

NAME = "transduce-warm-up"


@contextmanager
def warming_up(config: Config) -> Iterator[None]:
    """What is done inside goes on while the device becomes ready; at the end both are done."""
    device = choose_device(config.train.device, config.train.precision, config.train.threads)
    if device.kind != "cuda" or not isinstance(config.model, ModelConfig):
        yield
        return
    thread = threading.Thread(target=_warm_up, args=(config, device), name=NAME, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _warm_up(config: Config, device: Device) -> None:
    """One update of a model with a single layer on each side; the others are compiled with it."""
    model = replace(config.transformer, num_encoder_layers=1, num_decoder_layers=1)
    size = config.data.vocabulary_size
    try:
        one_update(model, config.train, Sentences(size, size, WIDTH, WIDTH), device)
        torch.cuda.empty_cache()
    except Exception:  # the model itself will meet what was wrong, and is asked for; this was not
        return
