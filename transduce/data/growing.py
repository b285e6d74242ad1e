"""Steps that grow from epoch to epoch until they are whole: small ones first, when every step teaches much.

Within an epoch all are of one size, so that its plan is still a pure function of (lengths, seed, epoch).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from transduce.data.batches import Batch, Batching, Ids, Pairs
from transduce.data.pages import Paging


@dataclass(frozen=True)
class Growing:
    """A planner whose steps have a share of their tokens in the first `epochs` epochs."""

    planner: Batching | Paging
    epochs: int

    def plan(self, pairs: Pairs, epoch: int, passes: Sequence[Ids] = ()) -> list[list[Any]]:
        tokens = max(1, round(self.planner.tokens_per_batch * share(epoch, self.epochs)))
        return replace(self.planner, tokens_per_batch=tokens).plan(pairs, epoch, passes)

    def make(self, pairs: Pairs, batch: Any, source_pad: int, target_pad: int) -> Batch:
        return self.planner.make(pairs, batch, source_pad, target_pad)

    def pairs_of(self, batch: Any) -> Ids:
        return self.planner.pairs_of(batch)

    def places_of(self, batch: Any, pairs: Pairs) -> int:
        return self.planner.places_of(batch, pairs)


def share(epoch: int, epochs: int) -> float:
    """Of a whole step, for an epoch counted from 0: with `epochs` = 3 a quarter, a half, three quarters, and then all."""
    return min(1.0, (epoch + 1) / (epochs + 1))
