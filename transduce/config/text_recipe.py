"""The recipe of a language model, chosen for the amount of text, the machine and the time budget, with the reasons.

A small table maps the number of characters to a recipe; for a budget in minutes, the model and its batches become smaller as
for pairs (`transduce/config/fitted.py`). Sees only counts, never the text.
"""

from dataclasses import dataclass, replace

from transduce.config.budget import Work
from transduce.config.fitted import (
    UNIT_TITLES,
    FitRequest,
    Fitted,
    Row,
    Time,
    fit_to_time,
    in_minutes,
    training_in_words,
    vocabulary_sample,
)
from transduce.config.old_names import Layers
from transduce.config.settings import Config

CPU_TOKENS = 4_000_000  # without a budget: what a small model learns from in some minutes on two cores
SHORT_CONTEXT, NARROW = 128, 192  # tokens that a model of at most this width sees
MOST_DROPOUT = 0.1  # of a smaller model than the text supports
VALIDATIONS = 20


@dataclass(frozen=True)
class TextRow(Row):
    """The recipe for text of at most this many characters, which stand in the place of pairs."""

    optimizer: str = "adamw"
    units: str = "bpe"
    context: int = 256

    @property
    def tokens_per_character(self) -> float:
        return 1.0 if self.units == "char" else 0.25


# fmt: off
TEXT = [  # characters, d_model, heads, layers, dropout, vocabulary, tokens a batch, epochs, learning rate
    TextRow(   5_000_000, 384,  6,  6, 0.25,  1_000,  16_384, 30, 2e-3, units="char"),  # measured on Shakespeare
    TextRow( 200_000_000, 512,  8,  6, 0.1,   8_000,  32_768,  8, 1e-3),  # from here on: unmeasured
    TextRow(float("inf"), 768, 12, 12, 0.0,  32_000, 131_072,  2, 6e-4, context=1_024),
]
# fmt: on


def fit_text(characters: int, on_gpu: bool, asked: FitRequest, time: Time | None = None) -> Fitted:
    """The recipe for this many characters of text; a requested budget replaces the chosen one."""
    row = next(row for row in TEXT if characters <= row.pairs)
    if units := asked.target_units or asked.source_units:
        row = replace(row, units=units, vocabulary=max(row.vocabulary, 8_000) if units != "char" else row.vocabulary)
    tokens = max(1.0, characters * row.tokens_per_character)
    on_cpu = time is None and not on_gpu
    fitted, warnings = (_on_cpu(row, tokens, asked), []) if on_cpu else _in_time(row, tokens, asked, time)
    layer = _layer(fitted) | {"train": _training(fitted, tokens, asked)}
    layer["data"] |= vocabulary_sample(asked)
    short = fitted.units == "char" and not (asked.target_units or asked.source_units)
    why = f", because the text has at most {row.pairs:,} characters" if short else ""
    reasons = [f"task: language model; tokens are {UNIT_TITLES[fitted.units]}{why}"]
    return Fitted(layer, reasons, warnings, lambda config: _summary(config, fitted.epochs, characters, on_gpu))


def _in_time(row: TextRow, tokens: float, asked: FitRequest, time: Time | None) -> tuple[TextRow, list[str]]:
    """The recipe, made smaller if time is short, and warnings about that."""
    # A vocabulary of characters is far smaller than its limit.
    vocabulary = 100 if row.units == "char" else asked.vocabulary_size or row.vocabulary
    work = Work("text", vocabulary, 0.0, tokens, characters_per_token=1 / row.tokens_per_character)
    fitted, warnings = fit_to_time(row, work, asked, time)
    if fitted.d_model < row.d_model:
        fitted = replace(fitted, dropout=min(MOST_DROPOUT, fitted.dropout))
    return (replace(fitted, context=SHORT_CONTEXT) if fitted.d_model <= NARROW else fitted), warnings


def _on_cpu(row: TextRow, tokens: float, asked: FitRequest) -> TextRow:
    """A small model that a CPU trains in some minutes, for budgets in steps or epochs and for runs without one."""
    row = replace(row, d_model=128, heads=4, layers=4, context=SHORT_CONTEXT, dropout=0.1, tokens_per_batch=2_048)
    row = replace(row, epochs=min(row.epochs, float(f"{CPU_TOKENS / tokens:.2g}")), learning_rate=2e-3)
    return replace(row, optimizer="muon", learning_rate=4e-3) if asked.optimizer in ("", "muon") else row


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


def _summary(config: Config, epochs: float, characters: int, on_gpu: bool) -> str:
    """The amount of text and the main settings of a run."""
    where = in_minutes(config.train.minutes) + ("" if on_gpu else " on a CPU")
    return f"{characters:,} characters{where}: {config.model.description}, {training_in_words(config, epochs)}"
