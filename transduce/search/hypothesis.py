"""Hypotheses, the results of a search, as plain numbers that can be read without torch."""

from collections.abc import Sequence
from typing import NamedTuple


class Hypothesis(NamedTuple):
    """A finished output; its scores are those that scoring the tokens would give."""

    tokens: Sequence[int]  # without `</s>`; an array if no scores were requested
    score: float  # log_probability / penalty(number of tokens, counting `</s>`)
    log_probability: float  # natural logarithm, of the tokens and `</s>`
    token_log_probabilities: list[float]  # one more than tokens: the last is that of `</s>`
