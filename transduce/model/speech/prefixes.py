"""CTC in a search: the probability that the frames spell a text that begins with a prefix (Watanabe et al. 2017).

Per prefix there are two sums over alignments up to each frame: those that end in the prefix's last label, and those that end in a
blank. Both are recursions over frames; as r(t) = p(t) (r(t-1) + x(t)), each is one cumulative sum of logarithms. The scores of all
continuations are one product of matrices, of the prefixes of a sentence and its frames.

Axes: B sentences, W prefixes of each (beams), R = B W rows, T frames, V classes without the blank.
"""

from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import pad

from transduce.model.shapes import Float, Int
from transduce.model.speech.ctc import NEVER


@dataclass(frozen=True)
class Prefixes:
    """The prefixes of a search, one per row; each sentence has equally many, in rows next to each other."""

    classes: Float[Tensor, "B T V"]  # log-probabilities of the frames of each sentence
    probabilities: Float[Tensor, "B T V"]  # the same without the logarithm
    blanks: Float[Tensor, "B T"]
    # Alignments of exactly the prefix, up to and with each frame: those that end in its last label, and in a blank.
    in_label: Float[Tensor, "R T"]
    in_blank: Float[Tensor, "R T"]
    last: Int[Tensor, "R"]  # label; -1 before the first
    score: Float[Tensor, "R"]  # log-probability of texts that begin with the prefix
    scores: Float[Tensor, "R V"]  # the same for each continuation; `</s>` means the text ends with the prefix

    @staticmethod
    def at_start(log_probs: Float[Tensor, "B T C"], frames: Int[Tensor, "B"], end: int) -> "Prefixes":
        """The empty prefix of each sentence; the blank is the last class."""
        beyond = torch.arange(log_probs.shape[1], device=log_probs.device) >= frames[:, None]
        log_probs = log_probs.double()
        classes = log_probs[..., :-1].masked_fill(beyond[..., None], NEVER)
        blanks = log_probs[..., -1].masked_fill(beyond, 0.0)
        nothing, start = torch.full_like(blanks, NEVER), blanks.new_zeros(len(blanks))
        last = torch.full_like(frames, -1)
        at_start = Prefixes(classes, classes.exp(), blanks, nothing, blanks.cumsum(1), last, start, classes[:, 0])
        return replace(at_start, scores=at_start._continued(end))

    @property
    def beams(self) -> int:
        """Rows of each sentence."""
        return max(1, len(self.last) // max(1, len(self.classes)))

    @property
    def sentence(self) -> Int[Tensor, "R"]:
        return torch.arange(len(self.last), device=self.last.device) // self.beams

    def select(self, rows: Int[Tensor, "N"]) -> "Prefixes":
        names = dict.fromkeys(_PER_ROW, rows)
        kept = _sentences((rows // self.beams).tolist())
        if kept != list(range(len(self.classes))):  # otherwise beams have only changed places
            names |= dict.fromkeys(_PER_SENTENCE, rows.new_tensor(kept, dtype=torch.long))
        return replace(self, **{name: getattr(self, name).index_select(0, chosen) for name, chosen in names.items()})

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
        """The score of each continuation: it begins at some frame, after an alignment of exactly the prefix.

        The sum over frames is computed without logarithms, relative to the most probable frame. It leaves out what is e^700 times
        less probable, which is nothing beside the probability of a class at that frame.
        """
        first = torch.where(self.last < 0, 0.0, NEVER)[:, None]
        either = torch.logaddexp(self.in_label, self.in_blank)
        whole = either[:, -1]
        either, in_blank = (torch.cat([first, sums[:, :-1]], 1) for sums in (either, self.in_blank))
        most = either.amax(1, keepdim=True)
        by_sentence = (either - most).exp().unflatten(0, (-1, self.beams))
        scores = (by_sentence @ self.probabilities).flatten(0, 1).log().clamp(min=NEVER) + most
        again = self.last.clamp(min=0)
        repeated = (in_blank + self.classes[self.sentence, :, again]).logsumexp(1)
        scores = scores.scatter(1, again[:, None], torch.where(self.last < 0, scores[:, 0], repeated)[:, None])
        return scores.index_copy(1, again.new_tensor([end]), whole[:, None])


_PER_ROW = ("in_label", "in_blank", "last", "score", "scores")
_PER_SENTENCE = ("classes", "probabilities", "blanks")


def _sentences(of_rows: list[int]) -> list[int]:
    """The sentences of these rows if each has equally many rows, next to each other; otherwise one for each row."""
    runs = [(sentence, len(list(run))) for sentence, run in groupby(of_rows)]
    return [sentence for sentence, _ in runs] if len({count for _, count in runs}) == 1 else of_rows


def _later(sums: Float[Tensor, "R T"], first: float) -> Float[Tensor, "R T"]:
    """What was true one frame earlier."""
    return pad(sums[:, :-1], (1, 0), value=first)


def _recursion(emitted: Float[Tensor, "R T"], begun: Float[Tensor, "R T"]) -> Float[Tensor, "R T"]:
    """r(t) = p(t) (r(t-1) + x(t)) in logarithms, where x is `begun`."""
    product = emitted.cumsum(1)
    return product + (begun - _later(product, 0.0)).logcumsumexp(1)
