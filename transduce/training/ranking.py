"""Which of two validated weights are better: each validation has a rank, one number that is stored with the weights.

The main metric decides, or the loss, or the loss at first: near its worst value a metric says little. Of the outputs of an
almost untrained model, one or two match by chance, and BLEU can fall from 0.03 to 0.02 while the loss falls from 6 to 4.
"""

from typing import Literal

from transduce.config import TrainConfig
from transduce.metrics import Score

FEW_LINES = 200  # with fewer lines, the loss is more reliable than a score
POINTS = 5.0  # a metric decides from here, counted from its worst value: BLEU 5, or an error rate of 95 %
LOWEST = -1_000.0  # the loss counts from here while it decides at first: all scores with enough points rank higher
EQUAL = 1e-6  # weight of the loss in the rank: too small to reorder two scores that differ
LARGEST = 100.0  # a larger loss counts as this

Decider = Literal["loss", "metric", "loss at first"]


def decider(train: TrainConfig, lines: int, all_lines: int) -> Decider:
    """What decides in a run whose validations translate so many lines; a metric that is set by name always does."""
    if train.best_metric != "auto":
        return "loss" if train.best_metric == "loss" else "metric"
    return "loss" if lines < min(FEW_LINES, all_lines) else "loss at first"


def rank(by: Decider, score: Score, loss: float) -> float:
    """Higher is better: the main score, with the loss as tie-breaker; or the loss."""
    if by == "loss":
        return -loss
    loss = min(loss, LARGEST)
    return LOWEST - loss if lacks_points(by, score) else _signed(score) - EQUAL * loss


def lacks_points(by: Decider, score: Score) -> bool:
    """Whether the loss decides because the score is too near its worst value."""
    return by == "loss at first" and _signed(score) < _least(score)


def is_better(by: Decider, score: Score, loss: float, best_rank: float) -> bool:
    """Whether a validation is better than the best one so far.

    Older versions ranked all scores. A score of theirs that lacks points cannot be compared with a loss, so it does not count.
    """
    does_not_count = by == "loss at first" and LOWEST < best_rank < _least(score) - EQUAL * LARGEST
    return does_not_count or rank(by, score, loss) > best_rank


def described(by: Decider, score: Score) -> str:
    """What decides, for people: `BLEU, and by loss until BLEU reaches 5`."""
    if by == "loss":
        return "loss"
    until = f"reaches {POINTS:g}" if score.higher_is_better else f"falls to {100 - POINTS:g}"
    return score.name + (f", and by loss until {score.name} {until}" if by == "loss at first" else "")


def lacked_points(stored_rank: float) -> bool:
    """Whether the loss decided a rank because the score was too near its worst value."""
    return stored_rank <= LOWEST


def _signed(score: Score) -> float:
    return score.value if score.higher_is_better else -score.value


def _least(score: Score) -> float:
    """The signed value from which on a metric decides; the worst one is 0, or 100 for an error rate."""
    return POINTS if score.higher_is_better else POINTS - 100
