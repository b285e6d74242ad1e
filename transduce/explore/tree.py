"""The beam search of one sentence as a tree: what was ranked, kept and finished at each step.

Observes the real search (`transduce.search`) and decides nothing itself.
"""

from collections.abc import Callable, Sequence
from typing import Any

from transduce.search import Penalty
from transduce.search.beam_state import Ranking

Node = dict[str, Any]
Names = Callable[[Sequence[int]], list[str]]  # ids to the names of their tokens
START = "start"


class Tree:
    """An observer that records the search over one sentence."""

    def __init__(self, end: int, penalty: Penalty, names: Names) -> None:
        self.end, self.penalty, self.names = end, penalty, names
        self.steps: list[dict[str, Any]] = []

    def observe(self, ranking: Ranking) -> None:
        self.steps.append(
            {
                "candidates": self._candidates(ranking),
                # The search continues while `attainable` can still exceed `worst_kept`.
                "attainable": _score(ranking.attainable[0].item()),
                "worst_kept": _score(ranking.kept[0, -1].item()),
            }
        )

    def path(self, tokens: Sequence[int]) -> list[str]:
        """The ids of the nodes of an output, from its first token to `</s>`."""
        parent, nodes = START, []
        for step, token in zip(self.steps, [*tokens, self.end], strict=False):
            parent = next(n["id"] for n in step["candidates"] if n["parent"] == parent and n["token_id"] == token)
            nodes.append(parent)
        return nodes

    def _candidates(self, ranking: Ranking) -> list[Node]:
        found, position = ranking.found, ranking.position
        ranks = [rank for rank, total in enumerate(found.totals[0].tolist()) if total > float("-inf")]
        tokens = found.tokens[0, ranks].tolist()
        return [
            {
                "id": f"{position}.{rank}",
                "parent": f"{position - 1}.{found.origins[0, rank].item()}" if position else START,
                "token": name,
                "token_id": token,
                "log_probability": round(found.log_probs[0, rank].item(), 4),
                "total": round(found.totals[0, rank].item(), 4),
                "score": round(found.totals[0, rank].item() / self.penalty(float(position + 1)), 4),
                "state": self._state(ranking, rank, token),
            }
            for rank, token, name in zip(ranks, tokens, self.names(tokens), strict=True)
        ]

    def _state(self, ranking: Ranking, rank: int, token: int) -> str:
        """`ended` if the candidate is a finished hypothesis within the beam, `kept` if the search extends it, else `dropped`."""
        if token == self.end:
            return "ended" if rank < ranking.kept.shape[1] else "dropped"
        return "kept" if rank in ranking.alive.ranks[0].tolist() else "dropped"


def _score(value: float) -> float | None:
    """A score for JSON; None if it is infinite, as before anything is found or when no candidate can be extended."""
    return round(value, 4) if abs(value) != float("inf") else None
