"""Greedy, beam and sampled search over any `step(tokens, state)`; knows no model, no text and no files."""

from transduce.search.beam import beam_search
from transduce.search.penalty import PaperPenalty, Penalty, PowerPenalty, length_penalty
from transduce.search.sampling import sample
from transduce.search.step import Hypothesis, State, Step

__all__ = [
    "Hypothesis",
    "PaperPenalty",
    "Penalty",
    "PowerPenalty",
    "State",
    "Step",
    "beam_search",
    "length_penalty",
    "sample",
]
