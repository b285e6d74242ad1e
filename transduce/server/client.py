"""The client of a request: the API key and the id it sent, and whether it is still connected."""

import asyncio
import re
import uuid
from collections.abc import Coroutine
from typing import TypeVar

from starlette.datastructures import Headers
from starlette.requests import Request as HttpRequest

from transduce.server.metrics import Metrics
from transduce.server.refusals import ClientDisconnected

Result = TypeVar("Result")


def presented_key(headers: Headers) -> str:
    """The API key in the headers of a request, or an empty string."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def request_id(headers: Headers) -> str:
    """The id that a proxy or client gave the request, if it is safe to print; otherwise a new one."""
    given = headers.get("x-request-id", "")
    return given if re.fullmatch(r"[A-Za-z0-9._-]{1,128}", given) else uuid.uuid4().hex


async def cancel_on_disconnect(http: HttpRequest, metrics: Metrics, work: Coroutine[object, object, Result]) -> Result:
    """The result of `work`, which is cancelled when the client disconnects, so that its queued lines are dropped."""
    working = asyncio.ensure_future(work)
    disconnected = asyncio.ensure_future(_disconnected(http))
    try:
        await asyncio.wait({working, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        metrics.abandoned.inc()
        raise ClientDisconnected
    finally:
        disconnected.cancel()
        working.cancel()


async def _disconnected(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass
