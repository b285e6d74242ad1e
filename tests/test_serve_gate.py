"""What is refused before and behind every route, who leaves, what is counted and documented, and what is never said."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from serving import SCOPE, SECRET, Client, client, make_service, refused, run, service, symbols

from transduce.documents import Document, Splitter
from transduce.server.app import make_app
from transduce.server.service import Service
from transduce.server.settings import ServerSettings

# --- refusals --------------------------------------------------------------------------------------------------


def test_what_cannot_be_translated_is_said(client: Client) -> None:
    body = {"q": "a", "source": "en", "target": "fr"}
    assert "it translates: en to de" in refused(client.post("/translate", body), 404)
    assert "this server has: en-de, symbols" in refused(
        client.post("/v1/translate", {"text": "a", "model": "../x"}), 404
    )
    assert "this server has: en-de" in refused(client.post("/v1/translate", {"text": "a"}), 404)
    both = {"text": "a", "model": "symbols", "source": "en", "target": "de"}
    assert "does not translate this language pair" in refused(client.post("/v1/translate", both), 404)
    assert client.post("/v1/translate", {**both, "model": "en-de"}).status_code == 200


@pytest.mark.parametrize("length", ["0" * 5_000 + "2", "9" * 5_000, "\u00b2", "x"])
def test_a_length_that_is_no_number_is_refused(client: Client, length: str) -> None:
    headers = {"content-type": "application/json", "content-length": length.encode("latin-1")}
    answer = client("POST", "/translate", content=b"{}", headers=headers)
    assert refused(answer, 400) == "the Content-Length is not a valid number"


@pytest.mark.parametrize("path", ["/health/", "/translate/", "/v1/models/"])
def test_a_slash_at_the_end_is_not_redirected(client: Client, path: str) -> None:
    """The server does not know whether a proxy in front of it has TLS, so it could redirect from https to http."""
    answer = client.get(path, headers={"X-Forwarded-Proto": "https"})
    assert "location" not in answer.headers
    refused(answer, 404)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            {"json": {"q": "a", "source": "en"}},
            'the field target is missing: add it to the body, for example {"target": "de"}',
        ),
        (
            {"json": {"q": "a", "target": "de"}},
            'the field source is missing: add it to the body, for example {"source": "en"}',
        ),
        ({"json": {"q": 3, "source": "en", "target": "de"}}, "q: give a text, or a list of texts"),
        ({"json": [1]}, "the body must be a JSON object"),
        (
            {"json": {"q": "a", "source": "en", "target": "de", "format": "pdf"}},
            "format: Input should be 'text' or 'html'",
        ),
        ({"json": {"q": "a", "source": "en", "target": "de", "alternatives": 99}}, "alternatives"),
        ({"json": {"q": "a\ud800", "source": "en", "target": "de"}}, "not valid Unicode"),
        ({"content": b"{", "headers": {"content-type": "application/json"}}, "not valid JSON"),
        ({"content": b"[" * 100_000, "headers": {"content-type": "application/json"}}, "not valid JSON"),
        (
            {"content": b"q=%ff", "headers": {"content-type": "application/x-www-form-urlencoded"}},
            "not valid form data",
        ),
        (
            {"content": b"q=a&" * 2000, "headers": {"content-type": "application/x-www-form-urlencoded"}},
            "not valid form data",
        ),
        ({"content": b"x"}, "must be application/json"),
        ({"files": {"q": b"x"}}, "must be application/json"),
    ],
)
def test_bodies_that_make_no_sense(client: Client, content: dict[str, Any], reason: str) -> None:
    if "json" in content:  # httpx refuses half a surrogate pair, so it is written out
        content = {"content": json.dumps(content["json"]), "headers": {"content-type": "application/json"}}
    assert reason in refused(client.post("/translate", **content), 400)


@pytest.mark.parametrize(
    "change",
    [{"n_best": 0}, {"n_best": 1.5}, {"n_best": "2"}, {"beem": 3}, {"alpha": 99}, {"alpha": -10}, {"text": None}],
)
def test_v1_is_strict(client: Client, change: dict[str, Any]) -> None:
    refused(client.post("/v1/translate", {"text": "a", "model": "en-de", **change}), 400)


@pytest.mark.parametrize(
    ("content", "content_type", "reason"),
    [
        (b"text=a", "application/x-www-form-urlencoded", "a JSON object, sent with the header content-type: application/json"),
        (b"", "application/json", "the body must be a JSON object"),
        ('{"text": "é"}'.encode("latin-1"), "application/json", "the body is not valid UTF-8: send JSON in UTF-8"),
    ],
)  # fmt: skip
def test_bodies_that_are_no_json(client: Client, content: bytes, content_type: str, reason: str) -> None:
    answer = client("POST", "/v1/translate", content=content, headers={"content-type": content_type})
    assert reason in refused(answer, 400)


def test_what_was_sent_is_not_echoed(client: Client) -> None:
    assert SECRET not in client.post("/v1/translate", {"text": [SECRET, 3], "n_best": SECRET}).text


def test_sizes(run: Path) -> None:
    client = Client(make_service([run], characters=100, texts=3, body_bytes=1_000))
    body = {"source": "en", "target": "de"}
    assert "101 characters; a request may have at most 100" in refused(
        client.post("/translate", {**body, "q": "a" * 101}), 413
    )
    assert "4 texts; at most 3 are allowed" in refused(client.post("/translate", {**body, "q": ["a"] * 4}), 413)
    assert "1,000 bytes" in refused(client.post("/translate", {**body, "q": "a" * 2_000}), 413)
    assert "nothing to show" in refused(client.post("/v1/attention", {"text": " "}), 404)
    refused(client.post("/v1/attention", {"text": ""}), 400)

    async def chunks() -> Any:
        for _ in range(100):
            yield b"a" * 100

    refused(client.post("/translate", content=chunks()), 413)


def test_texts_are_measured_as_the_model_takes_them(client: Client) -> None:
    """NFKC makes eighteen characters of one: fifty thousand would be nine hundred thousand."""
    answer = client.post("/v1/translate", {"text": "\ufdfa" * 3_000, "model": "en-de"})
    assert "54,000 characters after normalisation (NFKC); a request may have at most 50,000" in refused(answer, 413)


def test_long_texts_are_split_and_counted_aside(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Splitting a hostile text takes a while, and other requests are to be answered meanwhile."""
    threads: list[str] = []
    plain = Splitter.text

    def split(self: Splitter, text: str) -> Document:
        threads.append(threading.current_thread().name)
        return plain(self, text)

    monkeypatch.setattr(Splitter, "text", split)
    for text in ("the cat. " * 200, "the cat."):
        assert client.post("/v1/translate", {"text": text, "model": "en-de"}).status_code == 200
    assert threads[0].startswith("preparing")
    assert threads[1] == threading.current_thread().name, "a short text takes less time than a thread to begin"


