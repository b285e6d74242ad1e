"""Whether two engines agree, with the margin in sight.

Different processors add numbers in different orders. Where two outputs are almost equally good, rounding then decides which
one wins. So two engines agree on a line if their outputs are equal, or if one reference (the plain PyTorch engine) scores both
outputs alike. The lines that differ are counted and bounded, and every score that an engine reports must be the reference's
score for the same tokens. A wrong engine still fails: tests/test_agreement.py tries several.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from transduce.search import Hypothesis, length_penalty
from transduce.text import EOS
from transduce.translator import Output, SearchRequest, Translation, Translator
from transduce.translator.torch_engine import TorchEngine

Ids = Sequence[int]
TOKEN = 1e-4  # tolerance for the log-probability of one token; float32 sums in another order differ by 1e-5 or less
SCORE = 1e-3  # tolerance for the score of an output; a wrong weight changes it by 0.01 or more


@dataclass(frozen=True)
class Agreement:
    """How many lines were compared, and how many of them differ."""

    lines: int
    ties: int  # outputs differ, but the reference scores them alike
    misses: int  # outputs differ, and one search found better ones than the other


class Reference:
    """The plain PyTorch model. It scores the output of any engine the way the request ranks outputs."""

    def __init__(self, engine: TorchEngine, request: SearchRequest) -> None:
        self.engine, self.greedy = engine, request.beam == 1
        self.penalty = length_penalty(request.length_penalty, request.alpha)

    def log_probabilities(self, sources: Sequence[Ids], outputs: Sequence[Ids]) -> list[list[float]]:
        """Of each token of each output, `</s>` last."""
        return self.engine.score(sources, [[*tokens, EOS] for tokens in outputs])

    def finds_as_good(self, sources: Sequence[Ids], ones: Sequence[Ids], others: Sequence[Ids]) -> list[bool]:
        """For each source, whether its two outputs, which differ, are within the tolerance of each other."""
        figures = self.log_probabilities(sources, ones), self.log_probabilities(sources, others)
        if self.greedy:
            forks = map(_fork, ones, others)
            return [abs(a[n] - b[n]) <= TOKEN for n, a, b in zip(forks, *figures, strict=True)]
        return [abs(self._score(a) - self._score(b)) <= SCORE for a, b in zip(*figures, strict=True)]

    def assert_figures(
        self, sources: Sequence[Ids], tokens: Sequence[Ids], given: Sequence[Output | Hypothesis]
    ) -> None:
        """Check that the scores an engine reports are the reference's scores for the same tokens."""
        for one, true in zip(given, self.log_probabilities(sources, tokens), strict=True):
            assert one.token_log_probabilities in ([], pytest.approx(true, abs=TOKEN))
            assert one.log_probability == pytest.approx(sum(true), abs=SCORE)
            assert one.score == pytest.approx(self._score(true), abs=TOKEN)

    def _score(self, log_probabilities: list[float]) -> float:
        return float(sum(log_probabilities) / self.penalty(len(log_probabilities)))


def _fork(one: Ids, other: Ids) -> int:
    """The first place where two outputs differ. Greedy search decides there, without knowing what comes later."""
    ended = zip([*one, EOS], [*other, EOS], strict=False)
    return next(n for n, (here, there) in enumerate(ended) if here != there)


def compare(
    reference: Reference, sources: Sequence[Ids], found: Sequence[Sequence[Ids]], expected: Sequence[Sequence[Ids]]
) -> Agreement:
    """Compare the lists of outputs line by line, each output with the one of the same rank."""
    differing = [
        (line, list(one), list(other))
        for line, pairs in enumerate(zip(found, expected, strict=True))
        for one, other in zip(*pairs, strict=True)
        if list(one) != list(other)
    ]
    lines, ones, others = zip(*differing, strict=True) if differing else ((), (), ())
    as_good = reference.finds_as_good([sources[line] for line in lines], ones, others)
    missed = {line for line, good in zip(lines, as_good, strict=True) if not good}
    return Agreement(len(found), ties=len(set(lines) - missed), misses=len(missed))


def assert_agree(
    reference: Reference,
    sources: Sequence[Ids],
    found: Sequence[Sequence[Ids]],
    expected: Sequence[Sequence[Ids]],
    *,
    ties: float = 0.1,
    misses: float = 0.0,
) -> None:
    """Fail if more than these shares of the lines are ties or misses. A single tie is always allowed."""
    agreement = compare(reference, sources, found, expected)
    assert agreement.ties <= max(1, ties * agreement.lines), agreement
    assert agreement.misses <= misses * agreement.lines, agreement


def assert_hypotheses_agree(
    engine: TorchEngine,
    request: SearchRequest,
    sources: Sequence[Ids],
    found: Sequence[Sequence[Hypothesis]],
    expected: Sequence[Sequence[Hypothesis]],
    **shares: float,
) -> None:
    """Compare the hypotheses of two engines, and check the scores that the first one reports."""
    reference = Reference(engine, request)
    tokens = [[[list(one.tokens) for one in line] for line in lines] for lines in (found, expected)]
    assert_agree(reference, sources, *tokens, **shares)
    given = [(source, one) for source, line in zip(sources, found, strict=True) for one in line]
    reference.assert_figures(
        [source for source, _ in given], [one.tokens for _, one in given], [one for _, one in given]
    )


def assert_translations_agree(
    translator: Translator,
    request: SearchRequest,
    found: Sequence[Translation],
    expected: Sequence[Translation],
    **shares: float,
) -> None:
    """Compare the translations of two translators. The PyTorch engine of `translator` is the reference."""
    for one, other in zip(found, expected, strict=True):
        assert (one.source, one.source_tokens, one.cut, one.unknown) == (
            other.source, other.source_tokens, other.cut, other.unknown,
        )  # fmt: skip
    reference, names = Reference(translator.engines.torch, request), _Names(translator)
    searched = [n for n, one in enumerate(found) if one.outputs or expected[n].outputs]
    sources = [translator.source_ids(found[n].source) for n in searched]
    ours, theirs = ([names.ids(lines[n]) for n in searched] for lines in (found, expected))
    assert_agree(reference, sources, ours, theirs, **shares)
    outputs, tokens = [o for n in searched for o in found[n].outputs], [ids for line in ours for ids in line]
    assert [output.text for output in outputs] == translator.vocabularies.target.decode(tokens)
    of = [source for source, line in zip(sources, ours, strict=True) for _ in line]
    reference.assert_figures(of, tokens, outputs)


def assert_texts_agree(
    translator: Translator,
    request: SearchRequest,
    lines: Sequence[str],
    found: Sequence[str],
    expected: Sequence[str],
    **shares: float,
) -> None:
    """Compare texts from any program, by their tokens in the translator's vocabulary."""
    both = translator.vocabularies
    sources = [translator.source_ids(line) for line in lines]
    ours, theirs = ([[ids[:-1]] for ids in both.target.encode(texts)] for texts in (found, expected))
    same = [one == other for one, other in zip(found, expected, strict=True)]
    ours = [other if equal else one for equal, one, other in zip(same, ours, theirs, strict=True)]
    assert_agree(Reference(translator.engines.torch, request), sources, ours, theirs, **shares)


class _Names:
    """A vocabulary's pieces as ids."""

    def __init__(self, translator: Translator) -> None:
        target = translator.vocabularies.target
        self.numbers = {name: number for number, name in enumerate(target.pieces(range(target.pad)))}

    def ids(self, translation: Translation) -> list[list[int]]:
        return [[self.numbers[token] for token in output.tokens] for output in translation.outputs]
