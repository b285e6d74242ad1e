"""Every setting of data, training and search, with its type, default and description; models have files of their own.

The defaults are the paper's base model and recipe. Importable without torch; knows no files and no data.
`transduce/config/setting.py` explains what a field declares.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from transduce.config.columns import Columns
from transduce.config.models import FAMILIES, ModelConfig, TransformerConfig
from transduce.config.setting import Setting, rate, setting, settings_of
from transduce.errors import SettingError
from transduce.placeholders import SYMBOLS

Task = Literal["auto", "translation", "symbols", "text", "speech"]
Units = Literal["auto", "bpe", "unigram", "char", "word"]
Normalization = Literal["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"]

UNITS = {
    "auto": "inferred from the data",
    "bpe": "subwords by byte-pair encoding",
    "unigram": "subwords by a unigram language model",
    "char": "characters",
    "word": "sequences of characters between spaces",
}


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The data to learn from, and how text becomes ids."""

    train: tuple[str, ...] = setting(
        (), "Training files; set by --train. On resume their paths may change, but not their content.", resumable=True
    )
    valid: tuple[str, ...] = setting(
        (), "Validation files; set by --valid. On resume their paths may change, but not their content.", resumable=True
    )
    weights: tuple[str, ...] = setting(
        (),
        "How often an epoch shows each pair of the first, second, ... --train: 2 shows each pair twice, 0.5 shows half of "
        "the pairs in each epoch. Give one number for each --train, or none for once each. "
        "The vocabulary and the settings chosen for the data ignore the weights.",
    )
    hold_out: int = setting(
        0,
        "Without validation data, N holds out about 1/N of the sources for validation.",
        zero="chosen by the number of pairs", least=0, most=1_000_000_000,
    )  # fmt: skip
    hold_out_speakers: tuple[str, ...] = setting(
        (),
        "Speech: without validation data, the speakers whose recordings are held out for validation; without any, chosen from the "
        "speakers that the manifest names.",
    )
    languages: tuple[str, ...] = setting(
        (), "Codes of the source and target language, such as en,de; set by --languages.", inherited="default"
    )
    task: Task = setting(
        "auto",
        "The kind of task, which decides the metrics and, without a preset, the recipe.",
        choices={
            "auto": "inferred from the data",
            "translation": "text to text: BLEU, chrF and TER",
            "symbols": "outputs are symbol sequences (sounds, letters of word forms) rather than running text: error rates "
            "and exact match",
            "text": "running text for a language model, set by --text: bits per byte",
            "speech": "sources are recordings: word and character error rate; needs model.family=speech",
        },
        inherited="always",
    )
    documents: Literal["file", "blank-line", "line"] = setting(
        "file",
        "What a document is in the text of a language model. The model never looks from one document into another.",
        choices={
            "file": "a file",
            "blank-line": "the lines up to and including a blank line",
            "line": "a line",
        },
        inherited="default",
    )
    references: Literal["auto", "separate", "merged"] = setting(
        "auto",
        "How equal sources on several lines of validation and test data are scored.",
        choices={
            "auto": "merged for dictionaries (a symbols task whose sources are single words), else separate",
            "separate": "each line by itself, as sacreBLEU does",
            "merged": "as one source with several references",
        },
    )
    source_units: Units = setting("auto", "What a source token is.", choices=UNITS, inherited="always")
    target_units: Units = setting("auto", "What a target token is.", choices=UNITS, inherited="always")
    joint: bool = setting(True, "Whether source and target share one vocabulary.", inherited="always")
    vocabulary_size: int = setting(
        37_000,
        "Size of a vocabulary of subwords; characters and words are taken up to this number.",
        unit="pieces", least=8, most=10_000_000, inherited="always",
    )  # fmt: skip
    vocabulary_sample: int = setting(
        1_000_000, "The vocabulary is learned from at most this many pairs.",
        unit="pairs", least=1, most=1_000_000_000,
    )  # fmt: skip
    vocabulary_from: str = setting(
        "", "The run whose vocabulary this one uses; a language model uses its target vocabulary. Set by --vocabulary."
    )
    unknown: Literal["bytes", "unk"] = setting(
        "bytes",
        "What becomes of a character outside the vocabulary.",
        choices={"bytes": "it is spelt in bytes (byte fallback)", "unk": "it becomes `<unk>`"},
        inherited="always",
    )
    normalization: Normalization = setting(
        "nmt_nfkc",
        "Unicode normalization of the text, by its name in sentencepiece.",
        choices={
            "nmt_nfkc": "NFKC with a few changes for translation",
            "nmt_nfkc_cf": "the same with case folding",
            "nfkc": "NFKC",
            "nfkc_cf": "NFKC with case folding",
            "identity": "the text stays as it is",
        },
        inherited="always",
    )
    symbols: tuple[str, ...] = setting(
        (), "Pieces that are never split (sentencepiece's user-defined symbols), such as `>>de<<`.", inherited="always"
    )
    tags: tuple[str, ...] = setting(
        (),
        "Target languages of the first, second, ... --train, such as de,fr, for one model that translates into several. The tag "
        "`>>de<<` is put before each source; `translate --to de` does the same. Give one language for each --train, or none.",
    )
    valid_tags: tuple[str, ...] = setting(
        (), "The same for each --valid. Without it, the languages of `tags`, if there are as many --valid as --train."
    )
    placeholders: tuple[str, ...] = setting(
        (),
        "Parts of a text that are copied to the output: any of tags, urls, emails, numbers. In training, parts that both sides of a pair "
        "contain become symbols. In translation, those of the source become symbols and are restored in the output.",
        inherited="always",
    )
    columns: tuple[str, ...] = setting(
        (),
        "Columns of TSV files, or keys of JSONL files, and their roles, such as source=1,features=2,target=3, by number or by "
        "name. Features, written A;B;C, are appended to the source as the symbols ;A;B;C. Without it, the columns are "
        "recognised from the first lines.",
    )
    skip_blank_lines: bool = setting(
        False, "Whether blank lines of TSV and JSONL files are left out; otherwise they are refused."
    )
    subword_sampling: float = rate(
        0.0,
        "Segments words differently in each epoch. bpe: the dropout rate of merges. unigram: any value above 0 turns "
        "sampling on, and smaller values vary the segmentation more (the alpha of Kudo 2018).",
    )
    concatenate: float = rate(
        0.0,
        "The share of training pairs to which another random pair is appended, a new one in each epoch: an augmentation for small data.",
    )
    max_length: int = setting(
        256, "Training pairs with a longer side are left out.", unit="tokens", least=1, most=1_000_000
    )
    max_seconds: float = setting(
        40.0,
        "Speech: longer training recordings are left out.",
        unit="seconds",
        zero="any length",
        least=0,
        most=100_000,
    )
    trim_quiet: float = setting(
        0.0,
        "Speech: both ends of a recording are trimmed where they are this much quieter than its loud parts, in training and in "
        "transcription; chosen for short utterances.",
        unit="decibels",
        zero="no trimming",
        least=0,
        most=100,
        inherited="default",
    )
    piece_seconds: float = setting(
        25.0,
        "Speech: longer recordings are transcribed in pieces of at most this length, cut where it is quietest; lowered if the "
        "training recordings are shorter.",
        unit="seconds",
        least=1,
        most=1_000,
        inherited="default",
    )
    speeds: tuple[str, ...] = setting(
        (),
        "Speech: in each epoch, a recording is played at one of these speeds, such as 0.9,1,1.1; without any, at its own speed.",
    )
    frequency_masks: int = setting(
        0, "Speech: bands of frequency that are masked in each training recording (SpecAugment).", least=0, most=100
    )
    frequency_mask_bins: int = setting(27, "Speech: the widest of these bands.", unit="mel bins", least=1, most=80)
    time_masks: int = setting(
        0, "Speech: stretches of time that are masked in each training recording (SpecAugment).", least=0, most=100
    )
    time_mask_share: float = rate(0.05, "Speech: the longest of these stretches, as a share of the recording.")
    identical: Literal["keep", "drop"] = setting(
        "keep",
        "What is done with training pairs whose source equals their target.",
        choices={"keep": "they are used", "drop": "they are left out, as untranslated lines"},
    )
    cache: str = setting("", "Folder for prepared data; without it, the user's cache folder.", resumable=True)

    @property
    def tags_of_valid(self) -> tuple[str, ...]:
        """The target language of each --valid; without --valid, data are held out of each --train."""
        return self.valid_tags or self.tags

    @property
    def holds_out(self) -> bool:
        """Whether validation data are held out of the training files."""
        return bool(self.hold_out or self.hold_out_speakers)

    @property
    def own_symbols(self) -> tuple[str, ...]:
        """The symbols of both vocabularies, with those for language tags and placeholders."""
        tags = dict.fromkeys(map(language_tag, (*self.tags, *self.valid_tags)))
        return (*self.symbols, *tags, *(SYMBOLS if self.placeholders else ()))

    @property
    def what_it_does(self) -> str:
        """What a model of this task does, for messages about models of the wrong kind."""
        return {"speech": "transcribes recordings", "text": "continues text"}.get(self.task, "translates")

    @property
    def layout(self) -> Columns | None:
        """The columns of tables, where any were given."""
        return Columns.of(self.columns) if self.columns else None


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Budget, batches, optimizer and hardware of training."""

    steps: int = setting(
        100_000,
        "Optimizer steps. Training ends at the first of steps, epochs and minutes.",
        zero="not limited", least=0, most=1_000_000_000, resumable=True,
    )  # fmt: skip
    epochs: float = setting(
        0.0, "Passes over the training data.", zero="not limited", least=0, most=1_000_000, resumable=True
    )
    minutes: float = setting(
        0.0,
        "Wall-clock time of the run from the start of the command to the model card, summed over all commands that "
        "resumed it.",
        unit="minutes", zero="not limited", least=0, most=1_000_000, resumable=True,
    )  # fmt: skip
    tokens_per_batch: int = setting(
        25_000, "Target tokens per optimizer step, without padding.", unit="tokens", least=1, most=100_000_000
    )
    positions_per_microbatch: int = setting(
        0,
        "Positions that are on the device at once, including padding; a larger batch is computed in parts.",
        unit="positions", zero="chosen for the device", least=0, most=100_000_000,
    )  # fmt: skip
    layout: Literal["auto", "padded", "pages", "buckets"] = setting(
        "auto",
        "How pairs are laid out in a batch.",
        choices={
            "auto": "pages on a GPU (speech: buckets, or padded with several shards), padded on a CPU",
            "padded": "one pair in a row, padded to the longest",
            "pages": "several pairs in a row (packed)",
            "buckets": "one pair in a row, padded to one of a few lengths",
        },
    )
    optimizer: Literal["adam", "adamw", "muon"] = setting(
        "adam",
        "The optimizer.",
        choices={
            "adam": "Adam, as in the paper",
            "adamw": "Adam with decoupled weight decay",
            "muon": "Muon for the matrices of the layers, AdamW for the rest",
        },
    )
    learning_rate: float = setting(
        0.0, "Peak of the learning rate.", zero="the paper's (d_model * warmup_steps)^-0.5", least=0
    )
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant"] = setting(
        "inverse_sqrt",
        "The learning rate after warm-up.",
        choices={
            "inverse_sqrt": "falls with the square root of the step, as in the paper",
            "linear": "falls to 0 in a straight line",
            "cosine": "falls to 0 along half a cosine",
            "constant": "stays at the peak",
        },
    )
    warmup_steps: int = setting(
        4_000, "Steps in which the learning rate rises to its peak.", unit="steps", least=0, most=1_000_000_000
    )
    beta1: float = rate(0.9, "Adam's decay of the mean of the gradient.")
    beta2: float = rate(0.98, "Adam's decay of the mean of the squared gradient.")
    epsilon: float = setting(1e-9, "Adam's epsilon, added to the denominator.", least=0)
    weight_decay: float = setting(0.0, "Weight decay of matrices; embeddings, biases and norms have none.", least=0)
    label_smoothing: float = rate(0.1, "Share of the probability that is spread over the whole vocabulary.")
    r_drop: float = setting(
        0.0,
        "Weight of R-Drop, the divergence between two passes that differ in dropout; a usual value is 5.",
        zero="no second pass", least=0,
    )  # fmt: skip
    clip_norm: float = setting(0.0, "The norm to which the gradient is clipped.", zero="not clipped", least=0)
    validate_every: int = setting(
        1_000,
        "Steps between validations.",
        unit="steps", zero="as time allows with a budget in minutes, else 20 times in all",
        least=0, most=10**9, resumable=True,
    )  # fmt: skip
    validate_lines: int = setting(
        1_000,
        "Lines that are translated at a validation, greedily, for the metrics; the loss is computed on all lines.",
        unit="lines", least=1, most=100_000_000, resumable=True,
    )  # fmt: skip
    checkpoint_every: int = setting(
        1_000,
        "Steps between checkpoints.",
        unit="steps", zero="as time allows with a budget in minutes, else 20 times in all",
        least=0, most=10**9, resumable=True,
    )  # fmt: skip
    log_every: int = setting(50, "Steps between lines of the log.", unit="steps", least=1, most=10**9, resumable=True)
    average: int = setting(
        5, "How many of the last checkpoints are averaged.", zero="none", least=0, most=1_000, resumable=True
    )
    ema: float = rate(0.0, "Decay of an exponential moving average of the weights.", zero="no such average")
    best_metric: Literal[
        "auto",
        "loss",
        "bleu",
        "chrf",
        "ter",
        "token-error-rate",
        "sequence-error-rate",
        "per",
        "wer",
        "exact-match",
        "edit-distance",
        "word-error-rate",
        "character-error-rate",
    ] = setting(
        "auto",
        "The validation metric that decides which checkpoint is the best, and when `train.patience` ends a run.",
        choices={
            "auto": "the main metric of the task, or the loss while that metric is near its worst value (BLEU or chrF below 5, "
            "an error rate above 95 %) or where only few lines can be translated",
            "loss": "the validation loss",
            "bleu": "BLEU",
            "chrf": "chrF",
            "ter": "TER",
            "token-error-rate": "errors per token",
            "sequence-error-rate": "sequences with an error",
            "per": "the phoneme error rate, that is, the token error rate of pronunciations",
            "wer": "the share of words whose pronunciation is wrong; not the WER of speech recognition",
            "exact-match": "accuracy, that is, the share of sequences without an error",
            "edit-distance": "the mean Levenshtein distance",
            "word-error-rate": "the WER of speech recognition",
            "character-error-rate": "the CER of speech recognition",
        },
    )
    patience: int = setting(
        0,
        "Training stops after this many validations without better weights.",
        zero="training never stops early", least=0, most=1_000_000_000, resumable=True,
    )  # fmt: skip
    seed: int = setting(1, "Seed of everything random: weights, order of the data, dropout.", least=0, most=2**32 - 1)
    precision: Literal["auto", "fp32", "bf16"] = setting(
        "auto",
        "Precision of the arithmetic.",
        choices={
            "auto": "bf16 on GPUs that have it, else fp32",
            "fp32": "32-bit floating point",
            "bf16": "bfloat16, with the weights in fp32",
        },
    )
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto",
        "Where to train.",
        choices={"auto": "on a GPU where there is one", "cpu": "on the CPU", "cuda": "on a GPU"},
        resumable=True,
    )
    threads: int = setting(0, "CPU threads.", zero="one per core", least=0, most=1_024, resumable=True)
    shards: int = setting(
        1,
        "Parts that each step is cut into, a power of two. Under torchrun, up to this many processes can share a step, and "
        "their number can change whenever the run is resumed: the weights stay the same, bit for bit.",
        least=1, most=1_024,
    )  # fmt: skip
    process_timeout: float = setting(
        120.0,
        "How long the processes of a run wait for one that does not answer.",
        unit="seconds", least=1, most=86_400, resumable=True,
    )  # fmt: skip
    start_from: str = setting("", "The run whose weights and vocabulary this one starts from; set by --from.")


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How translations are searched for."""

    beam: int = setting(4, "Width of the beam; 1 is greedy search.", least=1, most=1_000)
    # Below 0 the shortest output wins, and that is the empty one.
    alpha: float = setting(0.6, "Strength of the length penalty.", zero="no penalty", least=0, most=10)
    length_penalty: Literal["paper", "power"] = setting(
        "paper",
        "What the log-probability of an output of n tokens is divided by.",
        choices={"paper": "((5 + n) / 6)^alpha", "power": "n^alpha, as in Hugging Face, CTranslate2 and Marian"},
    )
    max_extra: int = setting(
        50,
        "An output may be this much longer than its input.",
        unit="tokens", least=0, most=100_000, inherited="default",
    )  # fmt: skip
    allow_unknown: bool = setting(True, "Whether an output may contain `<unk>`.")


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run; `config.toml` is exactly this."""

    model: ModelConfig = field(default_factory=TransformerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    search: SearchConfig = field(default_factory=SearchConfig)

    @property
    def transformer(self) -> TransformerConfig:
        """The model's settings, for what serves Transformers only: kernels, exports, pictures of attention."""
        if not isinstance(self.model, TransformerConfig):
            raise SettingError(
                f"model.family = {self.model.family}: this needs a Transformer (model.family=transformer)"
            )
        return self.model


SECTIONS: dict[str, type] = {
    "model": TransformerConfig,
    "data": DataConfig,
    "train": TrainConfig,
    "search": SearchConfig,
}


def all_settings(family: str = "transformer") -> Iterator[Setting]:
    """Every setting, section by section, with those of this family of models."""
    for section, kind in SECTIONS.items():
        yield from settings_of(section, FAMILIES[family] if section == "model" else kind)


def language_tag(language: str) -> str:
    """The tag before a source that asks for a target language, as in OPUS-MT's models."""
    return f">>{language}<<"
