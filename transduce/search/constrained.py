"""Beam search whose outputs must contain given phrases: terminology, forced words.

How much of its phrases an output still lacks is known at every token, so beams are shared out: the best of those that
lack least, of those that lack one token more, and so on in turns (after Post and Vilar, 2018). `</s>` comes only where
nothing is lacking, and before the length limit nothing but what is lacking: every output has every phrase. (That phrases
may overlap is not counted on there.)

The model is asked for all beams of all sentences at once; the rest is a few candidates a beam, in plain Python.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

import torch
from torch import Tensor

from transduce.errors import SettingError
from transduce.search.asked import check_beam
from transduce.search.beam import best_divisors
from transduce.search.hypothesis import Hypothesis
from transduce.search.penalty import Penalty
from transduce.search.step import FREE, State, Step, forced_tokens, log_probabilities, top, without

Phrase = tuple[int, ...]
Matched = tuple[int, ...]  # tokens of each phrase that the output ends in; all of them once it was complete


@dataclass(frozen=True)
class Phrases:
    """What one output must contain, each anywhere; they may overlap."""

    phrases: tuple[Phrase, ...]

    @cached_property
    def nothing(self) -> Matched:
        return (0,) * len(self.phrases)

    def after(self, matched: Matched, token: int) -> Matched:
        """How far each phrase is after one more token."""
        pairs = zip(self.phrases, matched, strict=True)
        return tuple(size if size == len(phrase) else _match(phrase, size, token) for phrase, size in pairs)

    def lacking(self, matched: Matched) -> int:
        """Tokens that complete all phrases, the one begun first and the others after it."""
        left = [(len(phrase), size) for phrase, size in zip(self.phrases, matched, strict=True) if size < len(phrase)]
        return sum(length for length, _ in left) - max((size for _, size in left), default=0)

    def wanted(self, matched: Matched) -> list[int]:
        """The tokens that go on with a phrase."""
        return [p[size] for p, size in zip(self.phrases, matched, strict=True) if size < len(p)]


def _match(phrase: Phrase, size: int, token: int) -> int:
    """The longest beginning of the phrase that an output ends in which ended in `size` tokens of it before."""
    seen = (*phrase[:size], token)
    return next(n for n in range(len(seen), -1, -1) if seen[len(seen) - n :] == phrase[:n])


@dataclass(frozen=True)
class Beam:
    """An unfinished output; `row` is where its state is in the last step."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    total: float
    matched: Matched
    row: int


@dataclass
class Sentence:
    """One search: its beams, and the hypotheses found, best first."""

    phrases: Phrases
    forced: list[int]
    limit: int
    divisors: list[float]
    alive: list[Beam]
    found: list[Hypothesis] = field(default_factory=list)


