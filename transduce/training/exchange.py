"""The exchange of a step: processes add the slices of their vectors in a fixed tree, and gather updated slices again.

It has two levels: within each machine, and then across machines among the processes with the same number on their machine. So
only a part of each vector crosses the network, and the additions are those of the whole tree, because the processes of a machine
are a subtree. Knows vectors and groups of processes, but not how a group is connected.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from transduce.training.shards import tree_sum


class Group(Protocol):
    """Some processes that exchange vectors, in the order of their numbers."""

    count: int

    def all_to_all(self, parts: Tensor) -> Tensor:
        """Send a row to each process; the rows received, in order."""

    def gather(self, own: Tensor, out: Tensor) -> None:
        """Write the vectors of all processes to `out`, end to end."""


class Single:
    """A group of one process."""

    count = 1

    def all_to_all(self, parts: Tensor) -> Tensor:
        return parts

    def gather(self, own: Tensor, out: Tensor) -> None:
        out.copy_(own)


@dataclass(frozen=True)
class Exchange:
    """Process p has number p % L on machine p // L, for L processes per machine, and owns the p-th part of each vector."""

    within: Group
    across: Group

    def added(self, vector: Tensor) -> Tensor:
        """The own part of the sum over all processes, in float32; the vector itself may be overwritten."""
        machines, places = self.across.count, self.within.count
        by_place = vector.view(machines, places, -1).transpose(0, 1).reshape(places, -1)
        of_machine = tree_sum(self.within.all_to_all(by_place).float().unbind())
        return tree_sum(self.across.all_to_all(of_machine.view(machines, -1)).unbind())

    def gather(self, own: Tensor, out: Tensor) -> None:
        """Write the parts of all processes to `out`."""
        machines, places = self.across.count, self.within.count
        if machines == 1:
            return self.within.gather(own, out)
        of_place = own.new_empty(machines * len(own))
        self.across.gather(own, of_place)
        if places == 1:
            out.copy_(of_place)
        else:
            by_place = own.new_empty(len(out))
            self.within.gather(of_place, by_place)
            out.view(machines, places, -1).copy_(by_place.view(places, machines, -1).transpose(0, 1))
        return None


def processes_per_machine(placed: Sequence[tuple[int, int]]) -> int:
    """How many processes each machine has, from the number and count that every process has on its machine.

    1, and so a single level, if they are not numbered machine by machine or not a power of two on each.
    """
    (_, size), *_ = placed
    regular = all(one == (number % size, size) for number, one in enumerate(placed))
    return size if regular and size & (size - 1) == 0 and len(placed) % size == 0 else 1
