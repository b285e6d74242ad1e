"""Small models of every family that maps a source to a target, and what the tests of several families share.

A new family gets a line in `MODELS` and one in `RUNS`; tests/test_families.py and tests/test_family_runs.py then hold it to what
must be true of any model. Language models and speech have tests of their own: they have no source, or one that is no tokens.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from transduce.config import FeedForwardConfig, GnmtConfig, ModelConfig, RnnConfig, Seq2seqConfig, TransformerConfig
from transduce.config.models import ByteNetConfig, ConvS2SConfig, MinGruConfig, MoeConfig, PrefixConfig
from transduce.model import Model, Tokens, make_model
from transduce.model.checks import PAD, SIZE

SMALL: dict[str, Any] = {"d_model": 16, "dropout": 0.0}
LAYERS = {"num_encoder_layers": 2, "num_decoder_layers": 2}
CONVS2S = ConvS2SConfig(family="convs2s", num_encoder_layers=3, num_decoder_layers=2, max_positions=40, **SMALL)
BYTENET = ByteNetConfig(family="bytenet", num_encoder_layers=3, num_decoder_layers=4, largest_dilation=4, **SMALL)
MINGRU = MinGruConfig(family="mingru", d_ff=20, num_heads=2, **SMALL, **LAYERS)
PREFIX = PrefixConfig(family="prefix", d_ff=20, num_heads=2, num_decoder_layers=2, **SMALL)
MODELS: dict[str, ModelConfig] = {
    "transformer": TransformerConfig(d_ff=20, num_heads=2, **SMALL, **LAYERS),
    "ff": FeedForwardConfig(family="ff", d_ff=20, window=3, **SMALL),
    "ff, separate": FeedForwardConfig(family="ff", d_ff=20, window=1, encoder="separate", tie="all", **SMALL),
    "seq2seq": Seq2seqConfig(family="seq2seq", **SMALL, **LAYERS),
    "seq2seq, GRUs": Seq2seqConfig(
        family="seq2seq", cell="gru", reverse_source=False, tie="target", num_encoder_layers=1, num_decoder_layers=1, **SMALL
    ),
    "gnmt": GnmtConfig(family="gnmt", **SMALL),
    "gnmt, 2 layers": GnmtConfig(family="gnmt", d_embedding=12, first_residual=2, **SMALL, **LAYERS),
    "rnn": RnnConfig(family="rnn", d_embedding=12, d_readout=10, **SMALL),
    "rnn, 2 layers of LSTMs, dot products": RnnConfig(
        family="rnn", cell="lstm", attention="dot", num_encoder_layers=2, d_embedding=0, d_readout=0, tie="all", **SMALL
    ),
    "rnn, 1 decoder layer": RnnConfig(family="rnn", num_decoder_layers=1, output_bias=False, **SMALL),
    "convs2s": CONVS2S,
    "convs2s, widths": replace(CONVS2S, num_encoder_layers=2, widths=("8", "16"), kernels=("3", "1")),
    "convs2s, even kernels, tied": replace(CONVS2S, kernel_width=4, tie="all"),
    "bytenet": BYTENET,
    "bytenet, kernel 2, tied": replace(BYTENET, kernel_width=2, tie="target"),
    "moe": MoeConfig(family="moe", d_ff=24, num_heads=2, num_experts=4, **SMALL, **LAYERS),
    "mingru": MINGRU,
    "mingru, odd width, tied": replace(MINGRU, d_model=15, num_heads=3, longest_memory=2, tie="target"),
    "prefix": PREFIX,
    "prefix, whole source seen, rotary": replace(PREFIX, source_mask="full", norm="pre", positions="rotary", tie="target"),
}  # fmt: skip
# Settings of a short run through the public functions.
RUNS: dict[str, dict[str, Any]] = {
    "ff": {},
    "seq2seq": {},
    "rnn": {},
    "gnmt": {},
    "convs2s": {"model.num_encoder_layers": 2, "model.num_decoder_layers": 2, "model.max_positions": 300},
    "bytenet": {"model.num_encoder_layers": 2, "model.num_decoder_layers": 2},
    "moe": {"model.d_ff": 16, "model.num_heads": 2, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1, "model.num_experts": 3},
    "mingru": {"model.d_ff": 16, "model.num_heads": 2, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1},
    "prefix": {"model.d_ff": 16, "model.num_heads": 2, "model.num_decoder_layers": 2},
}  # fmt: skip
PACKED = [
    name
    for name, config in MODELS.items()
    if config.family in ("transformer", "convs2s", "bytenet", "moe", "mingru", "prefix")
]


def make(config: ModelConfig) -> Model:
    torch.manual_seed(1)
    return make_model(config, SIZE, SIZE).eval()


def write_pairs(folder: Path, count: int = 240) -> str:
    """A file of words and the same words spelled backwards."""
    draw = np.random.default_rng(1)
    words = ["".join(draw.choice(list("abcdef"), draw.integers(2, 6))) for _ in range(count)]
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{' '.join(word)}\t{' '.join(reversed(word))}\n" for word in words), encoding="utf-8")
    return str(path)


def accuracy_after(config: ModelConfig, steps: int, rate: float, reverse: bool) -> float:
    """The share of right tokens, given the earlier ones, when words of three or four letters are copied or reversed."""
    torch.manual_seed(1)
    model = make_model(config, SIZE, SIZE).train()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for step in range(steps + 1):
        ids = torch.randint(1, 6, (64, 3 + step % 2))
        end = torch.zeros(64, 1, dtype=torch.long)
        targets = torch.cat([ids.flip(1) if reverse else ids, end], 1)
        lengths = torch.full((64,), targets.shape[1])
        source = Tokens.of_lengths(torch.cat([ids, end], 1), lengths)
        inputs = Tokens.of_lengths(torch.cat([torch.full((64, 1), PAD), targets[:, :-1]], 1), lengths)
        if step == steps:
            with torch.no_grad():
                predicted = model.eval().project(model.decode(inputs, model.encode(source))).argmax(-1)
            return float((predicted == targets).float().mean())
        loss = model.loss(source, inputs, targets, 0.0).minimised / targets.numel()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    raise AssertionError
