"""The learning rate as a function of the step, counted from 1, and of the share of the run that is left."""

import math
from collections.abc import Callable

from transduce.config import Config

Schedule = Callable[[int, float], float]  # (step, share of the run that is left after warm-up) -> learning rate


def paper_peak(d_model: int, warmup_steps: int) -> float:
    """The peak rate of equation (3) of the paper: (d_model * warmup_steps)^-0.5."""
    return float((d_model * warmup_steps) ** -0.5)


def inverse_sqrt(step: int, left: float, peak: float, warmup: int) -> float:
    """Equation (3): with the paper's peak, d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)."""
    return peak * min(step / warmup, (warmup / step) ** 0.5)


def linear(step: int, left: float, peak: float, warmup: int) -> float:
    """Rise to the peak, then fall linearly to zero just after the last step."""
    return peak * min(_rise(step, warmup), left)


def cosine(step: int, left: float, peak: float, warmup: int) -> float:
    """Rise to the peak, then fall along half a cosine."""
    return peak * min(_rise(step, warmup), (1 - math.cos(math.pi * left)) / 2)


def constant(step: int, left: float, peak: float, warmup: int) -> float:
    """Rise to the peak and stay there."""
    return peak * _rise(step, warmup)


def _rise(step: int, warmup: int) -> float:
    return min(1.0, step / warmup) if warmup else 1.0


def share_left(step: int, last: int, warmup: int) -> float:
    """The share of the steps after warm-up that is left: 1 when warm-up ends, 0 just after the last step."""
    return max(0.0, min(1.0, (last + 1 - step) / max(1, last + 1 - warmup)))


SCHEDULES = {"inverse_sqrt": inverse_sqrt, "linear": linear, "cosine": cosine, "constant": constant}


def make_schedule(config: Config) -> Schedule:
    """The schedule of a configuration."""
    train = config.train
    peak = train.learning_rate or paper_peak(config.model.d_model, train.warmup_steps)
    function = SCHEDULES[train.schedule]
    return lambda step, left: function(step, left, peak, train.warmup_steps)
