"""CTC in a search: the probability that the frames spell a text that begins with a prefix (Watanabe et al. 2017).

Per prefix there are two sums over alignments up to each frame: those that end in the prefix's last label, and those that end in a
blank. Both are recursions over frames; as r(t) = p(t) (r(t-1) + x(t)), each is one cumulative sum of logarithms.

Axes: R rows (prefixes), B sentences, T frames, V classes without the blank.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from transduce.model.shapes import Float, Int
from transduce.model.speech.ctc import NEVER


@dataclass(frozen=True)
class Prefixes:
    """The prefixes of a search, one per row."""

    classes: Float[Tensor, "B T V"]  # log-probabilities of the frames of each sentence
    blanks: Float[Tensor, "B T"]
    sentence: Int[Tensor, "R"]
    in_label: Float[
        Tensor, "R T"
    ]  # alignments of exactly the prefix, up to and with each frame, that end in its last label
    in_blank: Float[Tensor, "R T"]
    last: Int[Tensor, "R"]  # label; -1 before the first
    score: Float[Tensor, "R"]  # log-probability of texts that begin with the prefix
    scores: Float[Tensor, "R V"]  # the same for each continuation; that of the end is the prefix by itself

    @staticmethod
    def at_start(log_probs: Float[Tensor, "B T C"], frames: Int[Tensor, "B"], end: int) -> "Prefixes":
        """The empty prefix of each sentence; the blank is the last class."""
        beyond = torch.arange(log_probs.shape[1], device=log_probs.device) >= frames[:, None]
        log_probs = log_probs.double()
        classes = log_probs[..., :-1].masked_fill(beyond[..., None], NEVER)
        blanks = log_probs[..., -1].masked_fill(beyond, 0.0)
        rows = torch.arange(len(classes), device=classes.device)
        nothing, start = torch.full_like(blanks, NEVER), blanks.new_zeros(len(blanks))
        at_start = Prefixes(classes, blanks, rows, nothing, blanks.cumsum(1), rows * 0 - 1, start, classes[:, 0])
        return replace(at_start, scores=at_start._continued(end))

    def select(self, rows: Int[Tensor, "N"]) -> "Prefixes":
        changed = {name: getattr(self, name).index_select(0, rows) for name in _PER_ROW}
        return replace(self, **changed)

    def continuations(self) -> Float[Tensor, "R V"]:
        """The log-probability of each next label, and of the end, given the prefix."""
        return self.scores - self.score[:, None]

    def extended(self, labels: Int[Tensor, "R"], end: int) -> "Prefixes":
        """Each prefix with one more label."""
        score = self.scores.gather(1, labels[:, None])[:, 0]
        emitted = self.classes[self.sentence, :, labels]
        begun = _later(self._before(labels), NEVER)
        begun[:, 0] = torch.where(self.last < 0, 0.0, NEVER)
        in_label = _recursion(emitted, begun)
        in_blank = _recursion(self.blanks[self.sentence], _later(in_label, NEVER))
        longer = replace(self, in_label=in_label, in_blank=in_blank, last=labels, score=score)
        return replace(longer, scores=longer._continued(end))

    def _before(self, labels: Int[Tensor, "R"]) -> Float[Tensor, "R T"]:
        """Alignments after which a label begins anew; the last label itself must first be followed by a blank."""
        either = torch.logaddexp(self.in_label, self.in_blank)
        return torch.where((labels == self.last)[:, None], self.in_blank, either)

    def _continued(self, end: int) -> Float[Tensor, "R V"]:
        """The score of each continuation: it begins at some frame, after an alignment of exactly the prefix."""
        first = torch.where(self.last < 0, 0.0, NEVER)[:, None]
        either = torch.logaddexp(self.in_label, self.in_blank)
        whole = either[:, -1]
        either, in_blank = (torch.cat([first, sums[:, :-1]], 1) for sums in (either, self.in_blank))
        scores = (either[..., None] + self.classes[self.sentence]).logsumexp(1)
        again = self.last.clamp(min=0)
        repeated = (in_blank + self.classes[self.sentence, :, again]).logsumexp(1)
        scores = scores.scatter(1, again[:, None], torch.where(self.last < 0, scores[:, 0], repeated)[:, None])
        return scores.index_copy(1, again.new_tensor([end]), whole[:, None])


_PER_ROW = ("sentence", "in_label", "in_blank", "last", "score", "scores")


def _later(sums: Float[Tensor, "R T"], first: float) -> Float[Tensor, "R T"]:
    """What was true one frame earlier."""
    return pad(sums[:, :-1], (1, 0), value=first)


def _recursion(emitted: Float[Tensor, "R T"], begun: Float[Tensor, "R T"]) -> Float[Tensor, "R T"]:
    """r(t) = p(t) (r(t-1) + x(t)) in logarithms, where x is `begun`."""
    product = emitted.cumsum(1)
    return product + (begun - _later(product, 0.0)).logcumsumexp(1)