@torch.no_grad()
def constrained_search(
    step: Step,
    state: State,
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
    """As `beam_search`, with the `phrases` that each sentence's outputs must contain."""
    check_beam(beam, n_best)
    sentences = _sentences(limits, phrases, prefix, end, penalty)
    going = list(sentences)
    for place in range(int(limits.max()) if len(limits) else 0):
        last = [one.tokens[-1] if one.tokens else start for sentence in going for one in sentence.alive]
        log_probs = log_probabilities(step(torch.tensor(last, device=limits.device), state))
        for sentence, candidates in zip(going, _candidates(log_probs, going, place, end, beam, never), strict=True):
            _advance(sentence, candidates, place, end, beam, penalty)
        going = [sentence for sentence in going if sentence.alive]
        if not going:
            break
        state = state.select(torch.tensor([b.row for s in going for b in s.alive], device=limits.device))
    return [sentence.found[:n_best] for sentence in sentences]


def _sentences(
    limits: Tensor,
    phrases: Sequence[Sequence[Sequence[int]]],
    prefix: Sequence[Sequence[int]] | None,
    end: int,
    penalty: Penalty,
) -> list[Sentence]:
    if len(phrases) != len(limits):
        raise SettingError(f"phrases for {len(phrases)} of {len(limits)} sentences: give each its own, or none")
    if len(limits) == 0:
        return []
    forced = forced_tokens(limits, prefix, end)
    divisors = best_divisors(penalty, limits, forced.shape[1])
    sentences = []
    for number, (row, limit, these) in enumerate(zip(forced.tolist(), limits.tolist(), phrases, strict=True)):
        asked = Phrases(tuple(tuple(phrase) for phrase in these if phrase))
        begun = [token for token in row[: limit - 1] if token != FREE]
        lacking = asked.lacking(reduce(asked.after, begun, asked.nothing))
        if len(begun) + lacking >= limit:
            raise SettingError(
                f"sentence {number}: {len(begun) + lacking} tokens that must occur, and </s>, are over the length limit of {limit}"
            )
        first = Beam((), (), 0.0, asked.nothing, number)
        sentences.append(Sentence(asked, row[:limit], limit, divisors[number].tolist(), [first]))
    return sentences


def _candidates(
    log_probs: Tensor, going: list[Sentence], place: int, end: int, beam: int, never: Sequence[int]
) -> Iterator[list[Beam]]:
    """The continuations of each sentence's beams that are worth a look, most probable first."""
    values, tokens = top(without(log_probs, never), min(2 * beam, log_probs.shape[1]))
    likely = list(zip(values.tolist(), tokens.tolist(), strict=True))
    row = 0
    for sentence in going:
        found: list[Beam] = []
        for one in sentence.alive:
            offered = dict(zip(likely[row][1], likely[row][0], strict=True))
            extra = [*sentence.phrases.wanted(one.matched), end, max(sentence.forced[place], 0)]
            offered |= {token: float(log_probs[row, token]) for token in extra if token not in offered}
            found += _continuations(sentence, one, offered, place, end, row)
            row += 1
        yield sorted(found, key=lambda one: -one.total)


def _continuations(
    sentence: Sentence, one: Beam, offered: dict[int, float], place: int, end: int, row: int
) -> Iterator[Beam]:
    """Those that leave all that is lacking its place."""
    phrases, must = sentence.phrases, sentence.forced[place]
    left = sentence.limit - place - 2  # places after this one, but for `</s>`
    for token, log_prob in offered.items():
        matched = one.matched if token == end else phrases.after(one.matched, token)
        fits = phrases.lacking(matched) <= (0 if token == end else left)
        if log_prob > -torch.inf and (token == must if must != FREE else fits):
            yield Beam((*one.tokens, token), (*one.log_probs, log_prob), one.total + log_prob, matched, row)


def _advance(sentence: Sentence, candidates: list[Beam], place: int, end: int, beam: int, penalty: Penalty) -> None:
    """Keep the best that ended, and go on with the best of the others while one of them could still be better."""
    length = place + 1
    ended = [one for one in candidates if one.tokens[-1] == end]
    found = [
        Hypothesis(list(one.tokens[:-1]), one.total / penalty(float(length)), one.total, list(one.log_probs))
        for one in ended
    ]
    sentence.found = sorted([*sentence.found, *found], key=lambda one: -one.score)[:beam]
    sentence.alive = _shared_out([one for one in candidates if one.tokens[-1] != end], sentence.phrases, beam)
    full = len(sentence.found) == beam
    best = max((one.total for one in sentence.alive), default=-torch.inf)
    divisor = sentence.divisors[length]
    if not divisor or (full and best / divisor <= sentence.found[-1].score):
        sentence.alive = []


def _shared_out(candidates: list[Beam], phrases: Phrases, beam: int) -> list[Beam]:
    """The best of each bank in turns, where a bank are those that lack equally much."""
    banks: dict[int, list[Beam]] = {}
    for one in candidates:
        banks.setdefault(phrases.lacking(one.matched), []).append(one)
    ranked = [(rank, lacking, one) for lacking in sorted(banks) for rank, one in enumerate(banks[lacking])]
    chosen = sorted(ranked, key=lambda entry: entry[:2])[:beam]
    return sorted((one for _, _, one in chosen), key=lambda one: -one.total)
