"""The presets. `base` and `big` are the paper's models; `tiny` and `small` are for little data; `student` is for
distillation. Those of other families are published models, each with its source; `moe` is `base` with experts."""

from dataclasses import fields
from typing import Any

from transduce.config.models import FAMILIES

_PAPER_RECIPE: dict[str, Any] = {
    "tokens_per_batch": 25_000,
    "optimizer": "adam",
    "learning_rate": 0.0,  # 0: the paper's peak
    "schedule": "inverse_sqrt",
    "warmup_steps": 4_000,
    "beta1": 0.9,
    "beta2": 0.98,
    "epsilon": 1e-9,
    "weight_decay": 0.0,
    "label_smoothing": 0.1,
    "r_drop": 0.0,
    "clip_norm": 0.0,
    "ema": 0.0,
    "patience": 0,
    "validate_every": 1_000,
    "checkpoint_every": 1_000,  # the paper: every 10 minutes
}
_RECURRENT_RECIPE: dict[str, Any] = _PAPER_RECIPE | {
    "tokens_per_batch": 3_000,
    "learning_rate": 1e-3,
    "schedule": "linear",
    "warmup_steps": 1_000,
    "beta2": 0.999,
    "epsilon": 1e-8,
    "label_smoothing": 0.0,
    "steps": 0,
    "minutes": 0.0,
}
_PAPER_SEARCH: dict[str, Any] = {"beam": 4, "alpha": 0.6, "length_penalty": "paper", "max_extra": 50}
_PAPER_PARTS: dict[str, Any] = {
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "norm": "post",
    "norm_kind": "layer",
    "positions": "sinusoidal",
    "activation": "relu",
    "output_bias": False,
    "d_k": 0,
    "d_v": 0,
    "tie": "all",
}
_PAPER_DATA: dict[str, Any] = {
    "source_units": "bpe",
    "target_units": "bpe",
    "joint": True,
    "vocabulary_size": 37_000,
}


def _shape(layers: int, d_model: int, heads: int, d_ff: int, dropout: float) -> dict[str, Any]:
    return {
        "num_encoder_layers": layers,
        "num_decoder_layers": layers,
        "d_model": d_model,
        "num_heads": heads,
        "d_ff": d_ff,
        "dropout": dropout,
    }


def _published(family: str, model: dict[str, Any], **others: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Another family's model: its shape is the family's defaults, and `model` says what else the publication has."""
    shape = {one.name: one.default for one in fields(FAMILIES[family])} | model | {"family": family}
    return {"model": shape, **others}


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    # Only the shape: all other settings are still fitted to the data.
    "tiny": {"model": _shape(3, 128, 4, 512, 0.1)},
    "small": {"model": _shape(4, 256, 4, 1024, 0.2)},
    # For distillation: most layers are in the encoder, which runs once per sentence instead of once per token.
    "student": {
        "model": _shape(6, 256, 4, 1024, 0.1) | {"num_decoder_layers": 1},
        "search": {"beam": 1},
    },
    # Table 3, "base": 100,000 steps; the last 5 checkpoints averaged (section 6.1).
    "base": {
        "model": _PAPER_PARTS | _shape(6, 512, 8, 2048, 0.1),
        "data": _PAPER_DATA,
        "train": _PAPER_RECIPE | {"steps": 100_000, "epochs": 0.0, "minutes": 0.0, "average": 5},
        "search": _PAPER_SEARCH,
    },
    # Gehring et al. 2017, section 5.1: the model for WMT14 English-German. How long to train is fitted to the data.
    "convs2s": {
        "model": {
            "family": "convs2s",
            "d_model": 512,
            "num_encoder_layers": 15,
            "num_decoder_layers": 15,
            "widths": ("512",) * 10 + ("768",) * 3 + ("2048",) * 2,
            "kernels": ("3",) * 13 + ("1",) * 2,
            "dropout": 0.1,
            "tie": "none",
        },
        "data": {"source_units": "bpe", "target_units": "bpe", "joint": True, "vocabulary_size": 40_000},
        "search": {"beam": 5},
    },
    # Kalchbrenner et al. 2016, section 5: the model for WMT14 English-German, over characters.
    "bytenet": {
        "model": {
            "family": "bytenet",
            "d_model": 1_600,
            "num_encoder_layers": 30,
            "num_decoder_layers": 30,
            "largest_dilation": 16,
            "kernel_width": 3,
            "tie": "none",
        },
        "data": {"source_units": "char", "target_units": "char"},
        "train": {"learning_rate": 3e-4},
    },
    # Table 3, "big": 300,000 steps, dropout .3; the last 20 checkpoints averaged.
    "big": {
        "model": _PAPER_PARTS | _shape(6, 1024, 16, 4096, 0.3),
        "data": _PAPER_DATA,
        "train": _PAPER_RECIPE | {"steps": 300_000, "epochs": 0.0, "minutes": 0.0, "average": 20},
        "search": _PAPER_SEARCH,
    },
    # The recipe of `base` with eight experts in each layer, of which two compute a token. Shazeer et al. 2017 published another
    # model: LSTMs with one layer of up to 2,048 experts on each side.
    "moe": {
        "model": _PAPER_PARTS
        | _shape(6, 512, 8, 2048, 0.1)
        | {"family": "moe", "num_experts": 8, "experts_per_token": 2, "expert_capacity": 1.5, "expert_balance": 0.1},
        "data": _PAPER_DATA,
        "train": _PAPER_RECIPE | {"steps": 100_000, "epochs": 0.0, "minutes": 0.0, "average": 5},
        "search": _PAPER_SEARCH,
    },
    # Rush et al. 2015, section 6: only the shape.
    "ff": _published("ff", {}),
    # Sutskever et al. 2014, section 3.4: batches of 128 sentences, 7.5 epochs. It had 160,000 source words; SGD is Adam here.
    "seq2seq": _published(
        "seq2seq",
        {},
        data={
            "source_units": "word",
            "target_units": "word",
            "joint": False,
            "vocabulary_size": 80_000,
            "unknown": "unk",
        },
        train=_RECURRENT_RECIPE | {"epochs": 7.5, "clip_norm": 5.0},
        search={"beam": 12, "alpha": 0.0},
    ),
    # RNNsearch-50, Bahdanau et al. 2015, appendices A and B: batches of 80 sentences of at most 50 words. Adadelta is Adam here.
    "rnn": _published(
        "rnn",
        {"dropout": 0.0},
        data={
            "source_units": "word",
            "target_units": "word",
            "joint": False,
            "vocabulary_size": 30_000,
            "unknown": "unk",
            "max_length": 50,
        },
        train=_RECURRENT_RECIPE | {"tokens_per_batch": 2_000, "epochs": 5.0, "clip_norm": 1.0},
        search={"beam": 12, "alpha": 1.0, "length_penalty": "power"},
    ),
    # NVIDIA's GNMT v2, the defaults of its train.py at batches of 1,024 sentences. It halves the rate four times in the last
    # third of the run; here it falls in a straight line. Its coverage penalty is left out.
    "gnmt": _published(
        "gnmt",
        {},
        data=_PAPER_DATA | {"vocabulary_size": 32_000, "max_length": 50},
        train=_RECURRENT_RECIPE
        | {
            "tokens_per_batch": 25_000,
            "learning_rate": 2e-3,
            "warmup_steps": 200,
            "epochs": 6.0,
            "clip_norm": 5.0,
            "label_smoothing": 0.1,
        },
        search=_PAPER_SEARCH | {"beam": 5},
    ),
}
