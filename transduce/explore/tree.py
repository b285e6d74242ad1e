"""The beam search of one sentence as a tree: what was ranked at each step, what was kept, what ended.

Is shown the real search (`transduce.search`) and decides nothing itself.
"""

from collections.abc import Callable, Sequence
from typing import Any

from transduce.search import Penalty
from transduce.search.lattice import Ranking

Node = dict[str, Any]
Names = Callable[[Sequence[int]], list[str]]  # ids to what they are called
START = "start"


class Tree:
    """An observer of a search over one sentence that remembers everything it is shown."""

    def __init__(self, end: int, penalty: Penalty, names: Names) -> None:
        self.end, self.penalty, self.names = end, penalty, names
        self.steps: list[dict[str, Any]] = []

    def observe(self, ranking: Ranking) -> None:
        self.steps.append(
            {
                "candidates": self._candidates(ranking),
                # The search goes on while the first can still exceed the second.
                "attainable": _score(ranking.attainable[0].item()),
                "worst_kept": _score(ranking.kept[0, -1].item()),
            }
        )

    def path(self, tokens: Sequence[int]) -> list[str]:
        """The nodes of an output, `</s>` last, from the first token on."""
        parent, nodes = START, []
        for step, token in zip(self.steps, [*tokens, self.end], strict=False):
            parent = next(n["id"] for n in step["candidates"] if n["parent"] == parent and n["token_id"] == token)
            nodes.append(parent)
        return nodes

    def _candidates(self, ranking: Ranking) -> list[Node]:
        found = ranking.found
        tokens, totals = found.tokens[0].tolist(), found.totals[0].tolist()
        goes_on = set(ranking.alive.slots[0].tolist())
        ends = ranking.kept.shape[1]  # only those ranked among the first become hypotheses
        return [
            {
                "id": f"{ranking.place}.{rank}",
                "parent": f"{ranking.place - 1}.{origin}" if ranking.place else START,
                "token": name,
                "token_id": token,
                "log_probability": round(log_prob, 4),
                "total": round(total, 4),
                "score": round(total / self.penalty(float(ranking.place + 1)), 4),
                "state": self._state(token, rank < ends, rank in goes_on),
            }
            for rank, (token, name, total, log_prob, origin) in enumerate(
                zip(
                    tokens,
                    self.names(tokens),
                    totals,
                    found.log_probs[0].tolist(),
                    found.origins[0].tolist(),
                    strict=True,
                )
            )
            if total > float("-inf")
        ]

    def _state(self, token: int, is_ranked_high: bool, goes_on: bool) -> str:
        if token == self.end:
            return "ended" if is_ranked_high else "dropped"
        return "kept" if goes_on else "dropped"


def _score(value: float) -> float | None:
    """As JSON can say it: before anything is found, and when nothing can follow, there is none."""
    return round(value, 4) if abs(value) != float("inf") else None
