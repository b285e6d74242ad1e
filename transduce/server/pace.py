"""Estimates how long lines take, from finished lines. Knows neither lines nor clocks.

A cost is any number that grows with the work, such as the number of tokens. The seconds per unit of cost are learned.
"""

import math

REMEMBERED = 0.8  # the weight of the past when a new batch is added
USUAL = 10  # the number of requests that decide what is usual


class Pace:
    """Seconds per unit of cost, a moving average over recent batches."""

    def __init__(self) -> None:
        self._seconds = self._cost = 0.0
        self.running = 0  # running batches that it will learn from

    @property
    def is_known(self) -> bool:
        return self._cost > 0

    @property
    def is_tried(self) -> bool:
        """Whether nothing is known yet but the first batch is running; waiting for it is better than guessing."""
        return self.running > 0 and not self.is_known

    def learn(self, cost: float, seconds: float) -> None:
        self._cost = REMEMBERED * self._cost + cost
        self._seconds = REMEMBERED * self._seconds + seconds

    def seconds(self, cost: float) -> float:
        """The expected time for this cost. Call it only if `is_known`."""
        return cost * self._seconds / self._cost


class Usual:
    """The usual time among requests: a geometric mean that counts each request once, so that huge ones hardly move it."""

    def __init__(self) -> None:
        self._logarithm, self._count = -math.inf, 0

    def learn(self, seconds: float) -> None:
        self._count = min(self._count + 1, USUAL)
        new = math.log(max(seconds, 1e-6))
        self._logarithm = new if self._count == 1 else self._logarithm + (new - self._logarithm) / self._count

    @property
    def seconds(self) -> float:
        """The mean; 0 if nothing is known."""
        return math.exp(self._logarithm)


class Shares:
    """The machine's time, divided equally among the batches that run at the same time.

    The shares add up to the time during which anything ran, so they predict how long a queue takes to empty.
    """

    def __init__(self) -> None:
        self._running = 0
        self._since = 0.0
        self._share_s = 0.0  # the share of a batch that had been running all the time

    def begin(self, now: float) -> float:
        """Register a batch; returns the mark from which its share is measured."""
        mark = self.at(now)
        self._running += 1
        return mark

    def end(self, mark: float, now: float) -> float:
        """Unregister a batch; returns its share since the mark."""
        share = self.at(now) - mark
        self._running -= 1
        return share

    def at(self, now: float) -> float:
        if self._running:
            self._share_s += (now - self._since) / self._running
        self._since = now
        return self._share_s
