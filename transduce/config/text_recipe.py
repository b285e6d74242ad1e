"""The recipe of a language model, fitted to the amount of text and the kind of device, with the reasons.

A small table maps the number of characters to a recipe. Sees only counts, never the text.
"""

from dataclasses import dataclass, replace

from transduce.config.fitted import UNIT_TITLES, FitRequest, Fitted, training_in_words
from transduce.config.old_names import Layers
from transduce.config.settings import Config

CPU_TOKENS = 4_000_000  # without a budget: what a small model learns from in some minutes on two cores
VALIDATIONS = 20


@dataclass(frozen=True)
class TextRow:
    """The recipe for text of at most this many characters."""

    characters: float
    d_model: int
    heads: int
    layers: int
    context: int
    dropout: float
    units: str
    vocabulary: int
    tokens_per_batch: int
    epochs: float
    learning_rate: float
    optimizer: str = "adamw"

    @property
    def tokens_per_character(self) -> float:
        return 1.0 if self.units == "char" else 0.25


# fmt: off
TEXT = [  # characters, d_model, heads, layers, context, dropout, units, vocabulary, tokens a batch, epochs, learning rate
    TextRow(   5_000_000, 384,  6,  6,   256, 0.25, "char",  1_000,  16_384, 30, 2e-3),  # measured on Shakespeare
    TextRow( 200_000_000, 512,  8,  6,   256, 0.1,  "bpe",   8_000,  32_768,  8, 1e-3),  # from here on: unmeasured
    TextRow(float("inf"), 768, 12, 12, 1_024, 0.0,  "bpe",  32_000, 131_072,  2, 6e-4),
]
# fmt: on


def fit_text(characters: int, on_gpu: bool, asked: FitRequest) -> Fitted:
    """The recipe for this many characters of text; a requested budget replaces the fitted one."""
    row = next(row for row in TEXT if characters <= row.characters)
    if units := asked.target_units or asked.source_units:
        row = replace(row, units=units, vocabulary=max(row.vocabulary, 8_000) if units != "char" else row.vocabulary)
    tokens = max(1.0, characters * row.tokens_per_character)
    if not on_gpu:
        row = replace(row, d_model=128, heads=4, layers=4, context=128, dropout=0.1, tokens_per_batch=2_048)
        row = replace(row, epochs=min(row.epochs, float(f"{CPU_TOKENS / tokens:.2g}")), learning_rate=2e-3)
        if asked.optimizer in ("", "muon"):
            row = replace(row, optimizer="muon", learning_rate=4e-3)
    layer, amount = _layer(row) | {"train": _training(row, tokens, asked)}, f"{characters:,} characters"
    amount += "" if on_gpu else " on a CPU"
    reasons = [f"task: language model; tokens are {UNIT_TITLES[row.units]}"]
    return Fitted(layer, reasons, [], lambda config: f"{amount}: {_summary(config, row.epochs)}")


def _layer(row: TextRow) -> Layers:
    model = {
        "family": "decoder", "d_model": row.d_model, "d_ff": 4 * row.d_model, "num_heads": row.heads,
        "num_decoder_layers": row.layers, "context": row.context, "dropout": row.dropout, "norm": "pre",
        "positions": "rotary",
    }  # fmt: skip
    data = {
        "task": "text", "source_units": row.units, "target_units": row.units, "joint": True,
        "vocabulary_size": row.vocabulary, "normalization": "identity", "unknown": "bytes",
    }  # fmt: skip
    return {"model": model, "data": data, "search": {}}


def _training(row: TextRow, tokens: float, asked: FitRequest) -> dict[str, object]:
    """Differs from the paper: AdamW or Muon with weight decay, no label smoothing, and a learning rate that falls to zero."""
    batch = asked.tokens_per_batch or row.tokens_per_batch
    steps = max(1, asked.steps or round((asked.epochs or row.epochs) * tokens / batch))
    part = max(20, steps // VALIDATIONS)
    return {
        "steps": 0,
        "epochs": 0.0 if asked.budget else float(row.epochs),
        "tokens_per_batch": row.tokens_per_batch,
        "optimizer": row.optimizer,
        "beta2": 0.99,
        "epsilon": 1e-8,
        "weight_decay": 0.1,
        "label_smoothing": 0.0,
        "learning_rate": row.learning_rate,
        "schedule": "linear",
        "warmup_steps": min(2_000, max(1, steps // 20)),
        "clip_norm": 1.0,
        "validate_every": 0 if asked.minutes else part,
        "checkpoint_every": 0 if asked.minutes else part,
        "average": 0,
        "best_metric": "loss",
    }


def _summary(config: Config, epochs: float) -> str:
    """The main settings of a run."""
    return f"{config.model.description}, {training_in_words(config, epochs)}"
