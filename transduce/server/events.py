"""Server-sent events: a response that is sent while it is computed, and stops being computed when its client disconnects."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from transduce.server.answers import log_failure
from transduce.server.limits import Receive, Scope, Send
from transduce.server.metrics import Metrics
from transduce.server.refusals import Refusal

DONE = b"data: [DONE]\n\n"  # OpenAI's clients wait for it


def event(data: Any, name: str = "") -> bytes:
    """An event; JSON has no line breaks, so it is one line of data."""
    named = f"event: {name}\n" if name else ""
    return f"{named}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


Events = AsyncGenerator[bytes, None]


async def with_errors(events: Events, request_id: str) -> Events:
    """The events; if one of them fails, a last event says why, because the status has been sent already."""
    try:
        async with aclosing(events):
            async for one in events:
                yield one
    except Refusal as refusal:
        yield event({"error": str(refusal)}, "error")
    except Exception as error:
        log_failure(error, request_id)
        yield event({"error": "internal server error"}, "error")


class EventStream(Response):
    """Sends events as they come; the first one exists already, so that refusals have had a status of their own."""

    media_type = "text/event-stream"

    def __init__(self, first: bytes, events: Events, metrics: Metrics) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})  # nginx would collect the events otherwise
        del self.headers["content-length"]
        self.first, self.events, self.metrics = first, events, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        disconnected = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({sending, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            else:
                self.metrics.abandoned.inc()
        finally:
            disconnected.cancel()
            sending.cancel()

    async def _send(self, send: Send) -> None:
        async with aclosing(self.events):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self.first, "more_body": True})
            async for one in self.events:
                await send({"type": "http.response.body", "body": one, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
