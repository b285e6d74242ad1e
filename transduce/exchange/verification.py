"""Verify an export: compare ids, logits and texts with ours, on real sentences, in the target runtime.

Knows no formats: a runtime is anything with the methods of `Runtime`, and our own translator is one of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from transduce.errors import RunError
from transduce.model import Tokens
from transduce.search import Hypothesis, PowerPenalty
from transduce.search.beam import beam_search
from transduce.text import EOS, UNKNOWN, Vocabulary
from transduce.translator import Translator

Ids = Sequence[int]
BEAM = 4
# Summing float32 in another order changes logits by 1e-5 at most after a dozen layers; a wrong weight, by at least 0.01.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Answer:
    """The best output for a line."""

    text: str
    tokens: list[int]  # without `</s>`


class Runtime(Protocol):
    """A model with its vocabularies, run as its users would."""

    def ids(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line, `</s>` last."""
        ...

    def logits(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Tensor]:
        """The logits [W, V] of each pair: predictions at each target position, over every id except `<pad>`."""
        ...

    def search(self, lines: Sequence[str], limit: int, beam: int, alpha: float) -> list[Answer]:
        """The best output of each line, of at most `limit` tokens, counting `</s>`; scores are divided by n^alpha."""
        ...


class Ours:
    """Our own translator as a runtime."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    def ids(self, lines: Sequence[str]) -> list[list[int]]:
        return self.translator.vocabularies.source.encode(lines)

    @torch.inference_mode()
    def logits(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Tensor]:
        both, model = self.translator.vocabularies, self.translator.model.eval()
        source = Tokens.padded(sources, both.source.pad)
        target = Tokens.padded([[both.target.pad, *ids[:-1]] for ids in targets], both.target.pad)
        found = model.project(model.decode(target, model.encode(source)))
        return [row[: len(ids)] for row, ids in zip(found, targets, strict=True)]

    @torch.inference_mode()
    def search(self, lines: Sequence[str], limit: int, beam: int, alpha: float) -> list[Answer]:
        both, model = self.translator.vocabularies, self.translator.model.eval()
        never = () if self.translator.config.search.allow_unknown else (UNKNOWN,)
        state = model.begin(model.encode(Tokens.padded(self.ids(lines), both.source.pad)))
        found = beam_search(
            model.step, state, start=both.target.pad, end=EOS, limits=torch.full((len(lines),), limit),
            beam=beam, penalty=PowerPenalty(alpha), never=never,
        )  # fmt: skip
        return answers(found, both.target)

    def score(self, line: str, tokens: Ids, alpha: float) -> float:
        """The score of these tokens, as the search computes it."""
        total = sum(self.translator.engines.scoring().score(self.ids([line]), [[*tokens, EOS]])[0])
        return float(total / (len(tokens) + 1) ** alpha)


def answers(found: list[list[Hypothesis]], vocabulary: Vocabulary) -> list[Answer]:
    """Convert the best hypotheses of our search to answers."""
    tokens = [list(hypotheses[0].tokens) if hypotheses else [] for hypotheses in found]
    return [Answer(*pair) for pair in zip(vocabulary.decode(tokens), tokens, strict=True)]


@dataclass(frozen=True)
class Verified:
    """How well an exported model agrees with ours."""

    lines: int
    difference: float  # the largest difference between logits
    greedy: int  # lines with the same text
    beam: int
    unended_greedy: int  # outputs that reached the length limit, where runtimes may differ
    unended_beam: int

    def summary(self) -> str:
        return (
            f"{self.lines} sentences: largest difference of logits {self.difference:.1e}; "
            f"same text with greedy search: {self._compared(self.greedy, self.unended_greedy)}; "
            f"same text with beam {BEAM}: {self._compared(self.beam, self.unended_beam)}"
        )

    def _compared(self, same: int, unended: int) -> str:
        compared = self.lines - unended
        others = compared - same
        asides = [f"{others} {'differs but scores' if others == 1 else 'differ but score'} the same"] if others else []
        asides += [f"{unended} not compared: reached the length limit"] if unended else []
        return f"{same} of {compared} compared" + (f" ({'; '.join(asides)})" if asides else "")


def verify(ours: Ours, theirs: Runtime, lines: Sequence[str], alpha: float, extra: int) -> Verified:
    """Compare both runtimes on these lines; a mismatch raises an error that says where it is."""
    sources = ours.ids(lines)
    for line, expected, found in zip(lines, sources, theirs.ids(lines), strict=True):
        if expected != found:
            raise RunError(f"the tokens of {line!r} are {found} in the export and {expected} in the model")
    limit = max(map(len, sources)) + extra
    greedy = ours.search(lines, limit, 1, alpha)
    targets = [[*answer.tokens, EOS] for answer in greedy]
    difference = _largest_difference(ours.logits(sources, targets), theirs.logits(sources, targets))
    if not difference <= TOLERANCE:
        raise RunError(f"logits differ by {difference:.1e}, which is more than rounding can explain ({TOLERANCE:.0e})")
    comparing = _Texts(ours, lines, limit, alpha)
    same_greedy, unended_greedy = comparing.count(greedy, theirs.search(lines, limit, 1, alpha), "greedy")
    wide = ours.search(lines, limit, BEAM, alpha)
    same_beam, unended_beam = comparing.count(wide, theirs.search(lines, limit, BEAM, alpha), f"beam {BEAM}")
    return Verified(len(lines), difference, same_greedy, same_beam, unended_greedy, unended_beam)


def _largest_difference(ours: list[Tensor], theirs: list[Tensor]) -> float:
    for one, other in zip(ours, theirs, strict=True):
        if one.shape != other.shape:
            raise RunError(f"logits are {list(other.shape)} in the export and {list(one.shape)} in the model")
    return float(torch.stack([(one - other).abs().max() for one, other in zip(ours, theirs, strict=True)]).max())


class _Texts:
    """Counts equal texts; a different text must have the same score in our model."""

    def __init__(self, ours: Ours, lines: Sequence[str], limit: int, alpha: float) -> None:
        self.ours, self.lines, self.limit, self.alpha = ours, lines, limit, alpha

    def count(self, here: list[Answer], there: list[Answer], how: str) -> tuple[int, int]:
        """How many texts are equal, and how many are not compared because they reached the length limit."""
        same = unended = 0
        for line, mine, theirs in zip(self.lines, here, there, strict=True):
            if max(len(mine.tokens), len(theirs.tokens)) >= self.limit - 1:
                unended += 1
            elif _same(mine, theirs):
                same += 1
            elif not self._tie(line, mine, theirs):
                raise RunError(
                    f"{how}: {line!r} becomes {theirs.text!r} in the export and {mine.text!r} in the model, although logits agree "
                    "(searches can differ for a model that has hardly learned: train it further)"
                )
        return same, unended

    def _tie(self, line: str, mine: Answer, theirs: Answer) -> bool:
        """Whether our model gives both outputs the same score, so that rounding decides which is best."""
        if mine.tokens == theirs.tokens:
            return False
        scores = [self.ours.score(line, answer.tokens, self.alpha) for answer in (mine, theirs)]
        return abs(scores[0] - scores[1]) <= TOLERANCE


def _same(mine: Answer, theirs: Answer) -> bool:
    """Equal tokens and text; runtimes may omit `<unk>`, strip spaces at the ends, and keep line breaks."""
    texts = [answer.text.replace("\n", " ").strip() for answer in (mine, theirs)]
    return mine.tokens == theirs.tokens and (UNKNOWN in mine.tokens or texts[0] == texts[1])
