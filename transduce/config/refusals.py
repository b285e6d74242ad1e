"""What `check` refuses: settings that are wrong by themselves or contradict each other, each in one line that says what to change.

A refusal is a condition and the message for when it holds. Importable without torch; knows no files and no data.
"""

import math
import re

from transduce.config.columns import Columns
from transduce.config.models import ModelConfig, Refusal
from transduce.config.setting import settings_of
from transduce.config.settings import SECTIONS, Config, DataConfig
from transduce.errors import SettingError
from transduce.placeholders import KINDS


def check(config: Config) -> None:
    """Refuse what cannot work, by name, before anything is computed."""
    check_ranges(config)
    for refused, message in _contradictions(config):
        if refused:
            raise SettingError(message)


def check_ranges(config: Config) -> None:
    """Refuse what is wrong for any data; the rest of `check` needs settings that are chosen for the data."""
    for section in SECTIONS:
        values = getattr(config, section)
        for one in settings_of(section, type(values)):
            if refusal := one.refusal(getattr(values, one.key)):
                raise SettingError(refusal)
    for refused, message in (
        *_language_refusals(config.data),
        *_weight_refusals(config.data),
        *_tag_refusals(config.data),
        *_placeholder_refusals(config.data),
        *_column_refusals(config.data),
        *_family_refusals(config.model, config.data),
        *_speed_refusals(config.data),
    ):
        if refused:
            raise SettingError(message)


def _language_refusals(data: DataConfig) -> list[Refusal]:
    given = list(data.languages)
    return [(len(given) not in (0, 2), f"data.languages = {given}: give two, source and target, or none")]


def _weight_refusals(data: DataConfig) -> list[Refusal]:
    """A run that goes on need not name its data again: without them weights are not counted here."""
    given = f"data.weights = {','.join(data.weights)}"
    weights: list[float] = []
    for text in data.weights:
        try:
            weights.append(float(text))
        except ValueError:
            return [(True, f"{given}: '{text}' is not a number")]
    return [
        (not all(map(math.isfinite, weights)), f"{given}: must be finite"),
        (any(weight < 0 for weight in weights), f"{given}: must not be negative"),
        (any(weight > 1_000 for weight in weights), f"{given}: must be at most 1,000"),
        (bool(weights) and not any(weights), f"{given}: all are 0: nothing would be learned from"),
        (
            bool(weights and data.train) and len(weights) != len(data.train),
            f"{given}: {len(weights)} for {len(data.train)} corpora: give one weight for each --train, in their order",
        ),
    ]


def _tag_refusals(data: DataConfig) -> list[Refusal]:
    """A run that goes on need not name its data again: without them tags are not counted here."""
    refusals: list[Refusal] = []
    for name, tags, groups, option in (
        ("tags", data.tags, data.train, "--train"),
        ("valid_tags", data.valid_tags, data.valid, "--valid"),
    ):
        given = f"data.{name} = {','.join(tags)}"
        wrong = [tag for tag in tags if not re.fullmatch(r"[A-Za-z0-9_-]+", tag)]
        refusals += [
            (bool(wrong), f"{given}: '{''.join(wrong[:1])}' is not a language code, such as de or zh_Hant"),
            (
                bool(tags and groups) and len(tags) != len(groups),
                f"{given}: {len(tags)} for {len(groups)} corpora: give one language for each {option}, in their order",
            ),
        ]
    return [
        *refusals,
        (bool(data.valid_tags) and not data.tags, "data.valid_tags without data.tags: set both, or neither"),
        (
            bool(data.tags and data.valid) and not data.valid_tags and len(data.valid) != len(data.train) > 0,
            f"data.tags = {','.join(data.tags)}: which languages are the {len(data.valid)} --valid in? Set data.valid_tags",
        ),
    ]


def _placeholder_refusals(data: DataConfig) -> list[Refusal]:
    wrong = [kind for kind in data.placeholders if kind not in KINDS]
    known = ", ".join(KINDS)
    return [(bool(wrong), f"data.placeholders: '{''.join(wrong[:1])}' is not one of {known}")]


def _column_refusals(data: DataConfig) -> list[Refusal]:
    try:
        Columns.of(data.columns) if data.columns else None
    except SettingError as error:
        return [(True, str(error))]
    return []


def _family_refusals(model: ModelConfig, data: DataConfig) -> list[Refusal]:
    return [
        (
            data.task == "text" and not model.reads_text,
            f"data.task = text: model.family = {model.family} learns from pairs: give them with --train, or leave out model.family",
        )
    ]


