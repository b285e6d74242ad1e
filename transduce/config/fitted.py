"""Settings chosen for the data, the machine and the time budget, with the reasons.

A small table maps the number of pairs to a complete recipe; for a budget in minutes or a slow machine, the model and its
batches become smaller (`transduce/config/budget.py`). Presets, files and `--set` override these settings. Each row is
based on runs in docs/log.md. Hugging Face transformers and CTranslate2 support every model chosen here. Sees only counts,
never the data.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from transduce.config.budget import (
    ENOUGH_STEPS,
    FEW_EPOCHS,
    MUON_EPOCHS,
    SMALLEST_BATCH,
    Batches,
    Choice,
    Machine,
    Size,
    Work,
    choose,
    cpu,
    dropout,
    for_size,
    learning_rate,
    muon_rate,
    with_muon,
)
from transduce.config.models import FAMILIES
from transduce.config.models.speech import SHORTER
from transduce.config.old_names import Layers
from transduce.config.rounding import rounded
from transduce.config.settings import Config, TrainConfig
from transduce.config.task import Counts, infer_task, infer_units, text_reasons, text_settings

LARGEST_STEP = 402_000  # tokens: the largest steps of Ott et al. 2018
SENSIBLE_MINUTES = 60.0  # without a budget: a recipe that takes longer on this machine is made smaller
SLOW_CPU = cpu(2_000.0)
FAR_BELOW = 0.25  # of the recommended epochs: with fewer, the user is warned
MOST_SAMPLED = 1_000_000_000  # pairs; the upper bound of data.vocabulary_sample
SAMPLE_PER_MINUTE = 25_000  # pairs to learn the vocabulary from, per minute of the budget


@dataclass(frozen=True)
class Fitted:
    """A layer of settings, with the reasons for them and warnings to print before training.

    `summary` describes the final settings of a run in one line: requested settings may have replaced some of these.
    """

    layer: Layers
    reasons: list[str]
    warnings: list[str]
    summary: Callable[[Config], str]


@dataclass(frozen=True)
class Row:
    """The recipe for corpora of at most this many pairs."""

    pairs: float
    d_model: int
    heads: int
    layers: int
    dropout: float
    vocabulary: int
    tokens_per_batch: int
    epochs: float
    learning_rate: float
    optimizer: str = "adam"

    @property
    def size(self) -> Size:
        return Size(self.d_model, self.heads, self.layers)


AnyRow = TypeVar("AnyRow", bound=Row)

# fmt: off
TRANSLATION = [  # pairs, d_model, heads, layers, dropout, vocabulary, tokens a batch, epochs, learning rate
    Row(      8_000, 256, 4, 3, 0.3,  4_000,  2_048,  60, 2e-3),
    Row(     60_000, 256, 4, 3, 0.3, 10_000,  4_096,  30, 2e-3),
    Row(    250_000, 384, 6, 4, 0.1,  8_000,  8_192,  15, 1.5e-3),
    Row(  1_000_000, 512, 8, 6, 0.1, 16_000, 16_384,  12, 1e-3),  # from here on: the paper's shape, unmeasured
    Row(float("inf"), 512, 8, 6, 0.1, 32_000, 25_000,  8, 1e-3),
]
SYMBOLS = [  # spellings, sounds, word forms
    Row(      3_000, 128, 4, 3, 0.3,  1_000,    512, 300, 1e-3),
    Row(     30_000, 128, 4, 3, 0.2,  1_000,  1_024,  80, 2e-3),
    Row(float("inf"), 256, 4, 3, 0.1, 1_000,  4_096,  15, 2e-3),
]
SPEECH = [  # by hours instead of pairs; twice as many layers in the encoder
    Row(         10, 144, 4, 3, 0.1,    150,  2_048, 100, 1e-3),
    Row(        100, 256, 4, 4, 0.1,    500,  4_096,  60, 1e-3),
    Row(float("inf"), 256, 4, 6, 0.1, 1_000,  8_192,  30, 1e-3),
]
# fmt: on
SMALL_DICTIONARY, CONCATENATED = 3_000, 0.8  # words, and the share of them that another word follows (docs/log.md)
CHARACTERS_PER_SECOND = 14.0  # of text that is read aloud: 14.5 in Iban news; only the order of magnitude matters
SHORT_SECONDS = 2.0  # of the mean utterance, by the length of its text
QUIET_DECIBELS = 35.0  # below the loud parts; chosen on spoken digits (docs/log.md)
TASK_TITLES = {"translation": "translation", "symbols": "symbol sequences", "speech": "speech recognition"}
UNIT_TITLES = {
    "bpe": "BPE subwords",
    "unigram": "unigram subwords",
    "char": "characters",
    "word": "symbols separated by spaces",
}
EDGE_SECONDS = 0.1  # of a recording, beside the time that its text takes: 0.11 in spoken digits, 0.2 in Iban news
FRAMES_PER_SECOND = 100
SPECAUGMENT = {"speeds": ("0.9", "1", "1.1"), "frequency_masks": 2, "time_masks": 5, "max_length": 1_000}
FEW_MASKS = {"frequency_masks": 1, "time_masks": 1}  # where time allows few epochs: too little is learned behind many
MEASURED_MUON = ("transformer", "decoder")  # families


@dataclass(frozen=True)
class FitRequest:
    """The requested settings on which the chosen settings depend."""

    task: str = "auto"
    source_units: str = ""
    target_units: str = ""
    joint: bool | None = None
    steps: int = 0
    epochs: float = 0.0
    minutes: float = 0.0
    size: Size | None = None
    tokens_per_batch: int = 0
    vocabulary_size: int = 0
    gpus: int = 1  # that train together
    family: str = "transformer"
    optimizer: str = ""  # empty: chosen here
    fine_tunes: bool = False  # the shape is that of another model, and the epochs that data need are not known

    @property
    def budget(self) -> bool:
        return bool(self.steps or self.epochs or self.minutes)

    @staticmethod
    def of(layers: Layers) -> "FitRequest":
        data, train = layers.get("data", {}), layers.get("train", {})
        budget = {name: train.get(name, 0) for name in ("steps", "epochs", "minutes", "tokens_per_batch")}
        units = {name: data.get(name, "") for name in ("source_units", "target_units")}
        return FitRequest(
            task=data.get("task", "auto"),
            joint=data.get("joint"),
            size=_requested_size(layers.get("model", {})),
            vocabulary_size=data.get("vocabulary_size", 0),
            family=layers.get("model", {}).get("family", "transformer"),
            # A learning rate without an optimizer is one for Adam, the default.
            optimizer=train.get("optimizer", "adam" if train.get("learning_rate") else ""),
            **units,
            **budget,
        )


def _requested_size(model: dict[str, Any]) -> Size | None:
    """The requested shape, even if only partly given; omitted values are typical of chosen models."""
    encoder = 2 if model.get("family") == "speech" else 1  # layers of the encoder for each of the decoder
    names = {"num_encoder_layers": encoder, "num_decoder_layers": 1}
    if not any(name in model for name in ("d_model", *names)):
        return None
    layers = [model[name] / times for name, times in names.items() if name in model] or [3]
    return Size(model.get("d_model", 256), model.get("num_heads", 4), max(1, round(sum(layers) / len(layers))))


@dataclass(frozen=True)
class Time:
    """The speed of the machine and the seconds available for training; 0: no limit was requested."""

    machine: Machine
    seconds: float = 0.0


def fit(counts: Counts, asked: FitRequest | None = None, time: Time | None = None) -> Fitted:
    """The recipe for a corpus, consistent with the requested settings; a requested budget replaces the chosen one.

    Differs from the paper: pre-norm, a learning rate that falls linearly to zero over the budget, clipping, and dropout and
    vocabulary size chosen by the size of the data. The presets `base` and `big` follow the paper.
    """
    asked = asked or FitRequest()
    task, why = infer_task(counts) if asked.task == "auto" else (asked.task, "as requested (data.task)")
    row = row_for(task, counts, asked)
    source, target = infer_units(counts, task)
    units = asked.source_units or source, asked.target_units or target
    one = units[0] == units[1] if asked.joint is None else asked.joint
    work = _work(row, task, units, counts, asked)
    for_one, warnings = fit_to_time(row, work, asked, time)
    fitted = larger_steps(for_one, work, asked)
    larger = fitted.tokens_per_batch // for_one.tokens_per_batch
    layer = _layer(fitted, task, units, one, counts, concatenated(task, counts, asked)) | {
        "train": _training(fitted, work, asked, larger)
    }
    layer = _of_family(layer, asked.family)
    layer["data"] |= vocabulary_sample(asked)
    reasons = [*_reasons(layer["data"], why, counts), *_gpu_reasons(for_one, fitted, work, asked)]
    return Fitted(layer, reasons, warnings, lambda config: _summary(config, fitted.epochs, counts))


def vocabulary_sample(asked: FitRequest) -> dict[str, int]:
    """The setting that limits how long the vocabulary is learned, for a budget in minutes."""
    if not asked.minutes:
        return {}
    return {"vocabulary_sample": min(MOST_SAMPLED, max(SAMPLE_PER_MINUTE, int(asked.minutes * SAMPLE_PER_MINUTE)))}


def may_take_long(counts: Counts, asked: FitRequest) -> bool:
    """Whether the recipe could take too long on a slow CPU; if not, the speed need not be measured."""
    task = infer_task(counts)[0] if asked.task == "auto" else asked.task
    if task in ("speech", "text"):
        return False
    row = row_for(task, counts, asked)
    work = _work(row, task, infer_units(counts, task), counts, asked)
    speed = work.tokens_per_second(SLOW_CPU, row.size)
    return row.epochs * work.tokens_per_epoch / speed > 60 * SENSIBLE_MINUTES


def row_for(task: str, counts: Counts, asked: FitRequest) -> Row:
    """The recommended recipe for this many pairs, or hours of speech, regardless of time."""
    tables = {"symbols": SYMBOLS, "speech": SPEECH}
    amount = spoken_hours(counts) if task == "speech" else counts.pairs
    row = next(row for row in tables.get(task, TRANSLATION) if amount <= row.pairs)
    # An epoch of concatenated pairs is longer, so there are fewer of them.
    share = concatenated(task, counts, asked)
    return replace(row, epochs=float(f"{row.epochs / (1 + share):.2g}")) if share else row


def concatenated(task: str, counts: Counts, asked: FitRequest) -> float:
    """The share of pairs that are followed by another one: otherwise, a model memorises a small dictionary.

    Not with features, with which it was not measured, nor with a budget in steps or epochs: these would take longer.
    """
    small = task == "symbols" and counts.pairs <= SMALL_DICTIONARY and not counts.features
    return CONCATENATED if small and not (asked.steps or asked.epochs) else 0.0


def spoken_hours(counts: Counts) -> float:
    """How long the recordings of a corpus probably are, by the length of their texts: nothing has been read of them yet."""
    return counts.pairs * counts.target.characters_per_line / CHARACTERS_PER_SECOND / 3600


def has_short_utterances(counts: Counts) -> bool:
    """Whether the recordings are words or commands: their accuracy then depends on the silence around them."""
    return counts.target.characters_per_line < SHORT_SECONDS * CHARACTERS_PER_SECOND


def _work(row: Row, task: str, units: tuple[str, str], counts: Counts, asked: FitRequest) -> Work:
    target = counts.target.tokens_in(units[1])
    source = _heard_positions(counts) if task == "speech" else counts.source.tokens_in(units[0])
    # A vocabulary of letters or symbols is far smaller than its limit.
    vocabulary = (asked.vocabulary_size or row.vocabulary) if units[1] in ("bpe", "unigram") else 100
    tokens = counts.pairs * target * (1 + concatenated(task, counts, asked))
    return Work(task, vocabulary, source / target, tokens, FAMILIES[asked.family].fewest_epochs)


def _heard_positions(counts: Counts) -> float:
    """The positions that the encoder has for a recording, by the length of its text."""
    seconds = counts.target.characters_per_line / CHARACTERS_PER_SECOND + EDGE_SECONDS
    return seconds * FRAMES_PER_SECOND / SHORTER


def fit_to_time(row: AnyRow, work: Work, asked: FitRequest, time: Time | None) -> tuple[AnyRow, list[str]]:
    """The recipe, made smaller if time is short, and warnings about that."""
    if time is None:
        return row, []
    wanted, size = row.epochs * work.tokens_per_epoch, asked.size or row.size
    minutes = wanted / work.tokens_per_second(time.machine, size) / 60
    if not asked.minutes and minutes <= SENSIBLE_MINUTES:
        return row, []
    seconds = time.seconds if asked.minutes else 60 * SENSIBLE_MINUTES
    given = asked.tokens_per_batch
    batches = Batches(given, given) if given else Batches(row.tokens_per_batch, SMALLEST_BATCH[work.task])
    if asked.size is None:
        choice = choose(time.machine, seconds, work, row.size, batches)
    else:
        choice = for_size(time.machine, seconds, work, asked.size, batches)
    muon = _suits_muon(time.machine, choice, work, asked)
    if muon:
        choice = with_muon(time.machine, seconds, work, choice, batches)
    shrunk = _shrunk(row, choice, work, muon)
    if not asked.minutes:  # the hour is an upper limit then, not a requested duration
        shrunk = replace(shrunk, epochs=min(row.epochs, shrunk.epochs))
    return shrunk, _time_warnings(row, choice, work, asked, minutes)


def _suits_muon(machine: Machine, choice: Choice, work: Work, asked: FitRequest) -> bool:
    """Whether time, not the data, is the limit: then Muon learns more in it than Adam does. Measured on CPUs, with Transformers.

    Differs from the paper, which uses Adam.
    """
    if asked.optimizer:
        return asked.optimizer == "muon"
    measured = machine.muon > 0 and asked.family in MEASURED_MUON
    return measured and choice.tokens <= MUON_EPOCHS[work.task] * work.tokens_per_epoch


def larger_steps(row: Row, work: Work, asked: FitRequest) -> Row:
    """The recipe with steps that keep several GPUs busy: as many times larger as there are GPUs, if enough steps are left.

    Differs from the paper: the learning rate grows with the fourth root of the size of a step. Ott et al. 2018 doubled it for
    steps 16 times as large (402,000 tokens), and this recipe stays below their largest steps.
    """
    if asked.tokens_per_batch or work.task == "speech":  # not measured with speech
        return row
    steps = asked.steps or (asked.epochs or row.epochs) * work.tokens_per_epoch / row.tokens_per_batch
    times = 1
    while 2 * times <= asked.gpus and 2 * times * row.tokens_per_batch <= LARGEST_STEP:
        if not asked.steps and steps / (2 * times) < ENOUGH_STEPS[work.task]:
            break
        times *= 2
    rate = float(f"{row.learning_rate * times**0.25:.2g}")
    return replace(row, tokens_per_batch=times * row.tokens_per_batch, learning_rate=rate)


def _gpu_reasons(for_one: Row, fitted: Row, work: Work, asked: FitRequest) -> list[str]:
    """Why the steps are as large as they are on several GPUs."""
    if asked.gpus == 1:
        return []
    if asked.tokens_per_batch:
        return [f"{asked.gpus} GPUs: each step is divided among them (train.tokens_per_batch was given)"]
    times = fitted.tokens_per_batch // for_one.tokens_per_batch
    if times == 1:
        why = "were not measured with speech" if work.task == "speech" else "would leave too few steps"
        return [f"{asked.gpus} GPUs: batches as large as on one GPU, because larger ones {why}"]
    return [
        f"{asked.gpus} GPUs: batches {times} times as large as on one GPU, with {times**0.25:.2g} times the learning rate and twice the "
        f"share of warm-up, as larger batches need (Ott et al. 2018)"
    ]


def _shrunk(row: AnyRow, choice: Choice, work: Work, muon: bool) -> AnyRow:
    epochs, size = choice.tokens / work.tokens_per_epoch, choice.size
    rate = learning_rate(work.task, size.d_model, choice.tokens_per_batch)
    return replace(
        row,
        d_model=size.d_model,
        heads=size.heads,
        layers=size.layers,
        tokens_per_batch=choice.tokens_per_batch,
        epochs=float(f"{epochs:.2g}"),
        dropout=dropout(work.task, row.dropout, epochs),
        learning_rate=muon_rate(work.task, rate) if muon else rate,
        optimizer="muon" if muon else row.optimizer,
    )


def _time_warnings(row: Row, choice: Choice, work: Work, asked: FitRequest, minutes: float) -> list[str]:
    """Warnings, printed before training, about what more time or a faster machine would allow."""
    best = f"{_recommended(row, work, asked)}, {row.epochs:g} epochs"
    if asked.fine_tunes:
        no_limit = "no budget was given, so the model is trained for at most about an hour; use --minutes to set another budget"
        return [] if asked.minutes else [no_limit]
    if not asked.minutes:
        return [
            f"the recommended recipe for this data ({best}) would take about {_hours(minutes)} on this machine. No "
            f"budget was given, so {'fewer epochs' if asked.size else 'a smaller model'} will be trained, in at most about an "
            "hour; use --minutes to set another budget. A GPU would take minutes"
        ]
    epochs = choice.tokens / work.tokens_per_epoch
    # Below the fewest epochs, `Clock.few_epochs` says how many minutes are needed, from the measured pace.
    if epochs >= FAR_BELOW * row.epochs or epochs < work.fewest_epochs:
        return []
    expected = "expect a weaker model" if epochs >= 1 else "less than one pass over the data, so expect poor output"
    return [
        f"this machine can train about {rounded(epochs)} epochs in {_minutes(asked.minutes)}; about {row.epochs:g} "
        f"would be best for this data: {expected}. The recommended recipe ({best}) would take about "
        f"{_hours(minutes)} on this machine"
    ]


def _recommended(row: Row, work: Work, asked: FitRequest) -> str:
    """The model that would be trained if there were enough time; a requested size stays as it is."""
    size = asked.size or row.size
    if work.task == "text":
        return f"d_model {size.d_model}, {size.layers} layers"
    full = replace(row, d_model=size.d_model, heads=size.heads, layers=size.layers)
    layer: Layers = {"model": _model(full, joint=False), "train": _training(full, work, asked, larger=1)}
    return FAMILIES[asked.family](**_of_family(layer, asked.family)["model"]).description


def in_minutes(minutes: float) -> str:
    """The budget in minutes as a part of a summary; empty without one."""
    return f" in {_minutes(minutes)}" if minutes else ""


def _minutes(minutes: float) -> str:
    return f"{minutes:g} minute{'s' * (minutes != 1)}"


def _hours(minutes: float) -> str:
    return f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"


def _model(row: Row, joint: bool) -> dict[str, Any]:
    """The settings of a Transformer."""
    return {
        "d_model": row.d_model,
        "d_ff": 4 * row.d_model,
        "num_heads": row.heads,
        "num_encoder_layers": row.layers,
        "num_decoder_layers": row.layers,
        "dropout": row.dropout,
        "norm": "pre",
        "tie": "all" if joint else "target",
    }


def _layer(row: Row, task: str, units: tuple[str, str], joint: bool, counts: Counts, share: float) -> Layers:
    data: dict[str, Any] = {
        "task": task,
        "source_units": units[0],
        "target_units": units[1],
        "joint": joint,
        **text_settings(counts, task, row.vocabulary),
        **(_augmentation(row.epochs) if task == "speech" else {}),
        **({"concatenate": share} if share else {}),
        **({"trim_quiet": QUIET_DECIBELS} if task == "speech" and has_short_utterances(counts) else {}),
    }
    search: dict[str, Any] = {"beam": 4, "alpha": 1.0, "length_penalty": "power"}
    return {"model": _model(row, joint), "data": data, "search": search}


def _augmentation(epochs: float) -> dict[str, Any]:
    """What each epoch of speech changes: less where there are few epochs."""
    return SPECAUGMENT | (FEW_MASKS if epochs <= FEW_EPOCHS["speech"] else {})


def _of_family(layer: Layers, family: str) -> Layers:
    """The settings for a family of models: the recipe is written for the Transformer."""
    if family == "transformer":
        return layer
    of_family = FAMILIES[family].fitted(layer)
    return {**of_family, "model": {**of_family["model"], "family": family}}


def _training(row: Row, work: Work, asked: FitRequest, larger: int) -> dict[str, Any]:
    """Training settings, with warm-up, validations and checkpoints as shares of the expected steps.

    With a budget in minutes, `training/plan.py` decides when to validate and to save instead.
    """
    steps_per_epoch = work.tokens_per_epoch / row.tokens_per_batch
    steps = max(1, asked.steps or round((asked.epochs or row.epochs) * steps_per_epoch))
    part = max(20, steps // 20)
    warm_up = (max(1, steps // 20) if asked.minutes else part) * (2 if larger > 1 else 1)
    return {
        "steps": 0,
        "epochs": 0.0 if asked.budget else float(row.epochs),
        "tokens_per_batch": row.tokens_per_batch,
        "optimizer": row.optimizer,
        "learning_rate": row.learning_rate,
        "schedule": "linear",
        "warmup_steps": min(4_000, warm_up),
        "clip_norm": 1.0,
        "validate_every": 0 if asked.minutes else part,
        "checkpoint_every": 0 if asked.minutes else part,
        "average": 5,
    }


def _amount(counts: Counts, task: str) -> str:
    if task != "speech":
        return f"{counts.pairs:,} pairs"
    return f"{counts.pairs:,} utterances, about {spoken_hours(counts):.1f} hours by the length of their texts"


def _reasons(data: dict[str, Any], why: str, counts: Counts) -> list[str]:
    return [
        f"task: {TASK_TITLES[data['task']]}, {why}",
        f"{_tokens(data['source_units'], data['target_units'])}; {'joint vocabulary' if data['joint'] else 'separate vocabularies'}",
        *text_reasons(counts, data["task"]),
        *(
            ["a small dictionary: another word is appended to most words in training (data.concatenate)"]
            if "concatenate" in data
            else []
        ),
        *(
            ["short utterances: silence at both ends of recordings is trimmed (data.trim_quiet)"]
            if "trim_quiet" in data
            else []
        ),
    ]


def _tokens(source: str, target: str) -> str:
    """What the tokens of both sides are, in words."""
    if source == target:
        return f"tokens are {UNIT_TITLES[source]}"
    return f"source tokens are {UNIT_TITLES[source]}, target tokens are {UNIT_TITLES[target]}"


def _summary(config: Config, epochs: float, counts: Counts) -> str:
    """The amount of data and the main settings of a run."""
    time = in_minutes(config.train.minutes)
    return f"{_amount(counts, config.data.task)}{time}: {config.model.description}, {training_in_words(config, epochs)}"


def training_in_words(config: Config, epochs: float) -> str:
    """The main settings of training; `epochs` are expected in a run that only time limits."""
    train = config.train
    return (
        f"dropout {config.model.dropout}, {train.tokens_per_batch:,} tokens a batch, {_limits(train, epochs)}, "
        f"learning rate {_rate(train)}{' with Muon' * (train.optimizer == 'muon')}"
    )


def _rate(train: TrainConfig) -> str:
    """The learning rate in words: 0 stands for the peak that equation (3) of the paper gives."""
    return f"{train.learning_rate:g}" if train.learning_rate else "by the paper's formula"


def _limits(train: TrainConfig, epochs: float) -> str:
    """How long a run trains, by what it counts."""
    limits = [f"{train.steps:,} steps"] * bool(train.steps) + [f"{train.epochs:g} epochs"] * bool(train.epochs)
    at_most = "at most " * (bool(train.minutes) or len(limits) > 1)
    return at_most + " and ".join(limits) if limits else f"about {epochs:g} epochs"
