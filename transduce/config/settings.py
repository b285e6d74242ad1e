"""Every setting, its type and its default, on one page.

The defaults are the paper's base model and recipe. Importable without torch; knows no files and no data.
A count of 0 means "not limited" or "derived", as the comment beside it says.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from transduce.config.columns import Columns
from transduce.errors import SettingError

Task = Literal["auto", "translation", "symbols"]
Units = Literal["auto", "bpe", "unigram", "char", "word"]
Normalization = Literal["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of the Transformer."""

    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    d_k: int = 0  # width of a head's queries and keys; 0: d_model / num_heads
    d_v: int = 0  # width of a head's values; 0: d_model / num_heads
    dropout: float = 0.1  # sub-layer outputs and embedding sums, as the paper
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    norm: Literal["post", "pre"] = "post"
    norm_kind: Literal["layer", "rms"] = "layer"
    # marian: sinusoids at the frequencies of Marian, for models that learned there
    positions: Literal["sinusoidal", "marian", "learned", "rotary", "none"] = "sinusoidal"
    max_positions: int = 1024  # learned positions only
    activation: Literal["relu", "gelu", "swish", "swiglu"] = "relu"
    output_bias: bool = False
    tie: Literal["all", "target", "none"] = "all"  # which of the three embedding matrices are one

    @property
    def key_width(self) -> int:
        return self.d_k or self.d_model // self.num_heads

    @property
    def value_width(self) -> int:
        return self.d_v or self.d_model // self.num_heads


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What is learned from, and how text becomes ids."""

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    # How often an epoch shows each pair of the first, second, ... `--train`: 2 is twice, 0.5 another half each time; one
    # number a corpus, and none at all is once each. What is fitted, held out and learned as vocabulary is not weighed.
    weights: tuple[str, ...] = ()
    hold_out: int = 0  # without validation data: about one source in this many is kept from training for it
    languages: tuple[str, ...] = ()  # source and target, e.g. en de
    task: Task = "auto"  # decides the metrics: BLEU and chrF, or error rates and exact match
    # How equal sources on several lines of validation and test data are scored: line by line, as sacreBLEU does, or as
    # one source with several references; auto: merged for dictionaries, where a symbols task has single words as sources
    references: Literal["auto", "separate", "merged"] = "auto"
    source_units: Units = "auto"
    target_units: Units = "auto"
    joint: bool = True  # one vocabulary for both sides
    vocabulary_size: int = 37_000  # bpe and unigram; char and word take every symbol of the sample up to this
    vocabulary_sample: int = 1_000_000  # pairs the vocabulary is trained on, at most
    unknown: Literal["bytes", "unk"] = "bytes"  # what becomes of a character outside the vocabulary
    normalization: Normalization = "nmt_nfkc"
    symbols: tuple[str, ...] = ()  # atomic pieces never split, e.g. ">>de<<"
    # TSV and JSONL: which column or key is what, e.g. source=1,features=2,target=3, or names of the header line or keys;
    # features, `A;B;C`, are appended to the source as symbols ;A;B;C. None: recognised from the first lines.
    columns: tuple[str, ...] = ()
    features_column: int = 0  # the same for features only, as the first versions had it
    skip_blank_lines: bool = False  # of TSV and JSONL; else such a line is refused
    sampling: float = 0.0  # BPE-dropout rate, or unigram sampling when above 0
    max_length: int = 256  # tokens; training pairs with a longer side are left out
    identical: Literal["keep", "drop"] = "keep"  # training pairs whose source is their target
    cache: str = ""  # where prepared data lies; "": the user's cache folder

    @property
    def layout(self) -> Columns | None:
        """The columns of tables, where any were given."""
        if self.columns:
            return Columns.of(self.columns)
        return Columns.with_features_in(self.features_column) if self.features_column else None


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How long, how fast and with what."""

    steps: int = 100_000  # steps, epochs, minutes: whichever ends first; 0: not limited by it
    epochs: float = 0.0
    minutes: float = 0.0  # of the whole command, reading the data and the last validation included
    tokens_per_batch: int = 25_000  # real target tokens per optimizer step
    tokens_per_microbatch: int = 0  # places of a batch on the device at once; 0: chosen for the device
    layout: Literal["auto", "padded", "pages"] = "auto"  # a pair a row, or several; auto: pages on a GPU
    optimizer: Literal["adam", "adamw", "muon"] = "adam"  # muon: for matrices, adamw for the rest
    learning_rate: float = 0.0  # peak; 0: the paper's (d_model * warmup_steps)^-0.5
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant"] = "inverse_sqrt"
    warmup_steps: int = 4_000
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    weight_decay: float = 0.0
    label_smoothing: float = 0.1
    r_drop: float = 0.0  # weight of the divergence between two passes, each with its own dropout; 0: none, typically 5
    clip_norm: float = 0.0  # 0: no clipping
    validate_every: int = 1_000  # steps; 0: planned with a budget in minutes, else 20 times in all
    validate_lines: int = 1_000  # translated for the metric at a validation (greedily); the loss takes all
    checkpoint_every: int = 1_000  # steps; 0: likewise
    log_every: int = 50
    average: int = 5  # the last checkpoints to average; 0: none
    ema: float = 0.0  # decay of an exponential moving average of the weights; 0: none
    patience: int = 0  # validations without a better score before stopping; 0: never stop early
    seed: int = 1
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int = 0  # CPU threads; 0: one per core
    start_from: str = ""  # another run whose weights and vocabulary this one started from


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How translations are looked for."""

    beam: int = 4
    alpha: float = 0.6
    length_penalty: Literal["paper", "power"] = "paper"  # ((5 + n) / 6)^alpha, or n^alpha
    max_extra: int = 50  # output limit: input length + this
    allow_unknown: bool = True  # whether an output may hold `<unk>`


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run; `config.toml` is exactly this."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    search: SearchConfig = field(default_factory=SearchConfig)


def check(config: Config) -> None:
    """Refuse what cannot work, by name, before anything is computed."""
    for refusals in (_out_of_range, _contradictions):  # the second rests on the first
        for refused, message in refusals(config):
            if refused:
                raise SettingError(message)


Refusal = tuple[bool, str]  # whether it applies, and what to say


def _out_of_range(config: Config) -> list[Refusal]:
    model, data, train, search = config.model, config.data, config.train, config.search
    rates = {
        "model.dropout": model.dropout,
        "model.attention_dropout": model.attention_dropout,
        "model.activation_dropout": model.activation_dropout,
        "train.label_smoothing": train.label_smoothing,
        "train.ema": train.ema,
        "train.beta1": train.beta1,
        "train.beta2": train.beta2,
        "data.sampling": data.sampling,
    }
    at_least_one = {
        "model.d_model": model.d_model,
        "model.d_ff": model.d_ff,
        "model.num_heads": model.num_heads,
        "model.num_encoder_layers": model.num_encoder_layers,
        "model.num_decoder_layers": model.num_decoder_layers,
        "model.max_positions": model.max_positions,
        "data.vocabulary_sample": data.vocabulary_sample,
        "data.max_length": data.max_length,
        "train.tokens_per_batch": train.tokens_per_batch,
        "train.validate_lines": train.validate_lines,
        "train.log_every": train.log_every,
        "search.beam": search.beam,
    }
    not_negative = {
        "model.d_k": model.d_k,
        "model.d_v": model.d_v,
        "train.steps": train.steps,
        "train.epochs": train.epochs,
        "train.minutes": train.minutes,
        "train.tokens_per_microbatch": train.tokens_per_microbatch,
        "train.learning_rate": train.learning_rate,
        "train.warmup_steps": train.warmup_steps,
        "train.validate_every": train.validate_every,
        "train.checkpoint_every": train.checkpoint_every,
        "train.weight_decay": train.weight_decay,
        "train.clip_norm": train.clip_norm,
        "train.r_drop": train.r_drop,
        "train.average": train.average,
        "train.patience": train.patience,
        "train.threads": train.threads,
        "train.seed": train.seed,
        "train.epsilon": train.epsilon,
        "search.alpha": search.alpha,  # below 0 the shortest output wins, and that is the empty one
        "search.max_extra": search.max_extra,
        "data.features_column": data.features_column,
        "data.hold_out": data.hold_out,
    }
    bounded: list[tuple[str, float, int]] = [
        *((f"model.{name}", getattr(model, name), 100_000) for name in ("d_model", "d_ff", "num_heads", "d_k", "d_v")),
        *((f"model.num_{side}_layers", getattr(model, f"num_{side}_layers"), 1_000) for side in ("encoder", "decoder")),
        ("model.max_positions", model.max_positions, 10_000_000),
        ("data.vocabulary_size", data.vocabulary_size, 10_000_000),
        ("data.vocabulary_sample", data.vocabulary_sample, 1_000_000_000),
        ("data.max_length", data.max_length, 1_000_000),
        ("data.hold_out", data.hold_out, 1_000_000_000),
        ("data.features_column", data.features_column, 10_000),
        ("train.steps", train.steps, 1_000_000_000),
        ("train.epochs", train.epochs, 1_000_000),
        ("train.minutes", train.minutes, 1_000_000),
        ("train.tokens_per_batch", train.tokens_per_batch, 100_000_000),
        ("train.tokens_per_microbatch", train.tokens_per_microbatch, 100_000_000),
        ("train.warmup_steps", train.warmup_steps, 1_000_000_000),
        *(
            (f"train.{name}_every", getattr(train, f"{name}_every"), 10**9)
            for name in ("validate", "checkpoint", "log")
        ),
        ("train.validate_lines", train.validate_lines, 100_000_000),
        ("train.average", train.average, 1_000),
        ("train.patience", train.patience, 1_000_000_000),
        ("train.threads", train.threads, 1_024),
        ("train.seed", train.seed, 2**32 - 1),
        ("search.beam", search.beam, 1_000),
        ("search.max_extra", search.max_extra, 100_000),
        ("search.alpha", search.alpha, 10),
    ]
    return [
        *((not math.isfinite(v), f"{name} = {v}: must be finite") for name, v in not_negative.items()),
        *((v < 0, f"{name} = {v}: must not be negative") for name, v in not_negative.items()),
        *((v > most, f"{name} = {v}: must be at most {most:,}") for name, v, most in bounded),
        *((v < 1, f"{name} = {v}: must be at least 1") for name, v in at_least_one.items()),
        *((not 0 <= v < 1, f"{name} = {v}: must be at least 0 and below 1") for name, v in rates.items()),
        (data.vocabulary_size < 8, f"data.vocabulary_size = {data.vocabulary_size}: must be at least 8"),
        (
            len(data.languages) not in (0, 2),
            f"data.languages = {list(data.languages)}: give two, source and target, or none",
        ),
        *_weight_refusals(data),
        *_column_refusals(data),
    ]


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


def _column_refusals(data: DataConfig) -> list[Refusal]:
    try:
        Columns.of(data.columns) if data.columns else None
    except SettingError as error:
        return [(True, str(error))]
    return [
        (
            bool(data.columns) and data.features_column > 0,
            f"data.features_column = {data.features_column} with data.columns: give the features as one of the columns",
        )
    ]


def check_ranges(config: Config) -> None:
    """What is wrong whatever the data will say; the rest of `check` needs settings that are fitted to it."""
    for refused, message in _out_of_range(config):
        if refused:
            raise SettingError(message)


def _contradictions(config: Config) -> list[Refusal]:
    model, data, train = config.model, config.data, config.train
    split_evenly = model.d_model % model.num_heads == 0
    return [
        (
            bool(data.valid) and data.hold_out > 0,
            f"data.hold_out = {data.hold_out} with validation data: give one of the two",
        ),
        (
            model.positions == "learned" and data.max_length > model.max_positions,
            f"data.max_length = {data.max_length} is over model.max_positions = {model.max_positions}: raise the latter",
        ),
        (
            not split_evenly and not (model.d_k and model.d_v),
            f"model.d_model = {model.d_model} does not divide by model.num_heads = {model.num_heads}: "
            "change one, or set model.d_k and model.d_v",
        ),
        (
            model.positions in ("sinusoidal", "marian") and model.d_model % 2 == 1,
            f"model.d_model = {model.d_model}: sinusoids come in pairs, so it must be even",
        ),
        (
            model.positions == "marian" and model.d_model < 4,
            f"model.d_model = {model.d_model}: Marian's sinusoids need at least two pairs, so at least 4",
        ),
        (
            model.positions == "rotary" and model.key_width % 2 == 1,
            f"model.d_k = {model.key_width}: rotary positions turn pairs, so it must be even",
        ),
        (
            model.tie == "all" and not data.joint,
            'model.tie = "all" needs one vocabulary for both sides: set data.joint=true or model.tie="target"',
        ),
        (
            data.joint and data.source_units != data.target_units,
            f"data.joint = true needs equal units, not {data.source_units} and {data.target_units}: "
            "set data.joint=false",
        ),
        (
            data.sampling > 0 and not {data.source_units, data.target_units} & {"bpe", "unigram", "auto"},
            f"data.sampling = {data.sampling} needs data.source_units or data.target_units of bpe or unigram",
        ),
        (
            not (train.steps or train.epochs or train.minutes),
            "train.steps, train.epochs and train.minutes are all 0: set one, or the run never ends",
        ),
        (
            train.schedule == "inverse_sqrt" and train.warmup_steps == 0,
            "train.warmup_steps = 0: the inverse_sqrt schedule needs at least 1",
        ),
        (
            train.r_drop > 0 and not (model.dropout or model.attention_dropout or model.activation_dropout),
            f"train.r_drop = {train.r_drop} without dropout, where two passes are the same: set model.dropout",
        ),
        (
            train.schedule in ("constant", "linear", "cosine") and train.learning_rate == 0 and not train.warmup_steps,
            f'train.learning_rate = 0 with train.schedule = "{train.schedule}" and no warm-up: set a learning rate',
        ),
    ]
