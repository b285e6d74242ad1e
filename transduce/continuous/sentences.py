"""Input and output of the decoder: blocks of sentences, the options of their search, and their hypotheses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transduce.search import Hypothesis, Penalty

Ids = Sequence[int]


@dataclass(frozen=True)
class BeamOptions:
    """How to search: greedily with a beam of 1, by beam search with a wider one."""

    beam: int
    n_best: int
    penalty: Penalty
    log_probs: bool  # whether hypotheses have scores and log-probabilities; without them they are made faster


@dataclass(frozen=True)
class SentenceBlock:
    """Sentences that are answered together: sources, the tokens each output must begin with, and its maximum length in tokens."""

    sources: Sequence[Ids]
    prefixes: Sequence[Ids]
    limits: list[int]


class BlockResults:
    """The hypotheses found for the sentences of a block so far."""

    def __init__(self, count: int) -> None:
        self.found: list[list[Hypothesis]] = [[] for _ in range(count)]
        self.missing = count

    def put(self, number: int, best: list[Hypothesis]) -> None:
        self.found[number] = best
        self.missing -= 1


class PendingSentence(NamedTuple):
    """One sentence of a block, until its hypotheses are found."""

    block: BlockResults
    number: int  # of the sentence in its block
    source: Ids
    prefix: Ids
    limit: int
