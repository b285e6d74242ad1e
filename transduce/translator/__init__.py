"""Text in, text out: the translator, its engines, and the model folder they are loaded from.

(`torch_engine` is imported by name: it needs torch; so is all of `ct2_...`, which needs CTranslate2.)
"""

from transduce.translator.engine import SearchRequest
from transduce.translator.engines import LoadOptions
from transduce.translator.folder import (
    ModelFolder,
    better_weights,
    check_shapes,
    load_weights,
    open_folder,
    parameter_shapes,
    read_config,
    read_layers,
    read_vocabularies,
    write_config,
    write_shortlist,
)
from transduce.translator.outputs import Attention, Output, Scored, Translation
from transduce.translator.translator import LONGEST_SOURCE, Translator, longest_target

__all__ = [
    "LONGEST_SOURCE",
    "Attention",
    "LoadOptions",
    "ModelFolder",
    "Output",
    "Scored",
    "SearchRequest",
    "Translation",
    "Translator",
    "better_weights",
    "check_shapes",
    "load_weights",
    "longest_target",
    "open_folder",
    "parameter_shapes",
    "read_config",
    "read_layers",
    "read_vocabularies",
    "write_config",
    "write_shortlist",
]
