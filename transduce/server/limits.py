"""The limits that apply to every request: Host and Origin headers, room in the queue, size and duration of the body.

Plain ASGI, so that a refusal costs almost nothing while the server is busy. Knows no routes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from transduce.server.answers import failed, refused
from transduce.server.client import presented_key, request_id
from transduce.server.keys import Keyring
from transduce.server.metrics import Metrics
from transduce.server.queue import Queue
from transduce.server.refusals import (
    ClientDisconnected,
    Forbidden,
    Overloaded,
    PayloadTooLarge,
    Refusal,
    RequestTimeout,
)
from transduce.server.settings import ServerSettings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Scripts are loaded from this server only and never inline, so injected markup cannot run code.
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

FORM_BYTES = 16_384  # what a form may add to a recording
LONGEST_LENGTH = 20  # digits of a Content-Length: Python refuses to read numbers of more than 4,300


@dataclass(frozen=True)
class BodyLimit:
    """How large a body may be, and how long it may take to arrive."""

    most_bytes: int
    seconds: float


class Gate:
    """An application behind the limits; it gives every request an id, adds headers to every response and counts it.

    `uploads` are the paths that receive recordings, which may be larger than other bodies.
    """

    def __init__(
        self,
        app: App,
        settings: ServerSettings,
        queue: Queue,
        metrics: Metrics,
        keys: Keyring | None = None,
        uploads: Set[str] = frozenset(),
    ) -> None:
        self.app, self.settings, self.queue, self.metrics = app, settings, queue, metrics
        self.keys, self.uploads = keys or Keyring([]), uploads
        self._uploading = 0
        self.allowed_hosts = {name.lower() for name in settings.allowed_hosts}
        self.hosts = {"localhost", settings.host, *self.allowed_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        scope["request_id"] = request_id(Headers(scope=scope))
        sender = ResponseSender(send, scope["request_id"])
        began = time.perf_counter()
        try:
            await self._pass(scope, receive, sender)
        except ClientDisconnected:
            self.metrics.abandoned.inc()
        except Refusal as refusal:
            await refused(refusal)(scope, receive, sender)
        except Exception as error:
            if not sender.status:
                await failed(error, scope["request_id"])(scope, receive, sender)
        finally:
            self._count(scope, sender.status, time.perf_counter() - began)
        return None

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers)
        self._check_origin(headers)
        if scope["method"] == "POST":
            self.queue.check_room()
        with self._place(scope, headers) as limit:
            body = await self._read(headers, receive, limit)  # before it is admitted: a slow client takes up no room
            with self.queue.admitted() if scope["method"] == "POST" else nullcontext():
                await self.app(scope, Replay(body, receive), send)

    def _place(self, scope: Scope, headers: Headers) -> AbstractContextManager[BodyLimit]:
        if scope["path"] not in self.uploads:
            return nullcontext(BodyLimit(self.settings.body_bytes, self.settings.body_s))
        return self._upload(headers)

    @contextmanager
    def _upload(self, headers: Headers) -> Iterator[BodyLimit]:
        """A place among the recordings that may be in memory at the same time; a stranger gets none."""
        self.keys.check_known(presented_key(headers))
        if self._uploading >= self.settings.uploads:
            raise Overloaded("the server is receiving too many recordings, try again later", retry_after_s=5)
        self._uploading += 1
        try:
            yield BodyLimit(self.settings.audio_bytes + FORM_BYTES, self.settings.upload_s)
        finally:
            self._uploading -= 1

    def _check_host(self, headers: Headers) -> None:
        """Refuse names that are not ours: in a DNS rebinding attack, a foreign name resolves to this server.

        An IP address is not resolved, so it is always allowed.
        """
        host = host_of(headers.get("host", ""))
        if host not in self.hosts and not is_address(host):
            raise Forbidden("this Host is not allowed: start the server with --allow-host NAME")

    def _check_origin(self, headers: Headers) -> None:
        """Refuse requests that the page of another site makes in a visitor's browser."""
        origin = headers.get("origin")
        if origin is None:
            return
        try:
            place = urlsplit(origin)
            allowed = place.netloc == headers.get("host") or (place.hostname or "") in self.allowed_hosts
        except ValueError:
            allowed = False
        if not allowed:
            raise Forbidden("requests from pages of another origin are not allowed")

    async def _read(self, headers: Headers, receive: Receive, limit: BodyLimit) -> bytes:
        """The whole body; refused as soon as it is too large or takes too long."""
        too_much = PayloadTooLarge(f"the body is too large: at most {limit.most_bytes:,} bytes are allowed")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > LONGEST_LENGTH:
            raise Refusal("the Content-Length is not a valid number")
        if int(length) > limit.most_bytes:
            raise too_much
        body = bytearray()
        try:
            async with asyncio.timeout(limit.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnected
                    body += message.get("body", b"")
                    if len(body) > limit.most_bytes:
                        raise too_much
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            raise RequestTimeout(f"the body did not arrive within {limit.seconds:g} s") from None

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(
            scope.get("route"), "path", "other"
        )  # the path as declared: a label must not contain what a client sent
        self.metrics.requests.labels(route, str(status or 499)).inc()
        self.metrics.seconds.labels(route).observe(seconds)


class ResponseSender:
    """Sends a response, adds the security headers and the id of the request, and remembers the status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self.send, self.status = send, 0
        self.headers = [*SAFE, (b"x-request-id", request_id.encode())]

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", []), *self.headers]
        await self.send(message)


class Replay:
    """Gives the application a body that was already read; afterwards it waits for the client to disconnect."""

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
    """The name or address in a Host header, without the port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()


def is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
