"""Constrained beam search: outputs must contain given phrases, such as terminology.

The search counts how many tokens of its phrases each output still lacks. Beams are allocated round-robin among the best outputs
that lack the fewest tokens, the best that lack one more, and so on (after Post and Vilar, 2018). `</s>` is allowed only where
nothing is lacking, and near the length limit only missing phrases can follow, so every output contains every phrase. (The
count near the limit does not assume that phrases overlap.)

The model runs on all beams of all sentences at once; the rest is plain Python on a few candidates per beam.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

import torch
from torch import Tensor

from transduce.errors import SettingError
from transduce.search.beam import best_divisors
from transduce.search.checks import check_beam
from transduce.search.hypothesis import Hypothesis
from transduce.search.penalty import Penalty
from transduce.search.step import FREE, SearchState, Step, forced_tokens, next_scores, top, without

Phrase = tuple[int, ...]
Matched = tuple[int, ...]  # how many tokens of each phrase the output ends in; all of them once it is complete


@dataclass(frozen=True)
class Phrases:
    """The phrases that an output must contain, anywhere; they may overlap."""

    phrases: tuple[Phrase, ...]

    @cached_property
    def nothing(self) -> Matched:
        return (0,) * len(self.phrases)

    def after(self, matched: Matched, token: int) -> Matched:
        """How far each phrase is matched after one more token."""
        pairs = zip(self.phrases, matched, strict=True)
        return tuple(size if size == len(phrase) else _match(phrase, size, token) for phrase, size in pairs)

    def lacking(self, matched: Matched) -> int:
        """How many tokens complete all phrases, starting with the phrase that is furthest."""
        left = [(len(phrase), size) for phrase, size in zip(self.phrases, matched, strict=True) if size < len(phrase)]
        return sum(length for length, _ in left) - max((size for _, size in left), default=0)

    def wanted(self, matched: Matched) -> list[int]:
        """The next token of each incomplete phrase."""
        return [p[size] for p, size in zip(self.phrases, matched, strict=True) if size < len(p)]


def _match(phrase: Phrase, size: int, token: int) -> int:
    """How many tokens of the phrase the output ends in after `token`, if it ended in `size` of them before."""
    seen = (*phrase[:size], token)
    return next(n for n in range(len(seen), -1, -1) if seen[len(seen) - n :] == phrase[:n])


@dataclass(frozen=True)
class Beam:
    """An unfinished output; `row` is its row in the state of the last step."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    total: float
    matched: Matched
    row: int


@dataclass
class Sentence:
    """The search for one sentence: its beams, and the hypotheses found, best first."""

    phrases: Phrases
    forced: list[int]
    limit: int
    divisors: list[float]
    alive: list[Beam]
    found: list[Hypothesis] = field(default_factory=list)


