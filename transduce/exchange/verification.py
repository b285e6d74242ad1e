"""Verify an export: compare ids, logits and texts with ours, on real sentences, in the target runtime.

Knows no format: a runtime is anything that answers as `Runtime` does, and ours is one of them.
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
# Float32 through some dozen layers, summed in another order, differs by 1e-5 and less; a wrong weight by 0.01 and more.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Answer:
    """The best output for a line."""

    text: str
    tokens: list[int]  # without `</s>`


class Runtime(Protocol):
    """A model with its vocabularies, as its users would call it."""

    def ids(self, lines: Sequence[str]) -> list[list[int]]:
        """What each line is to the model, `</s>` last."""
        ...

    def logits(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Tensor]:
        """[W, V] for each pair: what is predicted at each place of the target, over every id but `<pad>`."""
        ...

    def search(self, lines: Sequence[str], limit: int, beam: int, alpha: float) -> list[Answer]:
        """The best output for each line of at most `limit` tokens, `</s>` counted; scores are divided by n^alpha."""
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
        """As the search scores it."""
        total = sum(self.translator.engines.scoring().score(self.ids([line]), [[*tokens, EOS]])[0])
        return float(total / (len(tokens) + 1) ** alpha)


def answers(found: list[list[Hypothesis]], vocabulary: Vocabulary) -> list[Answer]:
    """The best hypotheses of our search as answers."""
    tokens = [list(hypotheses[0].tokens) if hypotheses else [] for hypotheses in found]
    return [Answer(*pair) for pair in zip(vocabulary.decode(tokens), tokens, strict=True)]


@dataclass(frozen=True)
class Verified:
    """How near an exported model is to ours."""

    lines: int
    difference: float  # the largest between two logits
    greedy: int  # lines with the same text
    beam: int
    unended_greedy: int  # outputs that ran into the length limit, where runtimes may differ
    unended_beam: int

    def summary(self) -> str:
        return (
            f"{self.lines} sentences: largest difference of a logit {self.difference:.1e}; "
            f"same text greedily: {self._compared(self.greedy, self.unended_greedy)}; "
            f"same text with beam {BEAM}: {self._compared(self.beam, self.unended_beam)}"
        )

    def _compared(self, same: int, unended: int) -> str:
        compared, whose = self.lines - unended, "its output" if unended == 1 else "their outputs"
        others, verb = compared - same, "other is" if compared - same == 1 else "others are"
        asides = [f"{others} {verb} as good"] if others else []
        asides += [f"{unended} left out: {whose} ran into the length limit"] if unended else []
        return f"{same} of {compared} compared" + (f" ({'; '.join(asides)})" if asides else "")


def verify(ours: Ours, theirs: Runtime, lines: Sequence[str], alpha: float, extra: int) -> Verified:
    """Compare both on these lines; what does not match is an error that says where."""
    sources = ours.ids(lines)
    for line, expected, found in zip(lines, sources, theirs.ids(lines), strict=True):
        if expected != found:
            raise RunError(f"the tokens of {line!r} are {found} there and {expected} here")
    limit = max(map(len, sources)) + extra
    greedy = ours.search(lines, limit, 1, alpha)
    targets = [[*answer.tokens, EOS] for answer in greedy]
    difference = _largest_difference(ours.logits(sources, targets), theirs.logits(sources, targets))
    if not difference <= TOLERANCE:
        raise RunError(f"logits differ by {difference:.1e}, and more than {TOLERANCE:.0e} is no rounding")
    comparing = _Texts(ours, lines, limit, alpha)
    same_greedy, unended_greedy = comparing.count(greedy, theirs.search(lines, limit, 1, alpha), "greedy")
    wide = ours.search(lines, limit, BEAM, alpha)
    same_beam, unended_beam = comparing.count(wide, theirs.search(lines, limit, BEAM, alpha), f"beam {BEAM}")
    return Verified(len(lines), difference, same_greedy, same_beam, unended_greedy, unended_beam)


def _largest_difference(ours: list[Tensor], theirs: list[Tensor]) -> float:
    for one, other in zip(ours, theirs, strict=True):
        if one.shape != other.shape:
            raise RunError(f"logits are {list(other.shape)} there and {list(one.shape)} here")
    return float(torch.stack([(one - other).abs().max() for one, other in zip(ours, theirs, strict=True)]).max())


class _Texts:
    """Counts equal texts; a text that differs must be one that our own model finds as good."""

    def __init__(self, ours: Ours, lines: Sequence[str], limit: int, alpha: float) -> None:
        self.ours, self.lines, self.limit, self.alpha = ours, lines, limit, alpha

    def count(self, here: list[Answer], there: list[Answer], how: str) -> tuple[int, int]:
        """How many are the same, and how many are not compared: they ran into the length limit."""
        same = unended = 0
        for line, mine, theirs in zip(self.lines, here, there, strict=True):
            if max(len(mine.tokens), len(theirs.tokens)) >= self.limit - 1:
                unended += 1
            elif _same(mine, theirs):
                same += 1
            elif not self._tie(line, mine, theirs):
                raise RunError(
                    f"{how}: {line!r} becomes {theirs.text!r} there and {mine.text!r} here, though logits agree "
                    "(searches may end otherwise for a model that has hardly learned: train it further)"
                )
        return same, unended

    def _tie(self, line: str, mine: Answer, theirs: Answer) -> bool:
        """Outputs that our model scores alike: rounding decides which of them is the best."""
        if mine.tokens == theirs.tokens:
            return False
        scores = [self.ours.score(line, answer.tokens, self.alpha) for answer in (mine, theirs)]
        return abs(scores[0] - scores[1]) <= TOLERANCE


def _same(mine: Answer, theirs: Answer) -> bool:
    """Some leave `<unk>` out of a text where we mark it, cut off blanks at its ends, and keep line breaks."""
    texts = [answer.text.replace("\n", " ").strip() for answer in (mine, theirs)]
    return mine.tokens == theirs.tokens and (UNKNOWN in mine.tokens or texts[0] == texts[1])
