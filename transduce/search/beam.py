"""Beam search, batched over sentences, with an exact stopping rule.

Each step ranks the 2 * beam best continuations of a sentence. Those among the first `beam` ranks that end in `</s>` become
hypotheses, of which the `beam` best by score are kept; the `beam` best others stay alive. A sentence leaves the batch
when no beam alive can still beat the worst hypothesis kept.

Axes: B sentences (A of them unfinished), W beams alive (1 at first, then `beam`), K candidates of a sentence
(2 * beam), N hypotheses kept (`beam`), T positions of an output, V vocabulary. W, K and N are smaller if V is tiny.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.search.beam_state import Alive, BackPointers, Candidates, FinishedHypotheses, Observer, Ranking
from transduce.search.checks import check_beam
from transduce.search.hypothesis import Hypothesis
from transduce.search.penalty import Penalty
from transduce.search.step import (
    FREE,
    SearchState,
    Step,
    forced_tokens,
    hypotheses,
    next_scores,
    top,
    without,
)
from transduce.search.walk import greedy, walk


@torch.no_grad()
def beam_search(
    step: Step,
    state: SearchState,
    *,
    start: int,
    end: int,
    limits: Tensor,
    beam: int,
    penalty: Penalty,
    n_best: int = 1,
    prefix: Sequence[Sequence[int]] | None = None,
    never: Sequence[int] = (),
    observer: Observer | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of each sentence, best score first; a beam of 1 is greedy search.

    The state has one row per sentence. `limits` [B] are the maximum output lengths, counting `</s>`, which is forced at the
    limit. Tokens in `never` are not chosen, but may occur in a prefix.
    A sentence gets fewer hypotheses if the search found fewer with a probability above 0, and none if its prefix has
    probability 0.
    The observer is called after every step if the beam is 2 or more; greedy search has no ranking to show.
    """
    check_beam(beam, n_best)
    if len(limits) == 0:
        return []
    forced = forced_tokens(limits, prefix, end)
    if beam == 1:
        paths = walk(step, state, start=start, end=end, forced=forced, choose=greedy, never=never)
    else:
        divisors = best_divisors(penalty, limits, forced.shape[1])
        pointers, kept = _search(step, state, start, end, forced, beam, penalty, divisors, never, observer)
        paths = pointers.follow(kept.best(n_best))
    return hypotheses(paths, len(limits), penalty)


def _search(
    step: Step,
    state: SearchState,
    start: int,
    end: int,
    forced: Tensor,
    beam: int,
    penalty: Penalty,
    divisors: Tensor,
    never: Sequence[int],
    observer: Observer | None,
) -> tuple[BackPointers, FinishedHypotheses]:
    alive = Alive.at_start(len(forced), start, forced.device)
    pointers = BackPointers.empty(forced, 2 * beam)
    kept = FinishedHypotheses.empty(len(forced), beam, forced.device)
    for position in range(forced.shape[1]):
        log_probs = next_scores(step, alive.tokens.flatten(), state)
        found = _continuations(log_probs, alive, forced[alive.sentence, position], 2 * beam, never)
        pointers.record(position, alive.sentence, found)
        kept.add(alive.sentence, found, found.tokens == end, position + 1, penalty)
        # An upper bound on the score of any continuation: totals can only fall, and the divisors are known in advance.
        following = alive.continue_with(found, found.tokens == end, beam)
        attainable = following.totals[:, 0] / divisors[alive.sentence, position + 1]
        if observer is not None:
            observer(Ranking(position, alive.sentence, found, following, attainable, kept.scores[alive.sentence]))
        unfinished = (attainable > kept.scores[alive.sentence, -1]).nonzero().squeeze(1)
        if len(unfinished) == 0:
            break
        beams = found.beams.gather(1, following.ranks)[unfinished]
        state = state.select((unfinished[:, None] * alive.totals.shape[1] + beams).flatten())
        alive = following.only(unfinished)
    return pointers, kept


def _continuations(log_probs: Tensor, alive: Alive, must: Tensor, count: int, never: Sequence[int] = ()) -> Candidates:
    """The `count` most probable continuations of each sentence's beams; log_probs [A * W, V]."""
    values, tokens = top(without(log_probs, never), min(count, log_probs.shape[1]))
    must = must.repeat_interleave(alive.totals.shape[1])
    values, tokens = force(values, tokens, must, log_probs.gather(1, must.clamp(min=0)[:, None])[:, 0])
    return alive.best_continuations(values, tokens, count)


def force(values: Tensor, tokens: Tensor, must: Tensor, of_forced: Tensor) -> tuple[Tensor, Tensor]:
    """Leave only the forced token in rows that have one (`must` [R]); their other candidates get probability 0."""
    held = (must != FREE)[:, None]
    only = torch.full_like(values, -torch.inf)
    only[:, 0] = of_forced
    return torch.where(held, only, values), torch.where(held, must[:, None], tokens)


def best_divisors(penalty: Penalty, limits: Tensor, positions: int) -> Tensor:
    """For each length n, the largest divisor among the longer lengths within the limit [B, T + 1].

    The largest divisor gives the highest score, since log-probabilities are never positive; this holds whether the penalty
    rises or falls with the length. At the limit itself it is 0, and dividing by it gives -inf: nothing is attainable.
    """
    lengths = torch.arange(1, positions + 2, device=limits.device)
    divisors = penalty(lengths.double()).expand(len(limits), -1)
    within = divisors.masked_fill(lengths > limits[:, None], 0)
    return within.flip(1).cummax(1).values.flip(1)
