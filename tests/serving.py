"""A service without its socket, and requests to it: what the tests of the server share."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

import httpx
from folders import write_folder

from transduce.server.app import make_app
from transduce.server.models import Specification
from transduce.server.service import Service
from transduce.server.settings import Settings
from transduce.translator import Loading

FROZEN = Path(__file__).parent / "frozen" / "0.1.0"
SCOPE = {
    "type": "http", "method": "POST", "path": "/translate", "raw_path": b"/translate", "query_string": b"", "root_path": "",
    "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")], "http_version": "1.1", "scheme": "http",
}  # fmt: skip
SECRET = "a secret sentence that nobody may see in a log"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("serve") / "run")


@pytest.fixture(scope="module")
def symbols(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(FROZEN, tmp_path_factory.mktemp("serve") / "symbols"))


@pytest.fixture(scope="module")
def service(run: Path, symbols: Path) -> Service:
    return make_service([run, symbols])


def make_service(models: list[object], engine: Any = "auto", **settings: Any) -> Service:
    specifications = [Specification.parse(str(model)) for model in models]
    return Service.load(Settings(**settings), specifications, Loading(engine=engine, threads=1, say=lambda _: None))


class Client:
    """Requests to an application, each in an event loop of its own."""

    def __init__(self, service: Service, host: str = "localhost", **headers: str) -> None:
        self.service, self.host, self.headers = service, host, headers

    def __call__(self, method: str, path: str, **content: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(make_app(self.service))
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{self.host}") as client:
                return await client.request(method, path, **{"headers": self.headers, **content})

        return asyncio.run(ask())

    def get(self, path: str, **content: Any) -> httpx.Response:
        return self("GET", path, **content)

    def post(self, path: str, body: object = None, **content: Any) -> httpx.Response:
        return self("POST", path, **({"json": body} if body is not None else {}), **content)


@pytest.fixture
def client(service: Service) -> Client:
    return Client(service)


def direct(service: Service, *sentences: str) -> list[str]:
    return service.models.named("en-de").translator.translate(sentences)


def refused(answer: httpx.Response, status: int) -> str:
    """The reason, in the one shape that all refusals have."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    return str(answer.json()["error"])
