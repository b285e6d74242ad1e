"""The length limit of outputs: input + 50 tokens as in the paper, or more if the training data needs more."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from transduce.config import Config

SHARE = 0.999  # of the training targets must fit; the longest may be errors in the corpus
SPARE = 1.25  # times what these need, for inputs longer than any in training
PAIRS_AT_ONCE = 1_000_000  # so that memory stays bounded for any corpus

Lengths = NDArray[np.int32]


def fit_output_limit(
    config: Config, sources: Lengths, targets: Lengths, as_requested: bool, say: Callable[[str], None]
) -> Config:
    """The settings with `search.max_extra` raised to what the training pairs need, given their lengths in tokens.

    Differs from the paper, whose limit is input + 50 for any data. A requested limit is kept, and so is that of the presets
    `base` and `big`, which follow the paper; if it is too low, a warning is printed.
    """
    needed = extra_tokens(sources, targets)
    fitted = 10 * math.ceil(SPARE * needed / 10)
    if fitted <= config.search.max_extra:
        return config
    if as_requested:
        say(
            f"warning: outputs can be at most search.max_extra = {config.search.max_extra} tokens longer than their inputs, "
            f"but training targets are up to {needed} longer: set search.max_extra={fitted}, or outputs will be cut"
        )
        return config
    say(
        f"chosen for this data: search.max_extra {fitted}, because targets are up to {needed} tokens longer than their sources"
    )
    return replace(config, search=replace(config.search, max_extra=fitted))


def extra_tokens(sources: Lengths, targets: Lengths) -> int:
    """How many tokens longer than its source a target is, at most, ignoring the longest few; 0 if none is longer."""
    counts = np.zeros(1, dtype=np.int64)  # pairs, by how many tokens longer the target is
    for begin in range(0, len(sources), PAIRS_AT_ONCE):
        part = slice(begin, begin + PAIRS_AT_ONCE)
        found = np.bincount(np.maximum(0, targets[part] - sources[part]), minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
    return int(np.searchsorted(np.cumsum(counts), SHARE * len(sources)))
