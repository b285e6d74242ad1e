"""Transduce: the Transformer of "Attention Is All You Need", from pairs of sequences to a translator.

    import transduce
    transduce.train("runs/en-de", train=("train.en", "train.de"), valid=("valid.en", "valid.de"))
    transduce.load("runs/en-de").translate(["a sentence"])

Importing this loads no torch; calling does.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from transduce.api import Model
    from transduce.data import Files
    from transduce.training import Result
    from transduce.training.choices import Settings

__version__ = "0.1.0"
__all__ = ["__version__", "load", "train"]


def load(
    folder: str | Path,
    *,
    weights: Literal["auto", "best", "last", "averaged"] = "auto",
    engine: Literal["auto", "torch", "ct2"] = "auto",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int = 0,
    quantization: Literal["int8", "bfloat16", "float32"] = "int8",
) -> "Model":
    """The model of a run folder; the engine is CTranslate2 (ct2) where it is installed and can serve, else PyTorch."""
    from transduce.api import Model
    from transduce.translator import LoadOptions, Translator

    loading = LoadOptions(weights=weights, engine=engine, device=device, threads=threads, quantization=quantization)
    return Model(Translator.load(folder, loading).ready())


def train(
    run: str | Path,
    *,
    train: "Files | None" = None,
    valid: "Files | None" = None,
    languages: Iterable[str] | None = None,
    preset: str = "",
    config: str | Path = "",
    settings: "Settings | None" = None,
    start_from: str | Path = "",
    minutes: float = 0.0,
    steps: int = 0,
    epochs: float = 0.0,
    quiet: bool = False,
) -> "Result":
    """Train a model, or resume a run.

    `minutes`, `steps` and `epochs` are the budget: whichever ends first. Without one it is fitted to the data.

    `train` and `valid` are a source and a target file, ("train.en", "train.de"), one .tsv or .jsonl file, or a list of
    these. `settings` is a dictionary, {"model.d_model": 64} or {"model": {"d_model": 64}}, or a list of texts,
    ["model.d_model=64"].
    """
    from transduce.config import merge, settings_layer
    from transduce.training import make_reporter
    from transduce.training import train as run_training

    given = {"minutes": minutes, "steps": steps, "epochs": epochs}
    budget = {name: value for name, value in given.items() if value}
    return run_training(
        run,
        train=train,
        valid=valid,
        languages=languages,
        preset=preset,
        config=config,
        settings=merge(settings_layer(settings or ()), {"train": budget}),
        start_from=start_from,
        reporter=make_reporter(quiet),
    )
