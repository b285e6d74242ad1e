"""A service without its socket, and requests to it: what the tests of the server share."""

import asyncio
import os
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
from transduce.server.settings import ServerSettings
from transduce.translator import LoadOptions

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


def make_service(models: list[object], engine: Any = "auto", ngram: bool = False, **settings: Any) -> Service:
    specifications = [Specification.parse(str(model)) for model in models]
    loading = LoadOptions(engine=engine, ngram=ngram, threads=1, say=lambda _: None)
    return Service.load(ServerSettings(**settings), specifications, loading)


FAKE_LINGUA = """
from types import SimpleNamespace

class LanguageDetectorBuilder:
    from_all_languages = classmethod(lambda cls: cls())
    with_preloaded_language_models = build = lambda self: self

    def compute_language_confidence_values(self, text):
        if text == "stop":
            raise SystemExit
        code = SimpleNamespace(name="EN" if "the" in text else "FR")
        return [SimpleNamespace(language=SimpleNamespace(iso_code_639_1=code), value=0.9)]
"""


@pytest.fixture
def fake_lingua(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with as much of lingua as is used, which Python finds first."""
    (tmp_path / "lingua.py").write_text(FAKE_LINGUA)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


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
