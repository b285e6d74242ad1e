"""The gate before every route: who is called (Host), who asks (Origin), whether there is room, how large and how slow.

Plain ASGI, so that a refusal costs next to nothing while the server is busy. Knows no routes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import nullcontext
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from transduce.server.answers import failed, refused
from transduce.server.metrics import Metrics
from transduce.server.queue import Queue
from transduce.server.refusals import Abandoned, Refusal, TooMuch, TooSlow, Unwelcome
from transduce.server.settings import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Scripts come from here only and never from within a page, so text that becomes markup cannot become a program.
SAFE = [
    (b"content-security-policy", b"default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
     b"img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]  # fmt: skip


class Gate:
    """An application behind its limits; every answer leaves with safe headers and is counted."""

    def __init__(self, app: App, settings: Settings, queue: Queue, metrics: Metrics) -> None:
        self.app, self.settings, self.queue, self.metrics = app, settings, queue, metrics
        self.hosts = {"localhost", settings.host, *(name.lower() for name in settings.allowed_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        answer = Answer(send)
        began = time.perf_counter()
        try:
            await self._pass(scope, receive, answer)
        except Abandoned:
            self.metrics.abandoned.inc()
        except Refusal as refusal:
            await refused(refusal)(scope, receive, answer)
        except Exception as error:
            if not answer.status:
                await failed(error)(scope, receive, answer)
        finally:
            self._count(scope, answer.status, time.perf_counter() - began)
        return None

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers)
        self._check_origin(headers)
        if scope["method"] == "POST":
            self.queue.check_room()
        body = await self._read(headers, receive)  # before it counts: who sends slowly takes nobody's place
        with self.queue.admitted() if scope["method"] == "POST" else nullcontext():
            await self.app(scope, Replay(body, receive), send)

    def _check_host(self, headers: Headers) -> None:
        """Names only that we know: a page whose name was made to lead here (DNS rebinding) has another one.

        An address is no name, so it leads nowhere else.
        """
        host = host_of(headers.get("host", ""))
        if host not in self.hosts and not is_address(host):
            raise Unwelcome("this server is not known by that Host: start it with --allow-host NAME")

    def _check_origin(self, headers: Headers) -> None:
        """Pages of others may not ask on behalf of whoever looks at them."""
        origin = headers.get("origin")
        if origin is None:
            return
        try:
            place = urlsplit(origin)
            allowed = place.netloc == headers.get("host") or (place.hostname or "") in self.settings.allowed_hosts
        except ValueError:
            allowed = False
        if not allowed:
            raise Unwelcome("pages of another origin may not use this server")

    async def _read(self, headers: Headers, receive: Receive) -> bytes:
        """All of the body, or a refusal as soon as it is clear that it is too large or comes too slowly."""
        too_much = TooMuch(f"a body has at most {self.settings.body_bytes:,} bytes")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.settings.body_bytes:
            raise too_much
        body = bytearray()
        try:
            async with asyncio.timeout(self.settings.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Abandoned
                    body += message.get("body", b"")
                    if len(body) > self.settings.body_bytes:
                        raise too_much
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            raise TooSlow(f"the body did not come within {self.settings.body_s:g} s") from None

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")  # as it is declared: a client's words are no label
        self.metrics.requests.labels(route, str(status or 499)).inc()
        self.metrics.seconds.labels(route).observe(seconds)


class Answer:
    """A way to send that adds the safe headers and remembers the status."""

    def __init__(self, send: Send) -> None:
        self.send, self.status = send, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", []), *SAFE]
        await self.send(message)


class Replay:
    """A body that was read already, for whoever reads it next; what comes after it is the client's leaving."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self.body: bytes | None = body
        self.receive = receive

    async def __call__(self) -> Message:
        if self.body is None:
            return await self.receive()
        message = {"type": "http.request", "body": self.body, "more_body": False}
        self.body = None
        return message


def host_of(header: str) -> str:
    """The name or address of a Host header, without the port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()


def is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
