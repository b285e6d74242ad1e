"""How long a step and a validation take, measured before the first step.

The results of these steps are thrown away. What a budget in minutes has time for is planned from their durations
(`transduce/training/clock.py`).
"""

from __future__ import annotations

import math
import time
from itertools import islice
from typing import TYPE_CHECKING

from transduce.training.validation import LOSS_PAIRS, time_validation

if TYPE_CHECKING:
    from transduce.training.loop import Trainer

TIMED_BATCHES = 3  # the fastest one counts: the first ones allocate memory
TIMED_STEPS, ENOUGH_SECONDS = 8, 1.0  # on a CPU, so many steps are timed, or as many as take this long
# A validation is timed on so many lines, and then on so many times more until it takes long enough.
TIMED_LINES, MORE_LINES = 32, 4


def step_seconds(trainer: Trainer) -> float:
    """Seconds per step, by the first steps on a CPU and by the largest batch otherwise."""
    plain = trainer.device.kind == "cpu" and trainer.share is None
    return _by_first_steps(trainer) if plain else _by_largest_batch(trainer)


def _by_first_steps(trainer: Trainer) -> float:
    """Seconds per step: those of the gradients of the first steps.

    On a CPU the largest batch says too little: its long sentences take up to half as much time again for each position.
    """
    seconds, tokens = 0.0, 0
    with trainer.fed() as fed:
        for data in islice(fed, TIMED_STEPS):
            begun = time.perf_counter()
            for batch in data.batches:
                trainer.update.add(batch, data.target_tokens)
            trainer.update.forget()
            seconds, tokens = seconds + time.perf_counter() - begun, tokens + data.target_tokens
            if seconds > ENOUGH_SECONDS:
                break
    return seconds / tokens * trainer.layout.tokens_per_step


def _by_largest_batch(trainer: Trainer) -> float:
    """Seconds per step: those of the largest batch, by how many positions it has and how many a mean step has.

    Positions and not tokens: the widest pages hold few sentences, and most of their positions are padding.
    """
    layout, work, seconds = trainer.layout, trainer.layout.largest_work(), []
    for _ in range(TIMED_BATCHES):
        begun = time.perf_counter()
        trainer.update.add(work[0], tokens=1)
        trainer.update.forget()
        trainer.update.measured()  # waits for the device
        seconds.append(time.perf_counter() - begun)
    positions = sum(map(layout.positions_of, layout.largest_step()))
    return min(seconds) * len(work) * layout.positions_per_step / positions


def validation_seconds(trainer: Trainer, enough_seconds: float) -> float:
    """Seconds per validation of all lines, measured on as many of them as take so long.

    Few lines say too little: they leave most of a batch empty, so that each of them takes several times as long.
    """
    texts, pairs = trainer.training_data.valid_texts, trainer.training_data.valid
    if not texts.sources:
        return time_validation(trainer.translator, pairs, texts, 0)
    time_validation(trainer.translator, pairs, texts.first(TIMED_LINES), TIMED_LINES)  # warms up the engine
    lines = TIMED_LINES
    while (seconds := _lines_seconds(trainer, lines)) < enough_seconds and lines < len(texts.sources):
        lines *= MORE_LINES
    return seconds * max(1.0, len(texts.sources) / lines)


def _lines_seconds(trainer: Trainer, lines: int) -> float:
    """Seconds to validate so many lines, with their share of the pairs for the loss."""
    texts, pairs = trainer.training_data.valid_texts, trainer.training_data.valid
    few = texts.first(lines)
    share = len(few.sources) / len(texts.sources)
    # A budget in minutes limits the pairs for the loss together with the lines.
    loss_pairs = LOSS_PAIRS * len(few.sources) if trainer.config.minutes else len(pairs.source_lengths) * share
    return time_validation(trainer.translator, pairs, few, math.ceil(loss_pairs))
