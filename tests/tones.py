"""A speech corpus made of tones, each of which stands for a word, and a model small enough to train on it in seconds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import transduce
from transduce.audio.features import RATE

PITCH = {"low": 300.0, "mid": 900.0, "high": 2_500.0}
TINY: dict[str, Any] = {
    "model.d_model": 16, "model.d_ff": 32, "model.num_heads": 2, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1,
    "model.convolution": 3, "train.tokens_per_batch": 64, "train.device": "cpu", "train.validate_lines": 4,
    "train.log_every": 1, "data.speeds": ("0.9", "1"), "train.average": 0, "model.family": "speech",
}  # fmt: skip


def write_corpus(folder: Path, name: str, count: int, seed: int) -> Path:
    """Utterances of one to three tones, each of which stands for a word."""
    soundfile, draw = pytest.importorskip("soundfile"), np.random.default_rng(seed)
    lines = ["audio\ttext\tspeaker"]
    for number in range(count):
        words = draw.choice(list(PITCH), draw.integers(1, 4))
        time = np.arange(RATE // 4) / RATE
        sound = np.concatenate([np.sin(2 * np.pi * PITCH[word] * time) for word in words])
        soundfile.write(folder / f"{name}{number}.wav", sound + 0.01 * draw.normal(size=len(sound)), RATE)
        lines.append(f"{name}{number}.wav\t{' '.join(words)}\tanna")
    (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder / f"{name}.tsv"


def train(corpus: Path, run: Path, steps: int, **more: Any) -> Any:
    files = {"train": corpus / "train.tsv", "valid": corpus / "valid.tsv"}
    settings = TINY | {"data.cache": str(corpus / "cache"), "train.checkpoint_every": 3} | more
    return transduce.train(run, **files, steps=steps, settings=settings, quiet=True)