def _text_refusals(model: ModelConfig, data: DataConfig) -> list[Refusal]:
    """What language models have no use for."""
    unused = (
        "weights",
        "tags",
        "valid_tags",
        "placeholders",
        "columns",
        "skip_blank_lines",
        "subword_sampling",
        "concatenate",
    )
    given = [name for name in unused if data.task == "text" and getattr(data, name)]
    return [
        (bool(given), f"data.{''.join(given[:1])} is for pairs and has no effect on a language model: leave it out"),
        (
            data.documents != "file" and data.task != "text",
            f"data.documents = {data.documents} is for the text of a language model (--text): leave it out",
        ),
    ]


def _speed_refusals(data: DataConfig) -> list[Refusal]:
    given = f"data.speeds = {','.join(data.speeds)}"
    try:
        wrong = [text for text in data.speeds if not 0.5 <= float(text) <= 2]
    except ValueError:
        return [(True, f"{given}: must be numbers")]
    return [(bool(wrong), f"{given}: '{''.join(wrong[:1])}' is not between 0.5 and 2")]


def _contradictions(config: Config) -> list[Refusal]:
    model, data, train = config.model, config.data, config.train
    return [
        *model.contradictions(data),
        *_text_refusals(model, data),
        (
            data.task == "speech" and model.family != "speech",
            f"models of the family {model.family} cannot read recordings: use model.family=speech",
        ),
        (
            data.task in ("translation", "symbols") and model.family == "speech",
            "model.family = speech: the training data has no column `audio`: give a manifest, or choose another family",
        ),
        (
            data.task in ("translation", "symbols")
            and bool(data.speeds or data.frequency_masks or data.time_masks or data.trim_quiet),
            "data.speeds, data.frequency_masks, data.time_masks and data.trim_quiet are for speech: leave them out",
        ),
        (
            data.task in ("translation", "symbols") and data.piece_seconds != DataConfig.piece_seconds,
            "data.piece_seconds is for speech: leave it out",
        ),
        (
            data.task == "speech" and (not data.joint or data.subword_sampling > 0),
            "speech needs data.joint=true, since recordings have no vocabulary, and data.subword_sampling=0",
        ),
        (
            data.task == "speech" and data.concatenate > 0,
            f"data.concatenate = {data.concatenate} is for pairs of text: recordings are varied by data.speeds and the masks of SpecAugment",
        ),
        (
            bool(data.vocabulary_from and train.start_from),
            "--vocabulary has no effect with --from, which takes the vocabulary with the weights: leave out --vocabulary",
        ),
        (
            bool(data.valid) and data.hold_out > 0,
            f"data.hold_out = {data.hold_out} with validation data: give one of the two",
        ),
        (
            bool(data.hold_out and data.hold_out_speakers),
            f"data.hold_out = {data.hold_out} with data.hold_out_speakers: give one of the two",
        ),
        (
            bool(data.valid and data.hold_out_speakers),
            f"data.hold_out_speakers = {','.join(data.hold_out_speakers)} with validation data: give one of the two",
        ),
        (
            data.joint and data.source_units != data.target_units,
            f"data.joint = true needs equal units, not {data.source_units} and {data.target_units}: "
            "set data.joint=false",
        ),
        (
            data.subword_sampling > 0 and not {data.source_units, data.target_units} & {"bpe", "unigram", "auto"},
            f"data.subword_sampling = {data.subword_sampling} needs data.source_units or data.target_units of bpe or unigram",
        ),
        (
            not (train.steps or train.epochs or train.minutes),
            "train.steps, train.epochs and train.minutes are all 0: set one, or the run never ends",
        ),
        (
            train.epsilon == 0,
            "train.epsilon = 0: Adam divides by it where a gradient is 0, as for tokens that a batch lacks: set 1e-9",
        ),
        (
            train.schedule == "inverse_sqrt" and train.warmup_steps == 0,
            "train.warmup_steps = 0: the inverse_sqrt schedule needs at least 1",
        ),
        (
            train.r_drop > 0 and not model.has_dropout,
            f"train.r_drop = {train.r_drop} without dropout, where two passes are the same: set model.dropout",
        ),
        (
            train.schedule in ("constant", "linear", "cosine") and train.learning_rate == 0 and not train.warmup_steps,
            f'train.learning_rate = 0 with train.schedule = "{train.schedule}" and no warm-up: set a learning rate',
        ),
    ]
