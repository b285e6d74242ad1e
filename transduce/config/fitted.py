"""Settings fitted to the data: one small table from the number of pairs to a whole recipe, with its reasons.

Used where no preset, file or `--set` says otherwise. Each row rests on runs in docs/log.md. Everything chosen here can
be expressed by Hugging Face transformers and CTranslate2. Sees counts only, never the data.
"""

from dataclasses import dataclass
from typing import Any

from transduce.config.resolve import Layers
from transduce.config.task import Counts, infer_task, infer_units, text_reasons, text_settings

SOON = 100  # steps: warm-up and pauses of a budget in minutes, of which nobody knows yet how many steps it is


@dataclass(frozen=True)
class Fitted:
    """A layer of settings and, for people, why they are what they are."""

    layer: Layers
    reasons: list[str]


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
# fmt: on


@dataclass(frozen=True)
class Asked:
    """What the user decided already and the rest is fitted around."""

    task: str = "auto"
    source_units: str = ""
    target_units: str = ""
    joint: bool | None = None
    steps: int = 0
    epochs: float = 0.0
    minutes: float = 0.0

    @staticmethod
    def of(layers: Layers) -> "Asked":
        data, train = layers.get("data", {}), layers.get("train", {})
        budget = {name: train.get(name, 0) for name in ("steps", "epochs", "minutes")}
        units = {name: data.get(name, "") for name in ("source_units", "target_units")}
        return Asked(task=data.get("task", "auto"), joint=data.get("joint"), **units, **budget)


def fit(counts: Counts, asked: Asked | None = None) -> Fitted:
    """The recipe for a corpus, around what was asked for: a budget that was given takes the place of the fitted one.

    Differs from the paper: pre-norm, a learning rate that falls linearly to zero with the budget, clipping, dropout and
    vocabulary by the size of the data. The presets `base` and `big` are the paper's own.
    """
    asked = asked or Asked()
    task, why = infer_task(counts) if asked.task == "auto" else (asked.task, "as set")
    row = next(r for r in (SYMBOLS if task == "symbols" else TRANSLATION) if counts.pairs <= r.pairs)
    source, target = infer_units(counts, task)
    units = asked.source_units or source, asked.target_units or target
    one = units[0] == units[1] if asked.joint is None else asked.joint
    layer = _layer(row, task, units, one, counts) | {
        "train": _training(row, _steps_per_epoch(row, units[1], counts), asked)
    }
    return Fitted(layer, _reasons(row, task, why, units, one, counts))


def _layer(row: Row, task: str, units: tuple[str, str], joint: bool, counts: Counts) -> Layers:
    model: dict[str, Any] = {
        "d_model": row.d_model,
        "d_ff": 4 * row.d_model,
        "num_heads": row.heads,
        "num_encoder_layers": row.layers,
        "num_decoder_layers": row.layers,
        "dropout": row.dropout,
        "norm": "pre",
        "tie": "all" if joint else "target",
    }
    data: dict[str, Any] = {
        "task": task,
        "source_units": units[0],
        "target_units": units[1],
        "joint": joint,
        **text_settings(counts, task, row.vocabulary),
    }
    search: dict[str, Any] = {"beam": 4, "alpha": 1.0, "length_penalty": "power"}
    return {"model": model, "data": data, "search": search}


def _training(row: Row, steps_per_epoch: float, asked: Asked) -> dict[str, Any]:
    """Warm-up, validations and checkpoints as shares of the steps there will be.

    A budget in minutes may be a few steps or many: they come soon then, and pauses are made rarer once it is measured.
    """
    budget_asked = bool(asked.steps or asked.epochs or asked.minutes)
    steps = max(1, asked.steps or round((asked.epochs or row.epochs) * steps_per_epoch))
    part = max(20, min(steps // 20, SOON if asked.minutes else steps))
    return {
        "steps": 0,
        "epochs": 0.0 if budget_asked else float(row.epochs),
        "tokens_per_batch": row.tokens_per_batch,
        "learning_rate": row.learning_rate,
        "schedule": "linear",
        "warmup_steps": min(4_000, part),
        "clip_norm": 1.0,
        "validate_every": part,
        "checkpoint_every": part,
        "average": 5,
    }


def _steps_per_epoch(row: Row, target_units: str, counts: Counts) -> float:
    return counts.pairs * counts.target.tokens_in(target_units) / row.tokens_per_batch


def _reasons(row: Row, task: str, why: str, units: tuple[str, str], joint: bool, counts: Counts) -> list[str]:
    vocabulary = "one vocabulary for both sides" if joint else "a vocabulary per side"
    return [
        f"task {task}: {why}",
        f"units {units[0]} -> {units[1]}, {vocabulary}",
        f"{counts.pairs:,} pairs: d_model {row.d_model}, {row.layers} + {row.layers} layers, dropout {row.dropout}, "
        f"{row.tokens_per_batch:,} tokens a batch, {row.epochs:g} epochs, learning rate {row.learning_rate:g}",
        *text_reasons(counts, task),
    ]
