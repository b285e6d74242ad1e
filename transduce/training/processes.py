"""The processes that train one run together: what they exchange in every step, and what they agree on.

`Alone` is a single process, which exchanges nothing; `transduce/training/joined.py` connects several. Knows vectors and
results, but no model, data or run folder.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from transduce.checkpoint import Tensors

T = TypeVar("T")


class Processes(Protocol):
    """What the training loop asks of the processes of its run."""

    number: int
    count: int
    standing_by: int  # processes that were started, but do not train

    @property
    def waited(self) -> float:
        """Seconds spent in exchanges with the others so far."""

    def first(self, work: Callable[[], T]) -> T:
        """What `work` returns in process 0, which alone runs it; an error there is raised in all processes."""

    def share_out(self, blocks: int, work: Callable[[int], T]) -> list[T]:
        """The results of all blocks, in order; each process computes some of them."""

    def agreed_signal(self, received: int | None, failure: str) -> int | None:
        """The signal that any process received; raises `TrainingError` if another process failed."""

    def add_slices(self, vector: Tensor, out: Tensor) -> None:
        """Write the sum of the own slices over all processes, added in a tree, to `out`.

        The vector may be bfloat16 to halve what is sent; it is added in float32.
        """

    def all_rows(self, rows: Tensor) -> Tensor:
        """The rows of all processes, in order."""

    def gather_slices(self, vector: Tensor) -> None:
        """Replace every slice of the vector by that of the process that owns it."""

    def whole(self, own: Tensor) -> Tensor:
        """The slices of all processes, end to end."""

    def spread(self, tensors: Tensors) -> Tensors:
        """The tensors of process 0."""


class Alone:
    """A process that trains a run by itself."""

    number, count, standing_by, waited = 0, 1, 0, 0.0

    def first(self, work: Callable[[], T]) -> T:
        return work()

    def share_out(self, blocks: int, work: Callable[[int], T]) -> list[T]:
        return computed_alike(range(blocks), blocks, work)

    def agreed_signal(self, received: int | None, failure: str) -> int | None:
        return received

    def add_slices(self, vector: Tensor, out: Tensor) -> None:
        out.copy_(vector)

    def all_rows(self, rows: Tensor) -> Tensor:
        return rows

    def gather_slices(self, vector: Tensor) -> None: ...

    def whole(self, own: Tensor) -> Tensor:
        return own

    def spread(self, tensors: Tensors) -> Tensors:
        return tensors


def computed_alike(own: range, blocks: int, work: Callable[[int], T]) -> list[T]:
    """The results of these blocks; if there are several in all, each is computed on one thread, however many there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if blocks > 1 else threads)
    try:
        return [work(block) for block in own]
    finally:
        torch.set_num_threads(threads)
