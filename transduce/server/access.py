"""Access control: every request needs an API key unless its route is listed as open.

The check runs before routing. It therefore also covers mounted applications, unknown paths, methods that a route does
not support, and every route that is added later. A server without API keys admits every request. Knows no models.
"""

from collections.abc import Set
from typing import Any

from starlette.datastructures import Headers

from transduce.server.client import presented_key
from transduce.server.keys import Keyring
from transduce.server.limits import App, Receive, Scope, Send
from transduce.server.refusals import Refusal

Route = tuple[str, str]  # method and path

# These routes need no key: they show neither texts nor anything about a model except its languages.
OPEN: frozenset[Route] = frozenset(
    ("GET", path)
    for path in (
        "/health",
        "/health/live",
        "/health/ready",
        "/languages",
        "/frontend/settings",
        "/docs",
        "/openapi.json",
    )
)

# LibreTranslate's clients send the key in the body. These two routes check it once they have read the body.
KEY_IN_BODY: frozenset[Route] = frozenset({("POST", "/translate"), ("POST", "/detect")})

POLICY_VIOLATION = 1008  # the WebSocket status code for a refused connection

SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer KEY`"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "`X-API-Key: KEY`"},
}


class KeyCheck:
    """An application behind the key check; `page` are the paths of the web page's files, which are open too."""

    def __init__(self, app: App, keys: Keyring, page: Set[str] = frozenset()) -> None:
        self.app, self.keys = app, keys
        self.open = OPEN | {("GET", path) for path in page}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await self._websocket(scope, receive, send)
        if scope["type"] == "http" and not self._is_exempt(scope):
            self.keys.admit(presented_key(Headers(scope=scope)))
        return await self.app(scope, receive, send)

    def _is_exempt(self, scope: Scope) -> bool:
        route = (scope["method"], scope["path"])
        return not scope.get("root_path") and (route in self.open or route in KEY_IN_BODY)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a connection without a key by closing it: there is no HTTP response to send."""
        try:
            self.keys.admit(presented_key(Headers(scope=scope)))
        except Refusal:
            return await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        return await self.app(scope, receive, send)


def document_access(document: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with the ways to send a key; open routes are marked as needing none."""
    document.setdefault("components", {})["securitySchemes"] = SCHEMES
    document["security"] = [{name: []} for name in SCHEMES]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if (method.upper(), path) in OPEN:
                operation["security"] = []
    return document
