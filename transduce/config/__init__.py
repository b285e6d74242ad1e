"""The one page of configuration: what can be set, what the presets say, and how the layers combine."""

from transduce.config.budget import Machine
from transduce.config.budget import cpu as cpu_machine
from transduce.config.budget import gpu as gpu_machine
from transduce.config.fitted import FitRequest, Fitted, Time, fit
from transduce.config.models import (
    FAMILIES,
    DecoderConfig,
    FeedForwardConfig,
    GnmtConfig,
    LayersConfig,
    ModelConfig,
    RecurrentConfig,
    RnnConfig,
    Seq2seqConfig,
    SpeechConfig,
    TransformerConfig,
)
from transduce.config.old_names import Layers, notes_on_old_names, refuse_removed, without_removed
from transduce.config.presets import PRESETS
from transduce.config.refusals import check, check_ranges
from transduce.config.resolve import (
    assemble,
    assignments,
    build,
    differences,
    flatten,
    from_toml,
    merge,
    settings_layer,
    to_toml,
)
from transduce.config.setting import Setting
from transduce.config.settings import (
    Config,
    DataConfig,
    SearchConfig,
    TrainConfig,
    all_settings,
    language_tag,
)
from transduce.config.task import Counts, SideCounts
from transduce.config.text_recipe import fit_text

__all__ = [
    "FAMILIES",
    "PRESETS",
    "Config",
    "Counts",
    "DataConfig",
    "DecoderConfig",
    "FeedForwardConfig",
    "FitRequest",
    "Fitted",
    "GnmtConfig",
    "Layers",
    "LayersConfig",
    "Machine",
    "ModelConfig",
    "RecurrentConfig",
    "RnnConfig",
    "SearchConfig",
    "Seq2seqConfig",
    "Setting",
    "SideCounts",
    "SpeechConfig",
    "Time",
    "TrainConfig",
    "TransformerConfig",
    "all_settings",
    "assemble",
    "assignments",
    "build",
    "check",
    "check_ranges",
    "cpu_machine",
    "differences",
    "fit",
    "fit_text",
    "flatten",
    "from_toml",
    "gpu_machine",
    "language_tag",
    "merge",
    "notes_on_old_names",
    "refuse_removed",
    "settings_layer",
    "to_toml",
    "without_removed",
]
