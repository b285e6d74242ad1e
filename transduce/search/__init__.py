"""Greedy search, beam search and sampling over any `step(tokens, state)`; knows nothing of models, text or files.

Import `beam`, `sampling` and `step` by name: they need torch, and this package does not.
"""

from transduce.search.checks import check_beam, check_sampling
from transduce.search.hypothesis import Hypothesis
from transduce.search.penalty import PaperPenalty, Penalty, PowerPenalty, length_penalty

__all__ = ["Hypothesis", "PaperPenalty", "Penalty", "PowerPenalty", "check_beam", "check_sampling", "length_penalty"]