def test_a_slow_body_is_given_up(run: Path) -> None:
    async def slow() -> Any:
        yield b"{"
        await asyncio.sleep(5)
        yield b"}"

    client = Client(make_service([run], body_s=0.05))
    assert "0.05 s" in refused(client.post("/translate", content=slow()), 408)


@pytest.mark.parametrize(("host", "status"), [
    ("localhost", 200), ("localhost:5000", 200), ("LOCALHOST", 200), ("127.0.0.1:5000", 200), ("[::1]:5000", 200),
    ("192.168.1.7", 200), ("mine.example", 200), ("evil.example", 403), ("", 403), ("127.0.0.1.evil.example", 403),
])  # fmt: skip
def test_the_host_must_be_ours(run: Path, service: Service, host: str, status: int) -> None:
    service = Service(ServerSettings(allowed_hosts=("mine.example",)), service.models, service.metrics)
    assert Client(service).get("/health", headers={"host": host}).status_code == status


@pytest.mark.parametrize(("origin", "status"), [
    ("http://localhost", 200), ("http://evil.example", 403), ("null", 403), ("http://[", 403), ("http://localhost:1", 403),
])  # fmt: skip
def test_pages_of_others_may_not_ask(client: Client, origin: str, status: int) -> None:
    answer = client.get("/languages", headers={"origin": origin})
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


def test_pages_under_an_allowed_name_may_ask_behind_a_proxy_that_changes_the_host(service: Service) -> None:
    service = Service(ServerSettings(allowed_hosts=("Mine.example",)), service.models, service.metrics)
    answer = Client(service).get("/languages", headers={"host": "localhost", "origin": "https://mine.example"})
    assert answer.status_code == 200


def test_too_much_work_is_refused_before_it_is_read(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(service.queue), "is_full", True)
    answer = Client(service).post("/translate", {"q": "a", "source": "en", "target": "de"})
    assert "try again later" in refused(answer, 503)
    assert int(answer.headers["retry-after"]) >= 1
    assert Client(service).get("/health/ready").status_code == 503
    assert Client(service).get("/health/live").status_code == 200


