"""Verify the export of a language model: compare ids, logits and continuations with ours, on real texts.

Knows no formats: a runtime is anything with the methods of `TextRuntime`, and our own language model is one of them.

Axes: W positions, V vocabulary without the start symbol.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from transduce.errors import RunError
from transduce.exchange.verification import TOLERANCE, Ids
from transduce.model import Sequences
from transduce.search.streaming import continuations
from transduce.search.walk import greedy
from transduce.text import EOS, UNKNOWN
from transduce.translator.language_model import LanguageModel

CONTINUED = 32  # tokens by which each text is continued


class TextRuntime(Protocol):
    """A language model with its vocabulary, run as its users would. Ids are without the start symbol."""

    def ids(self, text: str) -> list[int]:
        """The ids of a text; `</s>` stands for each line break."""
        ...

    def logits(self, ids: Ids) -> Tensor:
        """The logits [W, V] of each of these ids, each predicted from the ids before it, and of the one that follows."""
        ...

    def continued(self, beginnings: Sequence[Ids], limit: int) -> list[list[int]]:
        """The most probable `limit` tokens after each beginning, one by one; fewer if the document ends."""
        ...


class OurText:
    """Our own language model as a runtime."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model

    def ids(self, text: str) -> list[int]:
        whole, unfinished = self.model.encode_prompt(text)
        return [*whole, *unfinished]

    @torch.inference_mode()
    def logits(self, ids: Ids) -> Tensor:
        tokens = self._started(ids)
        position = torch.arange(tokens.shape[1])[None]
        network = self.model.model
        return network.project(network.decode(Sequences(tokens, position, torch.ones_like(tokens)), None))[0]

    def continued(self, beginnings: Sequence[Ids], limit: int) -> list[list[int]]:
        ends = self.model.config.data.documents == "line"
        return [until_end(self._greedy(ids, limit), ends) for ids in beginnings]

    @torch.inference_mode()
    def _greedy(self, ids: Ids, limit: int) -> list[int]:
        network = self.model.model
        state = network.begin(None)
        logits = network.project(network.extend(self._started(ids), state)[:, -1])
        found = continuations(lambda newest: network.step(newest, state), logits, greedy, limit, never=(UNKNOWN,))
        return [int(token) for token in found]

    def _started(self, ids: Ids) -> Tensor:
        return torch.tensor([[self.model.vocabulary.pad, *ids]])


def until_end(ids: list[int], ends: bool) -> list[int]:
    """The ids before `</s>`, if `</s>` ends a document."""
    return ids[: ids.index(EOS)] if ends and EOS in ids else ids


@dataclass(frozen=True)
class VerifiedText:
    """How well an exported language model agrees with ours."""

    texts: int
    tokens: int
    difference: float  # the largest difference between logits
    nats_per_token: float
    exported_nats_per_token: float
    same: int  # texts that both continue with the same tokens
    tied: int  # texts that they continue differently, with tokens that are equally probable

    def summary(self) -> str:
        ties = f" ({self.tied} differ where two tokens are equally probable)" if self.tied else ""
        return (
            f"{self.texts} texts of {self.tokens:,} tokens: largest difference of logits {self.difference:.1e}; "
            f"{self.nats_per_token:.4f} nats per token in the model and {self.exported_nats_per_token:.4f} in the export; "
            f"same greedy continuation: {self.same} of {self.texts}{ties}"
        )


def verify_texts(ours: OurText, theirs: TextRuntime, texts: Sequence[str]) -> VerifiedText:
    """Compare both runtimes on these texts; a mismatch raises an error that says where it is."""
    context, rows = ours.model.context, []
    for text in texts:
        expected, found = ours.ids(text), theirs.ids(text)
        if expected != found:
            raise RunError(f"the tokens of {text[:80]!r} are {found} in the export and {expected} in the model")
        rows.append(expected[: context - 1])  # the start symbol is in the context, too
    compared = [_compare(ours, theirs, ids) for ids in rows]
    beginnings = [ids[: context // 2] for ids in rows]
    limit = min(CONTINUED, context - 1 - max(map(len, beginnings)))
    pairs = zip(ours.continued(beginnings, limit), theirs.continued(beginnings, limit), strict=True)
    same = sum(_same(ours, begun, *pair) for begun, pair in zip(beginnings, pairs, strict=True))
    tokens = sum(map(len, rows))
    return VerifiedText(
        texts=len(texts),
        tokens=tokens,
        difference=max(one.difference for one in compared),
        nats_per_token=sum(one.nats for one in compared) / tokens,
        exported_nats_per_token=sum(one.exported_nats for one in compared) / tokens,
        same=same,
        tied=len(texts) - same,
    )


@dataclass(frozen=True)
class _Compared:
    difference: float
    nats: float
    exported_nats: float


def _compare(ours: OurText, theirs: TextRuntime, ids: Ids) -> _Compared:
    """The logits of one text; only those of one text are in memory at a time."""
    here, there = ours.logits(ids), theirs.logits(ids)
    if here.shape != there.shape:
        raise RunError(f"logits are {list(there.shape)} in the export and {list(here.shape)} in the model")
    difference = float((here - there).abs().max())
    if not difference <= TOLERANCE:
        raise RunError(f"logits differ by {difference:.1e}, which is more than rounding can explain ({TOLERANCE:.0e})")
    labels = torch.tensor(ids, dtype=torch.long)
    nats = [float(cross_entropy(logits[: len(ids)], labels, reduction="sum")) for logits in (here, there)]
    return _Compared(difference, *nats)


def _same(ours: OurText, begun: Ids, mine: list[int], theirs: list[int]) -> bool:
    """Whether both continuations are equal; where they part, our model must find both tokens equally probable."""
    if mine == theirs:
        return True
    ends = [*mine, EOS], [*theirs, EOS]  # a shorter one has ended there
    at = next(n for n, (one, other) in enumerate(zip(*ends, strict=False)) if one != other)
    logits = ours.logits([*begun, *mine[:at]])[-1]
    if float((logits[ends[0][at]] - logits[ends[1][at]]).abs()) > TOLERANCE:
        raise RunError(
            f"token {at + 1} of a greedy continuation is {ends[1][at]} in the export and {ends[0][at]} in the model, "
            "although logits agree"
        )
    return False
