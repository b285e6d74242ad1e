"""The result of a finished run, as `transduce.train` returns it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """A finished run."""

    run: str
    steps: int
    seconds: float
    weights: str  # the weights with the better score: best or averaged
    metric: str
    score: float
    signature: str
    lines: int  # validation lines that the score was measured on, with greedy search
    all_lines: int = 0  # of the validation data; 0 if the weights are from a version that did not record it
