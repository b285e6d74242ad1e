"""How long lines take, learned from how long others took. Knows neither lines nor clocks: costs and seconds are given.

A cost is any number that grows with the work, such as tokens; seconds for a unit of it are what is learned here.
"""

import math

REMEMBERED = 0.8  # of the past when a new batch is learned from
USUAL = 10  # requests that say what is usual


class Pace:
    """Seconds for a unit of cost, by what was done lately."""

    def __init__(self) -> None:
        self._seconds = self._cost = 0.0
        self.running = 0  # batches from which it will be learned

    @property
    def is_known(self) -> bool:
        return self._cost > 0

    @property
    def is_tried(self) -> bool:
        """Whether nothing is known yet, and the first batch is under way: better to wait for it than to guess."""
        return self.running > 0 and not self.is_known

    def learn(self, cost: float, seconds: float) -> None:
        self._cost = REMEMBERED * self._cost + cost
        self._seconds = REMEMBERED * self._seconds + seconds

    def seconds(self, cost: float) -> float:
        """How long this much should take; call it only where something is known."""
        return cost * self._seconds / self._cost


class Usual:
    """What is usual among requests, each counted once, however long: the geometric mean, which a few huge ones hardly move."""

    def __init__(self) -> None:
        self._logarithm, self._count = -math.inf, 0

    def learn(self, seconds: float) -> None:
        self._count = min(self._count + 1, USUAL)
        new = math.log(max(seconds, 1e-6))
        self._logarithm = new if self._count == 1 else self._logarithm + (new - self._logarithm) / self._count

    @property
    def seconds(self) -> float:
        """0 where nothing is known."""
        return math.exp(self._logarithm)


class Shares:
    """The machine's time, divided equally among the batches that run at the same moment.

    The sum of all shares is the time during which anything ran, so shares say how long a queue takes to empty.
    """

    def __init__(self) -> None:
        self._running = 0
        self._since = 0.0
        self._share_s = 0.0  # of a batch that would have run all the time

    def begin(self, now: float) -> float:
        """A mark to measure a batch's share from."""
        mark = self.at(now)
        self._running += 1
        return mark

    def end(self, mark: float, now: float) -> float:
        """The share of a batch that began at this mark."""
        share = self.at(now) - mark
        self._running -= 1
        return share

    def at(self, now: float) -> float:
        if self._running:
            self._share_s += (now - self._since) / self._running
        self._since = now
        return self._share_s
