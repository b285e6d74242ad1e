"""Text in, text out: the translator, its engine, and the model folder it is loaded from."""

from transduce.translator.engine import Request, TorchEngine
from transduce.translator.folder import (
    ModelFolder,
    better_weights,
    load_weights,
    open_folder,
    read_config,
    read_vocabularies,
)
from transduce.translator.translator import LONGEST_SOURCE, Attention, Output, Scored, Translation, Translator

__all__ = [
    "LONGEST_SOURCE",
    "Attention",
    "ModelFolder",
    "Output",
    "Request",
    "Scored",
    "TorchEngine",
    "Translation",
    "Translator",
    "better_weights",
    "load_weights",
    "open_folder",
    "read_config",
    "read_vocabularies",
]