@torch.no_grad()
def constrained_search(
    step: Step,
    state: SearchState,
    *,
    start: int,
    end: int,
    limits: Tensor,
    beam: int,
    penalty: Penalty,
    phrases: Sequence[Sequence[Sequence[int]]],
    n_best: int = 1,
    prefix: Sequence[Sequence[int]] | None = None,
    never: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """Like `beam_search`, with `phrases` that the outputs of each sentence must contain."""
    check_beam(beam, n_best)
    sentences = _sentences(limits, phrases, prefix, end, penalty)
    unfinished = list(sentences)
    for position in range(int(limits.max()) if len(limits) else 0):
        last = [one.tokens[-1] if one.tokens else start for sentence in unfinished for one in sentence.alive]
        log_probs = next_scores(step, torch.tensor(last, device=limits.device), state)
        for sentence, candidates in zip(
            unfinished, _candidates(log_probs, unfinished, position, end, beam, never), strict=True
        ):
            _advance(sentence, candidates, position, end, beam, penalty)
        unfinished = [sentence for sentence in unfinished if sentence.alive]
        if not unfinished:
            break
        state = state.select(torch.tensor([b.row for s in unfinished for b in s.alive], device=limits.device))
    return [sentence.found[:n_best] for sentence in sentences]


def _sentences(
    limits: Tensor,
    phrases: Sequence[Sequence[Sequence[int]]],
    prefix: Sequence[Sequence[int]] | None,
    end: int,
    penalty: Penalty,
) -> list[Sentence]:
    if len(phrases) != len(limits):
        raise SettingError(
            f"phrases for {len(phrases)} of {len(limits)} sentences: give one list of phrases per sentence"
        )
    if len(limits) == 0:
        return []
    forced = forced_tokens(limits, prefix, end)
    divisors = best_divisors(penalty, limits, forced.shape[1])
    sentences = []
    for number, (row, limit, these) in enumerate(zip(forced.tolist(), limits.tolist(), phrases, strict=True)):
        required = Phrases(tuple(tuple(phrase) for phrase in these if phrase))
        begun = [token for token in row[: limit - 1] if token != FREE]
        lacking = required.lacking(reduce(required.after, begun, required.nothing))
        if len(begun) + lacking >= limit:
            raise SettingError(
                f"sentence {number}: its {len(begun) + lacking} required tokens and </s> exceed the length limit of {limit}"
            )
        first = Beam((), (), 0.0, required.nothing, number)
        sentences.append(Sentence(required, row[:limit], limit, divisors[number].tolist(), [first]))
    return sentences


def _candidates(
    log_probs: Tensor, unfinished: list[Sentence], position: int, end: int, beam: int, never: Sequence[int]
) -> Iterator[list[Beam]]:
    """The continuations of the beams of each sentence to consider, most probable first."""
    values, tokens = top(without(log_probs, never), min(2 * beam, log_probs.shape[1]))
    likely = list(zip(values.tolist(), tokens.tolist(), strict=True))
    row = 0
    for sentence in unfinished:
        found: list[Beam] = []
        for one in sentence.alive:
            offered = dict(zip(likely[row][1], likely[row][0], strict=True))
            must = sentence.forced[position]
            extra = [*sentence.phrases.wanted(one.matched), end] if must == FREE else [must]
            offered |= {token: float(log_probs[row, token]) for token in extra if token not in offered}
            found += _continuations(sentence, one, offered, position, end, row)
            row += 1
        yield sorted(found, key=lambda one: -one.total)


def _continuations(
    sentence: Sentence, one: Beam, offered: dict[int, float], position: int, end: int, row: int
) -> Iterator[Beam]:
    """The continuations of a beam after which all missing phrases still fit."""
    phrases, must = sentence.phrases, sentence.forced[position]
    left = sentence.limit - position - 2  # positions after this one, without that of `</s>`
    for token, log_prob in offered.items():
        matched = one.matched if token == end else phrases.after(one.matched, token)
        fits = phrases.lacking(matched) <= (0 if token == end else left)
        if log_prob > -torch.inf and (token == must if must != FREE else fits):
            yield Beam((*one.tokens, token), (*one.log_probs, log_prob), one.total + log_prob, matched, row)


def _advance(sentence: Sentence, candidates: list[Beam], position: int, end: int, beam: int, penalty: Penalty) -> None:
    """Keep the best finished outputs, and the best unfinished ones while one of them could still become better."""
    length = position + 1
    ended = [one for one in candidates if one.tokens[-1] == end]
    found = [
        Hypothesis(list(one.tokens[:-1]), one.total / penalty(float(length)), one.total, list(one.log_probs))
        for one in ended
    ]
    sentence.found = sorted([*sentence.found, *found], key=lambda one: -one.score)[:beam]
    sentence.alive = _allocate([one for one in candidates if one.tokens[-1] != end], sentence.phrases, beam)
    full = len(sentence.found) == beam
    best = max((one.total for one in sentence.alive), default=-torch.inf)
    divisor = sentence.divisors[length]
    if not divisor or (full and best / divisor <= sentence.found[-1].score):
        sentence.alive = []


def _allocate(candidates: list[Beam], phrases: Phrases, beam: int) -> list[Beam]:
    """The best of each bank, round-robin; a bank holds the beams that lack the same number of tokens."""
    banks: dict[int, list[Beam]] = {}
    for one in candidates:
        banks.setdefault(phrases.lacking(one.matched), []).append(one)
    ranked = [(rank, lacking, one) for lacking in sorted(banks) for rank, one in enumerate(banks[lacking])]
    chosen = sorted(ranked, key=lambda entry: entry[:2])[:beam]
    return sorted((one for _, _, one in chosen), key=lambda one: -one.total)