def test_an_error_of_ours_is_logged_without_words(
    service: Service, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ValueError(SECRET)

    monkeypatch.setattr("transduce.translator.Translator.stream", fail)
    client = Client(service, **{"x-request-id": "from-the-proxy"})
    answer = client.post("/translate", {"q": SECRET, "source": "en", "target": "de"})
    assert refused(answer, 500) == "internal server error"
    shown = capfd.readouterr()
    assert "ValueError at" in shown.err
    assert "(request from-the-proxy)" in shown.err
    assert SECRET not in shown.out + shown.err + answer.text


@pytest.mark.parametrize("path", ["/health/live", "/nowhere"])
def test_every_response_has_the_id_of_its_request(client: Client, path: str) -> None:
    given = client.get(path, headers={"x-request-id": "3f2a-7.c_9"})
    assert given.headers.get_list("x-request-id") == ["3f2a-7.c_9"]
    made = {
        client.get(path, headers={"x-request-id": unsafe}).headers["x-request-id"]
        for unsafe in ("", "a b", "a;b", "a" * 129)
    }
    assert len(made) == 4
    assert all(len(one) == 32 for one in made)


def test_refusals_have_the_id_of_their_request(client: Client) -> None:
    answer = client.get("/health", headers={"host": "evil.example", "x-request-id": "refused-1"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (403, "refused-1")


@pytest.mark.parametrize("header", ["x-forwarded-host", "forwarded", "x-original-host"])
def test_what_a_proxy_claims_about_the_host_is_not_trusted(client: Client, header: str) -> None:
    answer = client.get("/health", headers={"host": "evil.example", header: "localhost"})
    assert answer.status_code == 403


# --- who leaves, what is counted, what is documented -----------------------------------------------------------


@contextmanager
def held_translations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Translations that take their time."""
    from transduce.server.models import ServedModel

    batches: list[int] = []
    free, plain = threading.Event(), ServedModel.translate

    def slow(self: ServedModel, lines: list[str], request: Any) -> Any:
        batches.append(len(lines))
        free.wait(0.3)
        return plain(self, lines, request)

    monkeypatch.setattr(ServedModel, "translate", slow)
    yield batches
    free.set()


def test_who_leaves_is_forgotten(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_service([run], batch_lines=1, workers=1)
    body = json.dumps({"q": "One. Two. Three. Four. Five. Six.", "source": "en", "target": "de"}).encode()

    async def leave() -> list[Any]:
        messages = iter([{"type": "http.request", "body": body}, {"type": "http.disconnect"}])
        sent: list[Any] = []

        async def receive() -> Any:
            message = next(messages)
            await asyncio.sleep(0.1 if message["type"] == "http.disconnect" else 0)
            return message

        async def send(message: Any) -> None:
            sent.append(message)

        await make_app(service)(dict(SCOPE), receive, send)
        await asyncio.sleep(0.01)
        assert service.queue.waiting == 0
        await asyncio.sleep(0.5)
        return sent

    with held_translations(monkeypatch) as batches:
        asyncio.run(leave())
    assert len(batches) < 3
    assert "transduce_abandoned_total 1.0" in Client(service).get("/metrics").text


def test_who_leaves_before_the_end_of_the_body_gets_no_answer(run: Path) -> None:
    service = make_service([run])
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(make_app(service)(dict(SCOPE), receive, send))
    assert not sent
    assert "transduce_abandoned_total 1.0" in Client(service).get("/metrics").text


def test_labels_are_routes_not_words(service: Service) -> None:
    client = Client(service)
    client.get(f"/{SECRET}?q={SECRET}")
    client.post("/translate", {"q": SECRET, "source": SECRET, "target": "de"})
    page = client.get("/metrics").text
    assert 'transduce_requests_total{route="other",status="404"}' in page
    assert 'transduce_requests_total{route="/translate",status="404"}' in page
    assert SECRET not in page
    assert "transduce_batch_lines_count" in page


def test_the_documentation_is_local(client: Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "http://" not in page.text.replace("&quot;", "")
    assert "https://" not in page.text
    assert "<script" not in page.text
    document = client.get("/openapi.json").json()
    assert {"/translate", "/v1/translate", "/v1/attention", "/detect", "/metrics"} <= set(document["paths"])
    for path in document["paths"]:
        assert path in page.text


def test_every_route_and_field_is_documented(client: Client) -> None:
    document = client.get("/openapi.json").json()
    assert document["info"]["description"]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation.get("description"), path
            assert operation["tags"][0] in {tag["name"] for tag in document["tags"]}
            assert all(parameter["description"] for parameter in operation.get("parameters", []))
            for media in operation.get("requestBody", {}).get("content", {}).values():
                check_described(path, media["schema"])
    for name, schema in document["components"]["schemas"].items():
        if name not in ("HTTPValidationError", "ValidationError"):  # FastAPI's own
            check_described(name, schema)


def check_described(name: str, schema: dict[str, Any]) -> None:
    if "$ref" in schema:
        return
    assert schema.get("description"), name
    for field, content in schema.get("properties", {}).items():
        assert content.get("description") or "$ref" in content, f"{name}.{field}"


def test_the_dockerfile_runs_without_rights() -> None:
    lines = (Path(__file__).parents[1] / "Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users
    assert users[-1] not in ("root", "0")
    assert 'ENTRYPOINT ["transduce", "serve"]' in lines


def test_the_examples_of_the_documentation_are_understood() -> None:
    import re
    import shlex

    from transduce.cli.parser import make_parser

    text = (Path(__file__).parents[1] / "docs" / "serving.md").read_text()
    commands = [line.partition("#")[0] for line in text.splitlines() if re.match(r"transduce (serve|key) ", line)]
    assert len(commands) >= 4
    for command in commands:
        make_parser().parse_args(shlex.split(command)[1:])
    assert os.sep in text
