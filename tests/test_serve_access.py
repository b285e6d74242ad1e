"""Access control: every route needs a key unless it is listed as open, whatever it is and whenever it was added."""

import asyncio
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi")

from fastapi import APIRouter, FastAPI
from serving import SCOPE, Client, make_service, refused, run
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Mount
from starlette.websockets import WebSocket

from transduce.explore import page
from transduce.server.access import KEY_IN_BODY, KeyCheck
from transduce.server.app import make_app
from transduce.server.keys import add_key
from transduce.server.limits import Gate
from transduce.server.service import Service

# Every route that answers without a key, besides the files of the page. Change this list with care.
OPEN = {"/health", "/health/live", "/health/ready", "/languages", "/frontend/settings", "/docs", "/openapi.json"}


@pytest.fixture(scope="module")
def keyfile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "keys.jsonl"


@pytest.fixture(scope="module")
def key(keyfile: Path) -> str:
    return add_key(keyfile, "one", 100_000)


@pytest.fixture(scope="module")
def guarded(run: Path, keyfile: Path, key: str) -> Service:
    return make_service([run], keys=str(keyfile))


def inner(app: Gate) -> FastAPI:
    check = app.app
    assert isinstance(check, KeyCheck)
    assert isinstance(check.app, FastAPI)
    return check.app


def walk(routes: list[BaseRoute], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(method, path) of all routes, also of included routers, which newer versions of FastAPI keep as they are."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from walk(included.routes, prefix)
        for method in getattr(route, "methods", None) or ():
            yield method, prefix + route.path  # type: ignore[attr-defined]


def ask(app: Any, method: str, path: str, **content: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.request(method, path, **content)

    return asyncio.run(send())


def test_exactly_the_listed_routes_are_open(guarded: Service, key: str) -> None:
    app = make_app(guarded)
    routes = set(walk(inner(app).routes))
    assert {path for _, path in routes} >= {"/v1/translate", "/v1/explore/tree", "/metrics", "/detect", "/page/main.js"}
    answered = {(method, path): ask(app, method, path).status_code for method, path in routes}
    opened = {path for (_, path), status in answered.items() if status == 200}
    assert opened == OPEN | set(page.files())
    body = {"q": "a", "source": "en", "target": "de"}
    for method, path in KEY_IN_BODY:
        assert "API key" in refused(ask(app, method, path, json=body), 403)
    closed = {route for route, status in answered.items() if status != 200} - KEY_IN_BODY
    assert {answered[route] for route in closed} == {401}
    with_key = {"X-API-Key": key}
    assert 401 not in {ask(app, method, path, headers=with_key).status_code for method, path in closed}


def test_a_new_route_is_closed(guarded: Service, key: str) -> None:
    gate = make_app(guarded)
    app = inner(gate)
    router = APIRouter(prefix="/v2")

    @app.get("/new")
    @router.get("/new")
    @app.api_route("/health", methods=["HEAD", "OPTIONS", "POST"])
    def new() -> str:
        return "secret"

    app.include_router(router)
    app.add_route("/raw", lambda _: PlainTextResponse("secret"))
    app.mount("/mounted", PlainTextResponse("secret"))
    assert any(isinstance(route, Mount) for route in app.routes)
    for method, path in [
        ("GET", "/new"),
        ("GET", "/v2/new"),
        ("GET", "/raw"),
        ("HEAD", "/raw"),
        ("GET", "/mounted/"),
        ("GET", "/mounted/health"),
        ("POST", "/health"),
        ("HEAD", "/health"),
        ("OPTIONS", "/health"),
    ]:
        answer = ask(gate, method, path)
        assert (answer.status_code, "secret" in answer.text) == (401, False), (method, path)
        assert answer.headers["www-authenticate"] == "Bearer"
        allowed = ask(gate, method, path, headers={"Authorization": f"Bearer {key}"})
        assert allowed.status_code == 200, (method, path)


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/v1/nowhere", "/health/", "/health%2Fx", "/page/%2e%2e/metrics", "/page/nowhere.js", "/HEALTH"],
)
def test_unknown_paths_and_methods_say_nothing_without_a_key(guarded: Service, key: str, path: str) -> None:
    app = make_app(guarded)
    reference = ask(app, "GET", "/v1/models")
    assert (reference.status_code, reference.text) == (401, ask(app, "GET", path).text)
    for method in ("GET", "HEAD", "OPTIONS", "POST", "DELETE"):
        assert ask(app, method, path).status_code == 401
    assert ask(app, "GET", path, headers={"X-API-Key": key}).status_code == 404


def test_an_application_under_a_prefix_has_no_open_routes(guarded: Service) -> None:
    """Under a prefix the path of a request is not the path of a route, so nothing is taken for open."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = SCOPE | {"method": "GET", "path": "/health", "raw_path": b"/health", "root_path": "/prefix"}
    asyncio.run(make_app(guarded)(scope, receive, send))
    assert sent[0]["status"] == 401


@pytest.mark.parametrize("has_key", [False, True])
def test_websockets_need_a_key_too(guarded: Service, key: str, has_key: bool) -> None:
    gate, sent = make_app(guarded), []

    @inner(gate).websocket("/socket")
    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message["type"])

    headers = [(b"host", b"localhost"), *([(b"x-api-key", key.encode())] if has_key else [])]
    scope = SCOPE | {"type": "websocket", "path": "/socket", "headers": headers, "subprotocols": []}
    asyncio.run(gate(scope, receive, send))
    assert sent == (["websocket.accept", "websocket.close"] if has_key else ["websocket.close"])


def test_the_documentation_says_which_routes_need_a_key(guarded: Service) -> None:
    document = Client(guarded).get("/openapi.json").json()
    assert set(document["components"]["securitySchemes"]) == {"bearer", "header"}
    assert document["security"] == [{"bearer": []}, {"header": []}]
    operations = {path: operation for path, item in document["paths"].items() for operation in item.values()}
    assert {path for path, operation in operations.items() if operation.get("security") == []} == OPEN & set(operations)


def test_a_server_without_keys_is_open(run: Path) -> None:
    client = Client(make_service([run]))
    assert client.get("/v1/models").status_code == 200
    assert client.get("/nowhere").status_code == 404
    assert client("OPTIONS", "/health").status_code == 405
