"""What the routes share: who asks, and whether they are still there."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from starlette.requests import Request as HttpRequest

from transduce.server.metrics import Metrics
from transduce.server.refusals import Abandoned

Result = TypeVar("Result")


def presented_key(http: HttpRequest) -> str:
    """The API key of a request's headers, if it has one."""
    scheme, _, key = http.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else http.headers.get("x-api-key", "")


async def while_present(http: HttpRequest, metrics: Metrics, work: Coroutine[object, object, Result]) -> Result:
    """What `work` gives; it is cancelled when the client goes away, so that what it has waiting is forgotten."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_gone(http))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        metrics.abandoned.inc()
        raise Abandoned
    finally:
        leaving.cancel()
        working.cancel()


async def _until_gone(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass
