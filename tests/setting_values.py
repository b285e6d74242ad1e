"""The values at which tests try a setting: every named choice, both booleans, and of numbers the default, one other and both
bounds. Shared by tests/test_every_setting.py and benchmarks/every_setting_gpu.py."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from transduce.config import (
    Config,
    DataConfig,
    FeedForwardConfig,
    GnmtConfig,
    ModelConfig,
    RnnConfig,
    Seq2seqConfig,
    Setting,
    TransformerConfig,
    all_settings,
    check,
)
from transduce.config.models import MinGruConfig, PrefixConfig
from transduce.config.support import Supports
from transduce.errors import SettingError

# The tiny model that one setting, or two, are changed in. Its heads are as wide as kernels and slots need.
TINY = TransformerConfig(
    d_model=32, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, max_positions=128
)
SHORT = DataConfig(max_length=16)
# Tiny models of other families, in which one setting is changed at a time.
TINY_OTHERS: dict[str, ModelConfig] = {
    "ff": FeedForwardConfig(family="ff", d_model=16, d_ff=20),
    "seq2seq": Seq2seqConfig(family="seq2seq", d_model=16, num_encoder_layers=1, num_decoder_layers=1),
    "rnn": RnnConfig(family="rnn", d_model=16, d_embedding=0, d_readout=0),
    "gnmt": GnmtConfig(family="gnmt", d_model=16, num_encoder_layers=2, num_decoder_layers=2),
    "mingru": MinGruConfig(
        family="mingru", d_model=16, d_ff=20, num_heads=2, num_encoder_layers=1, num_decoder_layers=1
    ),
    "prefix": PrefixConfig(family="prefix", d_model=16, d_ff=20, num_heads=2, num_decoder_layers=1),
}
# A second value, where twice the default is too large for a test, wrong, or no number.
OTHERS: dict[str, Any] = {
    "model.d_model": 64, "model.d_ff": 48, "model.num_heads": 1, "model.num_encoder_layers": 2,
    "model.num_decoder_layers": 2, "model.d_k": 8, "model.d_v": 24, "model.max_positions": 64, "model.window": 2,
    "data.train": (), "data.valid": (), "data.weights": ("2",), "data.hold_out": 5, "data.hold_out_speakers": ("anna",), "data.languages": ("en", "de"),
    "data.tags": ("de",), "data.valid_tags": (), "data.placeholders": ("numbers",), "data.vocabulary_size": 280, "data.vocabulary_sample": 20, "data.symbols": ("<x>",),
    "data.speeds": ("0.9", "1"), "data.frequency_masks": 1, "data.time_masks": 1, "data.trim_quiet": 35.0,
    "data.columns": ("source=2", "target=1"), "data.max_length": 12, "data.cache": "", "data.vocabulary_from": "",
    "train.steps": 2, "train.epochs": 1.0, "train.minutes": 0.1, "train.tokens_per_batch": 60,
    "train.positions_per_microbatch": 32, "train.learning_rate": 1e-3, "train.warmup_steps": 2, "train.epsilon": 1e-6,
    "train.weight_decay": 0.1, "train.r_drop": 5.0, "train.clip_norm": 1.0, "train.validate_every": 2,
    "train.validate_lines": 2, "train.checkpoint_every": 2, "train.log_every": 1, "train.average": 2,
    "train.patience": 1, "train.seed": 7, "train.threads": 1, "train.shards": 4, "train.process_timeout": 5.0,
    "train.start_from": "",
    "search.beam": 2, "search.alpha": 1.0, "search.max_extra": 3,
}  # fmt: skip
Change = tuple[Setting, Any]


def values_of(one: Setting) -> list[Any]:
    """The values to try, without repetitions, the default first."""
    if one.choices:
        return [one.default, *(value for value in one.choices if value != one.default)]
    if one.kind is bool:
        return [one.default, not one.default]
    other = OTHERS.get(one.name, 0.3 if one.kind is float else one.default)
    return list(dict.fromkeys([one.default, other, *_bounds(one)]))


def _bounds(one: Setting) -> list[Any]:
    about = one.about
    if one.kind not in (int, float):
        return []
    highest = math.nextafter(about.below, 0) if about.below is not None else about.most
    return [one.kind(bound) for bound in (about.least, highest) if bound is not None]


def changes(section: str) -> list[Change]:
    """Every value of every setting of a section."""
    return [(one, value) for one in all_settings() if one.section == section for value in values_of(one)]


def pairs_of_changes(*declared: Supports) -> Iterator[tuple[Change, Change]]:
    """Two settings changed at once, among those that these declarations name; of numbers, to one other value."""
    named = {key for supports in declared for key in supports.values}
    single = [
        (one, value)
        for one, value in changes("model")
        if one.key in named and value != getattr(TINY, one.key)
        if one.kind not in (int, float) or value == OTHERS.get(one.name, 0.3)
    ]
    return ((a, b) for a, b in itertools.combinations(single, 2) if a[0].key != b[0].key)


def changed(*those: Change) -> TransformerConfig:
    """The tiny model with these settings, refused where they cannot work together."""
    model = replace(TINY, **{one.key: value for one, value in those})
    check(replace(Config(), model=model, data=SHORT))
    return model


def values_of_other(one: Setting) -> list[Any]:
    """The values to try in a tiny model of another family: of numbers, one other and the lower bound."""
    if one.choices or one.kind is bool:
        return values_of(one)
    return list(dict.fromkeys([OTHERS.get(one.name, 0.3 if one.kind is float else 3), one.kind(one.about.least)]))


def refusal(*those: Change) -> str:
    """Why these settings of a model are refused, or nothing."""
    try:
        changed(*those)
    except SettingError as error:
        return str(error)
    return ""


def label(*those: Change) -> str:
    return " ".join(f"{one.name}={value}" for one, value in those)
