"""The exchange in two levels adds as the whole tree does, however the processes are spread over machines."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from transduce.training.exchange import Exchange, Group, Single, processes_per_machine
from transduce.training.shards import tree_sum

PART = 64  # elements of a process's part


class Threads:
    """A group whose processes are threads; `sent` counts the elements that leave each of them."""

    def __init__(self, count: int) -> None:
        self.count, self.slots, self.barrier = count, [torch.empty(0)] * count, threading.Barrier(count)
        self.sent = 0

    def member(self, number: int) -> "Member":
        return Member(self, number)

    def swap(self, number: int, tensor: Tensor) -> Sequence[Tensor]:
        self.slots[number] = tensor.clone()
        self.barrier.wait(timeout=10)
        everything = list(self.slots)
        self.barrier.wait(timeout=10)
        return everything


class Member:
    """One process of such a group."""

    def __init__(self, threads: Threads, number: int) -> None:
        self.threads, self.number, self.count = threads, number, threads.count

    def all_to_all(self, parts: Tensor) -> Tensor:
        assert len(parts) == self.count
        self.threads.sent = (self.count - 1) * parts[0].numel()
        return torch.stack([theirs[self.number] for theirs in self.threads.swap(self.number, parts)])

    def gather(self, own: Tensor, out: Tensor) -> None:
        out.copy_(torch.cat(list(self.threads.swap(self.number, own))))


def exchanges(machines: int, per_machine: int) -> tuple[list[Exchange], list[Threads]]:
    inside = [Threads(per_machine) for _ in range(machines)]
    peers = [Threads(machines) for _ in range(per_machine)]
    single: Group = Single()
    return [
        Exchange(
            inside[number // per_machine].member(number % per_machine) if per_machine > 1 else single,
            peers[number % per_machine].member(number // per_machine) if machines > 1 else single,
        )
        for number in range(machines * per_machine)
    ], peers


@pytest.mark.parametrize(("machines", "per_machine"), [(1, 8), (8, 1), (2, 4), (4, 2), (2, 2)])
def test_two_levels_add_the_bits_of_the_whole_tree(machines: int, per_machine: int) -> None:
    count = machines * per_machine
    torch.manual_seed(0)
    vectors = [torch.randn(count * PART) for _ in range(count)]
    expected = tree_sum([vector.clone() for vector in vectors])
    members, peers = exchanges(machines, per_machine)
    with ThreadPoolExecutor(count) as pool:
        parts = list(pool.map(lambda member, vector: member.added(vector.clone()), members, vectors))

        def gathered(member: Exchange, own: Tensor) -> Tensor:
            out = torch.empty(count * PART)
            member.gather(own, out)
            return out

        wholes = list(pool.map(gathered, members, parts))
    assert torch.equal(torch.cat(parts), expected)
    assert all(torch.equal(whole, expected) for whole in wholes)
    if machines > 1:  # over the network goes what a ring of machines would send for this process's part
        assert peers[0].sent == (machines - 1) * PART


def test_what_is_bfloat16_may_be_sent_as_bfloat16() -> None:
    """Adding begins with a conversion to float32, which is exact."""
    vectors = [torch.randn(4 * PART).bfloat16() for _ in range(4)]
    expected = tree_sum([vector.float() for vector in vectors])
    members, _ = exchanges(2, 2)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda member, vector: member.added(vector), members, vectors))
    assert parts[0].dtype == torch.float32
    assert torch.equal(torch.cat(parts), expected)


def test_machines_are_seen_in_how_processes_are_numbered() -> None:
    assert processes_per_machine([(0, 2), (1, 2), (0, 2), (1, 2)]) == 2
    assert processes_per_machine([(number, 4) for number in range(4)]) == 4
    assert processes_per_machine([(0, 1)] * 4) == 1
    assert processes_per_machine([(0, 2), (0, 2), (1, 2), (1, 2)]) == 1  # dealt out to machines in turn
    assert processes_per_machine([(0, 4), (1, 4), (2, 4), (3, 4), (0, 2), (1, 2)]) == 1  # machines of unequal size
    assert processes_per_machine([*((number, 6) for number in range(6)), (0, 6), (1, 6)]) == 1
