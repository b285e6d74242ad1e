"""How long outputs may become: the paper's limit, input + 50 tokens, or more where the training data need more."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from transduce.config import Config

SHARE = 0.999  # of the training targets that must fit; the longest may be errors of the corpus
SPARE = 1.25  # times what these need, for inputs longer than any seen
PAIRS_AT_ONCE = 1_000_000  # so that memory stays bounded for any corpus

Lengths = NDArray[np.int32]


def fit_output_limit(
    config: Config, sources: Lengths, targets: Lengths, as_asked: bool, say: Callable[[str], None]
) -> Config:
    """The settings with `search.max_extra` raised to what the training pairs need, given their lengths in tokens.

    Differs from the paper, whose limit is input + 50 whatever the data. A limit that was asked for stays, and so does that
    of the presets `base` and `big`, which are the paper's: then a warning says what it will cut.
    """
    needed = extra_tokens(sources, targets)
    fitted = 10 * math.ceil(SPARE * needed / 10)
    if fitted <= config.search.max_extra:
        return config
    if as_asked:
        say(
            f"warning: outputs may be search.max_extra = {config.search.max_extra} tokens longer than their inputs, but "
            f"training targets are up to {needed} longer: set search.max_extra={fitted}, or outputs will be cut"
        )
        return config
    say(
        f"fitted to the data: search.max_extra {fitted}, since targets are up to {needed} tokens longer than their sources"
    )
    return replace(config, search=replace(config.search, max_extra=fitted))


def extra_tokens(sources: Lengths, targets: Lengths) -> int:
    """How many tokens longer than their sources all but the last few targets are; 0 where none is longer."""
    counts = np.zeros(1, dtype=np.int64)  # of pairs by how much longer the target is
    for begin in range(0, len(sources), PAIRS_AT_ONCE):
        part = slice(begin, begin + PAIRS_AT_ONCE)
        found = np.bincount(np.maximum(0, targets[part] - sources[part]), minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
    return int(np.searchsorted(np.cumsum(counts), SHARE * len(sources)))
