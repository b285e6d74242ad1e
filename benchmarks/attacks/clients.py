"""Clients that send one made-up request after the other, and count what they are answered. Know nothing of the requests."""

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from served import Connection, ask, connect

CLIENTS = 16
PATIENCE_S = 60
DROPPED, UNANSWERED = 0, -1


@dataclass(frozen=True)
class Attempt:
    """A request, and when its client hangs up."""

    request: bytes
    leaves_after_s: float | None = None  # None: it waits for the answer


Make = Callable[[random.Random], Attempt]


@dataclass
class Answers:
    """What became of the requests."""

    statuses: Counter[int] = field(default_factory=Counter)
    left: int = 0  # clients that hung up before they had an answer
    resets: int = (
        0  # requests that were sent again: a client that is still sending may miss the refusal that came early
    )
    slowest_s: float = 0.0

    def summary(self) -> dict[str, Any]:
        wrong = sum(count for status, count in self.statuses.items() if status >= 500 and status != 503)
        return {
            "requests": sum(self.statuses.values()) + self.left,
            "wrong_5xx": wrong,
            "dropped": self.statuses[DROPPED],
            "unanswered": self.statuses[UNANSWERED],
            "left": self.left,
            "resets": self.resets,
            "slowest_s": round(self.slowest_s, 2),
            "statuses": dict(sorted((status, count) for status, count in self.statuses.items() if status > 0)),
        }


async def fuzzed(port: int, make: Make, requests: int, seconds: float = math.inf, first_seed: int = 0) -> Answers:
    """The answers to so many requests, or to as many as there is time for, from several clients at a time."""
    answers, until = Answers(), time.monotonic() + seconds
    draws = [random.Random(seed) for seed in range(first_seed, first_seed + CLIENTS)]
    await asyncio.gather(*(_client(port, draw, make, requests // CLIENTS, until, answers) for draw in draws))
    return answers


async def _client(port: int, draw: random.Random, make: Make, requests: int, until: float, answers: Answers) -> None:
    connection = await connect(port)
    for _ in range(requests):
        if time.monotonic() > until:
            break
        if connection.closed:
            connection = await connect(port)
        attempt = make(draw)
        if attempt.leaves_after_s is None:
            status = await _answer(port, connection, attempt.request, answers)
        else:
            status = await _leave(connection, attempt, answers)
        if status <= 0 or connection.closed or attempt.request.startswith(b"HEAD"):
            connection.transport.abort()
            connection = await connect(port)


async def _answer(port: int, connection: Connection, request: bytes, answers: Answers) -> int:
    try:
        asked = await asyncio.wait_for(ask(connection, request), PATIENCE_S)
        if asked.status == DROPPED:
            answers.resets += 1
            asked = await asyncio.wait_for(ask(await connect(port), request), PATIENCE_S)
    except TimeoutError:
        answers.statuses[UNANSWERED] += 1
        return UNANSWERED
    answers.statuses[asked.status] += 1
    answers.slowest_s = max(answers.slowest_s, asked.seconds)
    return asked.status


async def _leave(connection: Connection, attempt: Attempt, answers: Answers) -> int:
    """Hang up in the middle; an answer that comes before counts like any other, and 0 is then not an answer."""
    asking = connection.ask(attempt.request)
    await asyncio.wait([asking], timeout=attempt.leaves_after_s)
    if asking.done() and asking.result():
        answers.statuses[asking.result()] += 1
        return asking.result()
    answers.left += 1
    return DROPPED
