"""The slot table: the host's view of which sentence is in which slot, a few steps behind the device."""

from collections import deque

from torch import Tensor

from transduce.continuous.sentences import PendingSentence
from transduce.continuous.worker import HostCopy

CHECKS_IN_FLIGHT = 1  # checks whose answer is not waited for: the device has steps to do meanwhile


class SlotTable:
    """Slots are free, occupied, or finished: their sentence is done and its outputs are not fetched yet."""

    def __init__(self, slots: int) -> None:
        self.free = list(range(slots))
        self.occupied: dict[int, tuple[int, PendingSentence]] = {}  # with the turn in which the sentence entered
        self.finished: dict[int, PendingSentence] = {}
        self.checks: deque[tuple[int, HostCopy]] = deque()  # with the turn after whose steps it was made
        self.turn = 0

    def enter(self, sentences: list[PendingSentence]) -> list[int]:
        """Give each of these sentences a free slot."""
        slots, self.free = self.free[: len(sentences)], self.free[len(sentences) :]
        self.occupied |= {slot: (self.turn, sentence) for slot, sentence in zip(slots, sentences, strict=True)}
        return slots

    def check(self, finished: Tensor) -> None:
        """Ask the device which slots are finished, and take in the answer to an earlier check."""
        self.checks.append((self.turn, HostCopy([finished])))
        self.turn += 1
        if len(self.checks) > CHECKS_IN_FLIGHT:
            turn, copy = self.checks.popleft()
            slots = copy.wait()[0].nonzero()[:, 0].tolist()
            # A sentence that entered after the check is not the one that the answer is about.
            done = [slot for slot in slots if slot in self.occupied and self.occupied[slot][0] <= turn]
            self.finished |= {slot: self.occupied.pop(slot)[1] for slot in done}

    def release(self) -> dict[int, PendingSentence]:
        """Free all finished slots; the sentences that were in them."""
        released, self.finished = self.finished, {}
        self.free += released
        return released
