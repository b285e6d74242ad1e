"""Greedy, beam and sampled search over any `step(tokens, state)`; knows no model, no text and no files.

(`beam`, `sampling` and `step` are imported by name: they need torch.)
"""

from transduce.search.asked import check_beam, check_sampling
from transduce.search.hypothesis import Hypothesis
from transduce.search.penalty import PaperPenalty, Penalty, PowerPenalty, length_penalty

__all__ = ["Hypothesis", "PaperPenalty", "Penalty", "PowerPenalty", "check_beam", "check_sampling", "length_penalty"]
