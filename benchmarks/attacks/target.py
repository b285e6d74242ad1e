"""A server under attack: how it is started, and what an attack did to its memory, its time and its queue."""

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from served import Served, ask, connect, free_port

CHECKOUT = Path(__file__).parents[2]


def start(*runs: str | Path, checkout: Path = CHECKOUT) -> Served:
    port = free_port()
    return Served("-m", "transduce", "serve", *runs, "--port", port, port=port, checkout=checkout)


def with_memory(server: Served, attack: Callable[[], dict[str, Any]], valid: bytes) -> dict[str, Any]:
    """The attack's result, with what it did to the server's memory and time, and whether a valid request is answered then."""
    before, of_children, began = server.resident_mb(), server.children_mb(), time.perf_counter()
    found = attack()
    served = asyncio.run(answered(server.port, valid))
    return {
        **found,
        "seconds": round(time.perf_counter() - began, 1),
        "memory_growth_mb": round(server.resident_mb() - before, 1),
        "children_growth_mb": round(server.children_mb() - of_children, 1),
        "still_serves": served == 200,
    }


async def answered(port: int, request: bytes) -> int:
    return (await ask(await connect(port), request)).status


def left_waiting(server: Served) -> dict[str, float]:
    """How many requests are still in the queue half a minute after the last client left."""
    until = time.monotonic() + 30
    while (waiting := metric(server, "transduce_waiting_requests")) and time.monotonic() < until:
        time.sleep(0.05)
    return {"left_waiting": waiting}


def metric(server: Served, name: str) -> float:
    return float(re.search(rf"^{name} (\S+)", server.get("/metrics"), re.M)[1])  # type: ignore[index]
