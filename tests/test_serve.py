"""The application without its socket: every route, every refusal, new weights, and what is never said."""

import asyncio
import json
import os
import re
import shutil
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

import httpx
from folders import write_folder

import transduce.explore
from transduce import checkpoint
from transduce.errors import DataError, RunError, SettingError
from transduce.serve.app import make_app
from transduce.serve.keys import add_key
from transduce.serve.models import Model, Searching, Specification
from transduce.serve.service import Service
from transduce.serve.settings import Settings
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


# --- LibreTranslate --------------------------------------------------------------------------------------------


def test_a_text_as_json_and_as_a_form(client: Client, service: Service) -> None:
    expected = direct(service, "the cat sat.", "Seven dogs ran!")
    fields = {"q": "the cat sat.  Seven dogs ran!\n", "source": "en", "target": "de"}
    for answer in (client.post("/translate", fields), client.post("/translate", data=fields)):
        assert answer.json() == {"translatedText": f"{expected[0]}  {expected[1]}\n"}


def test_a_list_gives_a_list(client: Client, service: Service) -> None:
    answer = client.post("/translate", {"q": ["the cat", "", "dogs"], "source": "en", "target": "de"})
    cat, dogs = direct(service, "the cat", "dogs")
    assert answer.json() == {"translatedText": [cat, "", dogs]}
    form = client.post("/translate", data={"q": ["the cat", "dogs"], "source": "en", "target": "de"})
    assert form.json() == {"translatedText": [cat, dogs]}


def test_html_keeps_its_tags(client: Client, service: Service) -> None:
    texts = ["<p>the cat <b id='x'>sat</b></p>", "<p>the cat<br>sat &amp; sat</p>", "<i>the cat sat</i>", "the <b>cat"]
    body = {"q": texts, "source": "en", "target": "de", "format": "html", "alternatives": 1}
    answer = client.post("/translate", body).json()
    whole, cat, sat, the, broken = (
        escape(text, quote=False) for text in direct(service, "the cat sat", "the cat", "sat & sat", "the", "cat")
    )
    inline, *others = answer["translatedText"]
    assert others == [f"<p>{cat}<br>{sat}</p>", f"<i>{whole}</i>", f"{the} <b>{broken}"]
    for text in (inline, answer["alternatives"][0][0]):
        assert re.findall("<.*?>", text) == ["<p>", "<b id='x'>", "</b>", "</p>"]
    assert re.sub("<.*?>", "", inline) == whole


def test_html_is_measured_as_it_was_sent(run: Path) -> None:
    client = Client(make_service([run], characters=30, texts=1))
    body = {"source": "en", "target": "de", "format": "html"}
    assert client.post("/translate", body | {"q": "<b>the</b> <i>cat</i> <b>a</b>"}).status_code == 200
    assert "30 characters" in refused(client.post("/translate", body | {"q": "<b>the</b> <i>cat</i> <b>at</b>"}), 413)


def test_alternatives(client: Client, service: Service) -> None:
    body = {"q": "the cat sat", "source": "en", "target": "de", "alternatives": 2}
    answer = client.post("/translate", body).json()
    translator = service.models.named("en-de").translator
    found = next(iter(translator.stream(["the cat sat"], translator.request(n_best=3))))
    assert [answer["translatedText"], *answer["alternatives"]] == [output.text for output in found.outputs]
    assert client.post("/translate", data={k: str(v) for k, v in body.items()}).json() == answer


def test_languages_and_settings(client: Client) -> None:
    assert client.get("/languages").json() == [{"code": "en", "name": "English", "targets": ["de"]}]
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 50_000
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    assert not settings["keyRequired"]
    assert client.get("/health").json() == {"status": "ok"}


class FakeLingua(types.ModuleType):
    """As much of lingua as is asked of it."""

    class LanguageDetectorBuilder:
        @classmethod
        def from_all_languages(cls) -> "FakeLingua.LanguageDetectorBuilder":
            return cls()

        def build(self) -> "FakeLingua.LanguageDetectorBuilder":
            return self

        def compute_language_confidence_values(self, text: str) -> list[Any]:
            code = "EN" if "the" in text else "FR"
            language = types.SimpleNamespace(iso_code_639_1=types.SimpleNamespace(name=code))
            return [types.SimpleNamespace(language=language, value=0.9)]


def test_detection(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeLingua("lingua")
    fake.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "lingua", fake)
    assert client.post("/detect", {"q": "the cat"}).json() == [{"language": "en", "confidence": 90.0}]
    answer = client.post("/translate", {"q": ["the cat"], "source": "auto", "target": "de"}).json()
    assert answer["detectedLanguage"] == [{"language": "en", "confidence": 90.0}]
    assert len(answer["translatedText"]) == 1
    assert "pair of languages" in refused(client.post("/translate", {"q": "le", "source": "auto", "target": "de"}), 404)


def test_without_a_detector_it_says_so(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.serve.detection.find_spec", lambda name: None)
    assert r"transduce[detect]" in refused(client.post("/detect", {"q": "the cat"}), 404)
    assert "name the source" in refused(client.post("/translate", {"q": "a", "source": "auto", "target": "de"}), 404)


# --- our own ---------------------------------------------------------------------------------------------------


def test_n_best_with_scores_and_tokens(client: Client, service: Service) -> None:
    body = {"text": "the cat sat", "model": "en-de", "n_best": 3, "beam": 5, "tokens": True}
    answer = client.post("/v1/translate", body).json()
    outputs = answer["translations"][0]["sentences"][0]["outputs"]
    translator = service.models.named("en-de").translator
    found = next(iter(translator.stream(["the cat sat"], translator.request(n_best=3, beam=5)))).outputs
    assert [one["text"] for one in outputs] == [one.text for one in found]
    assert [one["score"] for one in outputs] == pytest.approx([one.score for one in found])
    assert [token["token"] for token in outputs[0]["tokens"]] == [*found[0].tokens, "</s>"]
    total = sum(token["log_probability"] for token in outputs[0]["tokens"])
    assert total == pytest.approx(outputs[0]["log_probability"], abs=1e-4)


def test_search_settings_are_those_asked_for(client: Client, service: Service) -> None:
    translator = service.models.named("en-de").translator
    for changes in ({"beam": 1}, {"alpha": 0.0}, {"length_penalty": "paper"}):
        answer = client.post(
            "/v1/translate", {"text": "the cat sat on a mat", "source": "en", "target": "de", **changes}
        )
        found = next(iter(translator.stream(["the cat sat on a mat"], translator.request(**changes))))
        sentence = answer.json()["translations"][0]["sentences"][0]
        assert sentence["outputs"][0]["score"] == pytest.approx(found.outputs[0].score, abs=1e-5)


def test_attention_of_a_translation(client: Client) -> None:
    answer = client.post("/v1/translate", {"text": ["the cat.", "Seven dogs."], "model": "en-de", "attention": True})
    for text in answer.json()["translations"]:
        alignment = text["sentences"][0]["attention"]
        assert len(alignment["weights"]) == len(alignment["target"])
        assert {len(row) for row in alignment["weights"]} == {len(alignment["source"])}
        assert [sum(row) for row in alignment["weights"]] == pytest.approx([1] * len(alignment["target"]), abs=0.01)
    assert client.post("/v1/translate", {"text": "", "model": "en-de", "attention": True}).status_code == 200


@pytest.mark.parametrize("output", [None, "der Hund läuft"])
def test_attention_of_every_head(client: Client, service: Service, output: str | None) -> None:
    answer = client.post("/v1/attention", {"text": "the cat sat", "model": "en-de", "output": output}).json()
    seen = service.models.named("en-de").translator.attention("the cat sat", output)
    assert (answer["source"], answer["target"]) == (seen.source, seen.target)
    assert answer["written"] == [*answer["target"][1:], "</s>"]
    for name, maps in (("encoder", seen.maps.encoder), ("decoder", seen.maps.decoder), ("cross", seen.maps.source)):
        assert answer[name][1][3][0] == pytest.approx(maps[1][0, 3, 0].tolist(), abs=1e-4)


def test_models_by_name(client: Client) -> None:
    models = client.get("/v1/models").json()["models"]
    assert [model["name"] for model in models] == ["en-de", "symbols"]
    assert models[0]["description"] == "2 + 2 layers of 4 heads, d_model 64"
    expected = json.loads((FROZEN / "expected.json").read_text())[0]
    answer = client.post("/v1/translate", {"text": expected["source"], "model": "symbols"}).json()
    assert answer["translations"][0]["text"] == expected["texts"][0]


def test_the_only_model_needs_no_name(run: Path) -> None:
    answer = Client(make_service([f"xx-yy={run}"])).post("/v1/translate", {"text": "the cat"}).json()
    assert answer["model"] == "xx-yy"


def test_a_long_document_loses_nothing(client: Client, service: Service) -> None:
    text = "\n".join(f"cat {number} sat on a mat. Why?" for number in range(120))
    answer = client.post("/v1/translate", {"text": text, "model": "en-de"}).json()["translations"][0]
    assert len(answer["sentences"]) == 240
    assert answer["text"].count("\n") == 119


def test_the_torch_engine_serves_too(run: Path, service: Service) -> None:
    other = Client(make_service([run], engine="torch"))
    assert other.post("/translate", {"q": "the cat", "source": "en", "target": "de"}).status_code == 200


# --- the page --------------------------------------------------------------------------------------------------


@pytest.fixture
def explorer(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The page's side of the seam: remembers what it was asked."""
    asked: list[Any] = []

    def view(name: str) -> Any:
        def show(first: object, *positional: Any, **named: Any) -> dict[str, Any]:
            asked.append((name, type(first).__name__, positional, named))
            return {"view": name}

        return show

    views, page = types.ModuleType("views"), types.ModuleType("page")
    for name in ("translate_view", "attention_view", "tree_view", "training_view"):
        setattr(views, name, view(name))
    page.files = lambda: {  # type: ignore[attr-defined]
        "/": (b"<!doctype html>", "text/html; charset=utf-8"),
        "/page/main.js": (b"1", "text/javascript"),
    }
    monkeypatch.setattr(transduce.explore, "views", views, raising=False)
    monkeypatch.setattr(transduce.explore, "page", page, raising=False)
    return iter([asked])


def test_the_explorer_is_asked(client: Client, service: Service, explorer: Iterator[list[Any]]) -> None:
    asked = next(explorer)
    base = {"model": "en-de", "text": "the cat"}
    assert client.post("/v1/explore/translate", {**base, "n_best": 3}).json() == {"view": "translate_view"}
    assert client.post("/v1/explore/attention", {**base, "target": "x", "off": [["source", 1, 0]]}).status_code == 200
    assert client.post("/v1/explore/tree", {**base, "beam": 2}).status_code == 200
    assert client.get("/v1/explore/training?model=en-de").json() == {"view": "training_view"}
    assert asked[:3] == [
        ("translate_view", "Translator", ("the cat",), {"n_best": 3, "alternatives": 5}),
        ("attention_view", "Translator", ("the cat",), {"target": "x", "off": [["source", 1, 0]]}),
        ("tree_view", "Translator", ("the cat",), {"beam": 2}),
    ]
    assert asked[3][1] == "PosixPath"
    refused(client.post("/v1/explore/attention", {**base, "off": [["nowhere", 1, 0]]}), 400)
    said = refused(client.post("/v1/explore/tree", {**base, "text": "zq " * 300}), 413)
    count = len(service.models.named("en-de").translator.vocabularies.source.encode(["zq " * 300])[0])
    assert said == f"a text to look into has at most 200 tokens; this one has {count}"
    said = refused(client.post("/v1/explore/tree", {**base, "text": "a" * 2_001}), 413)
    assert said == "a text to look into has at most 2,000 characters; this one has 2,001"
    assert "no such model" in refused(client.get("/v1/explore/training?model=../../etc"), 404)


def test_the_page_is_served_with_a_strict_policy(client: Client, explorer: Iterator[list[Any]]) -> None:
    assert client.get("/").text == "<!doctype html>"
    script = client.get("/page/main.js")
    assert script.headers["content-type"].startswith("text/javascript")
    policy = script.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert script.headers["x-content-type-options"] == "nosniff"
    assert script.headers["referrer-policy"] == "no-referrer"
    refused(client.get("/page/../../../etc/passwd"), 404)


def test_the_explorer_itself_answers(client: Client) -> None:
    asked = {"text": "the cat sat", "model": "en-de"}
    translated = client.post("/v1/explore/translate", asked).json()
    assert translated["outputs"]
    inside = client.post("/v1/explore/attention", asked | {"off": [["source", 0, 0]]})
    assert inside.status_code == 200
    long = asked | {"text": "the cat sat on the mat " * 5}
    packed = client.post("/v1/explore/attention", long)
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(packed.content) / 3  # httpx unpacks what it shows
    plain = client.post("/v1/explore/attention", long, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.json() == packed.json()
    assert client.post("/v1/explore/tree", asked | {"beam": 2}).json()["steps"]
    assert client.get("/v1/explore/training?model=en-de").status_code == 200
    refused(client.post("/v1/explore/attention", asked | {"off": [["source", 99, 0]]}), 404)
    for path, name, most in (("translate", "alternatives", 20), ("translate", "n_best", 20), ("tree", "beam", 12)):
        assert client.post(f"/v1/explore/{path}", asked | {name: most}).status_code == 200, "as the views have it"
        refused(client.post(f"/v1/explore/{path}", asked | {name: most + 1}), 400)
    assert client.get("/").text.startswith("<!doctype html>")
    assert client.get("/page/main.js").status_code == 200


# --- refusals --------------------------------------------------------------------------------------------------


def refused(answer: httpx.Response, status: int) -> str:
    """The reason, in the one shape that all refusals have."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    return str(answer.json()["error"])


def test_what_cannot_be_translated_is_said(client: Client) -> None:
    body = {"q": "a", "source": "en", "target": "fr"}
    assert "it does en to de" in refused(client.post("/translate", body), 404)
    assert "there is en-de, symbols" in refused(client.post("/v1/translate", {"text": "a", "model": "../x"}), 404)
    assert "there is en-de" in refused(client.post("/v1/translate", {"text": "a"}), 404)
    both = {"text": "a", "model": "symbols", "source": "en", "target": "de"}
    assert "does not translate that pair" in refused(client.post("/v1/translate", both), 404)
    assert client.post("/v1/translate", {**both, "model": "en-de"}).status_code == 200


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"json": {"q": "a", "source": "en"}}, "target: Field required"),
        ({"json": {"q": 3, "source": "en", "target": "de"}}, "q"),
        ({"json": [1]}, "dictionary"),
        (
            {"json": {"q": "a", "source": "en", "target": "de", "format": "pdf"}},
            "format: Input should be 'text' or 'html'",
        ),
        ({"json": {"q": "a", "source": "en", "target": "de", "alternatives": 99}}, "alternatives"),
        ({"json": {"q": "a\ud800", "source": "en", "target": "de"}}, "no valid Unicode"),
        ({"content": b"{", "headers": {"content-type": "application/json"}}, "not JSON"),
        ({"content": b"[" * 100_000, "headers": {"content-type": "application/json"}}, "not JSON"),
        ({"content": b"q=%ff", "headers": {"content-type": "application/x-www-form-urlencoded"}}, "not a form"),
        ({"content": b"q=a&" * 2000, "headers": {"content-type": "application/x-www-form-urlencoded"}}, "not a form"),
        ({"content": b"x"}, "send application/json"),
        ({"files": {"q": b"x"}}, "send application/json"),
    ],
)
def test_bodies_that_make_no_sense(client: Client, content: dict[str, Any], reason: str) -> None:
    if "json" in content:  # httpx refuses half a surrogate pair, so it is written out
        content = {"content": json.dumps(content["json"]), "headers": {"content-type": "application/json"}}
    assert reason in refused(client.post("/translate", **content), 400)


@pytest.mark.parametrize(
    "change", [{"n_best": 0}, {"n_best": 1.5}, {"n_best": "2"}, {"beem": 3}, {"alpha": 99}, {"text": None}]
)
def test_v1_is_strict(client: Client, change: dict[str, Any]) -> None:
    refused(client.post("/v1/translate", {"text": "a", "model": "en-de", **change}), 400)


def test_what_was_sent_is_not_echoed(client: Client) -> None:
    assert SECRET not in client.post("/v1/translate", {"text": [SECRET, 3], "n_best": SECRET}).text


def test_sizes(run: Path) -> None:
    client = Client(make_service([run], characters=100, texts=3, body_bytes=1_000))
    body = {"source": "en", "target": "de"}
    assert "at most 100 characters; these have 101" in refused(client.post("/translate", {**body, "q": "a" * 101}), 413)
    assert "at most 3 texts; this one has 4" in refused(client.post("/translate", {**body, "q": ["a"] * 4}), 413)
    assert "1,000 bytes" in refused(client.post("/translate", {**body, "q": "a" * 2_000}), 413)
    assert "nothing to see" in refused(client.post("/v1/attention", {"text": " "}), 404)
    refused(client.post("/v1/attention", {"text": ""}), 400)

    async def chunks() -> Any:
        for _ in range(100):
            yield b"a" * 100

    refused(client.post("/translate", content=chunks()), 413)


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
    service = Service(Settings(allowed_hosts=("mine.example",)), service.models, service.metrics)
    assert Client(service).get("/health", headers={"host": host}).status_code == status


@pytest.mark.parametrize(("origin", "status"), [
    ("http://localhost", 200), ("http://evil.example", 403), ("null", 403), ("http://[", 403), ("http://localhost:1", 403),
])  # fmt: skip
def test_pages_of_others_may_not_ask(client: Client, origin: str, status: int) -> None:
    answer = client.get("/languages", headers={"origin": origin})
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


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
    answer = Client(service).post("/translate", {"q": SECRET, "source": "en", "target": "de"})
    assert refused(answer, 500) == "the server failed on this request"
    shown = capfd.readouterr()
    assert "ValueError at" in shown.err
    assert SECRET not in shown.out + shown.err + answer.text


# --- keys ------------------------------------------------------------------------------------------------------


def test_keys(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    secret = add_key(path, "one", 2)
    other = add_key(path, "other", 2)
    assert secret not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    client = Client(make_service([run], keys=str(path)))
    body = {"q": "a", "source": "en", "target": "de"}
    assert "API key" in refused(client.post("/translate", body), 403)
    assert "API key" in refused(client.post("/translate", {**body, "api_key": secret + "x"}), 403)
    assert client.post("/translate", {**body, "api_key": secret}).status_code == 200
    assert client.post("/translate", data={**body, "api_key": secret}).status_code == 200
    late = client.post("/translate", {**body, "api_key": secret})
    assert "in a minute" in refused(late, 429)
    assert 1 <= int(late.headers["retry-after"]) <= 30
    assert client.get("/v1/models", headers={"authorization": f"Bearer {other}"}).status_code == 200
    assert client.get("/metrics", headers={"x-api-key": other}).status_code == 200
    refused(client.get("/metrics"), 403)
    refused(client.get("/v1/models", headers={"authorization": "Bearer ключ".encode()}), 403)
    assert client.get("/frontend/settings").json()["keyRequired"]
    assert client.get("/health/live").status_code == 200


def test_a_rate_fills_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from transduce.serve import keys

    clock = 0.0
    monkeypatch.setattr(keys.time, "monotonic", lambda: clock)
    bucket = keys.Bucket(60)
    assert [bucket.take() for _ in range(60)] == [0] * 60
    assert bucket.take() == 1
    clock = 1.5
    assert (bucket.take(), bucket.take()) == (0, 0.5)


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"name": "a"}', '{"name": "a", "sha256": "short", "requests_per_minute": 1}']
)
def test_keys_that_cannot_be_read(line: str, tmp_path: Path) -> None:
    from transduce.serve.keys import Keyring

    path = tmp_path / "keys.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(DataError, match=r"keys\.jsonl:2: not a key: `transduce key"):
        Keyring.read(str(path))
    path.write_text("")
    with pytest.raises(DataError, match="no keys there"):
        Keyring.read(str(path))
    with pytest.raises(DataError, match="cannot be read"):
        Keyring.read(str(tmp_path / "none"))


def test_keys_that_cannot_be_made(tmp_path: Path) -> None:
    add_key(tmp_path / "keys", "web")
    for name, rate, reason in [("web", 1, "has a key named web"), ("a b", 1, "letters"), ("x", 0, "at least 1")]:
        with pytest.raises(SettingError, match=reason):
            add_key(tmp_path / "keys", name, rate)


def test_what_is_wrong_with_a_body_is_said(client: Client) -> None:
    broken = client("POST", "/v1/translate", content=b'{"text": broken', headers={"Content-Type": "application/json"})
    assert refused(broken, 400) == "the body is not JSON: wrong at character 9"
    assert refused(client.post("/v1/translate", {"txt": "the cat"}), 400).startswith("txt: ")


# --- models ----------------------------------------------------------------------------------------------------


def test_new_weights_take_their_place(tmp_path: Path, run: Path) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    service = make_service([folder])
    client, body = Client(service), {"q": "the cat sat on a mat", "source": "en", "target": "de"}
    before, old = client.post("/translate", body).json(), service.models.named("en-de")
    service.models.refresh(old)
    assert service.models.named("en-de") is old

    weights = checkpoint.RunFolder(folder).weights("best")
    tensors = checkpoint.read_tensors(weights)
    checkpoint.write_tensors(weights, {name: tensor.flip(0) for name, tensor in tensors.items()})
    service.models.refresh(old)
    assert client.post("/translate", body).json() != before
    assert old.translate(["the cat"], old.translator.request()), "what began with the old ones ends with them"
    assert 'reloads_total{model="en-de",outcome="done"} 1.0' in client.get("/metrics").text


def test_torn_weights_change_nothing(tmp_path: Path, run: Path) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    service = make_service([folder])
    (folder / "best.safetensors").write_bytes(b"torn")
    old = service.models.named("en-de")
    for _ in range(3):  # tried, and said, once
        service.models.refresh(old)
    assert service.models.named("en-de") is old
    assert 'outcome="failed"} 1.0' in Client(service).get("/metrics").text


def test_a_failure_of_any_kind_leaves_the_model_as_it_is(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    service = make_service([folder])
    old = service.models.named("en-de")

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(Model, "load", fail)
    weights = checkpoint.RunFolder(folder).weights("best")
    checkpoint.write_tensors(weights, {n: tensor.flip(0) for n, tensor in checkpoint.read_tensors(weights).items()})
    service.models.refresh(old)
    assert service.models.named("en-de") is old


def test_only_what_torch_translates_waits_its_turn(run: Path) -> None:
    """CTranslate2 serves several threads; what it cannot do is one batch at a time, known without loading torch's engine."""
    model = make_service([run]).models.named("en-de")
    power, paper = (model.translator.request(beam=2, length_penalty=kind) for kind in ("power", "paper"))
    assert Searching(model, power).alone is None
    assert Searching(model, paper).alone is model
    assert "torch" not in vars(model.translator.engines)


def test_folders_are_watched(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_service([run])
    seen: list[str] = []
    monkeypatch.setattr(service.models, "refresh", lambda model: seen.append(model.of.name))

    async def watch() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(service.models.watch(0.01), 0.2)

    asyncio.run(watch())
    assert set(seen) == {"en-de"}


def test_models_that_cannot_be_served(run: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"another model for en-de: name it as SOURCE-TARGET=RUN"):
        make_service([run, f"en-de={run}"])
    with pytest.raises(RunError, match="no such folder"):
        make_service([tmp_path / "nowhere"])
    with pytest.raises(RunError, match="no such folder"):
        make_service([f"en-de={tmp_path / 'nowhere'}"])
    with pytest.raises(SettingError, match=r"the name 'xx' must be two languages, as in en-de=/"):
        make_service([f"xx={run}"])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"port": 0}, "--port 0"),
        ({"host": "0.0.0.0"}, r"--host 0\.0\.0\.0: others could reach it"),
        ({"host": "example.org"}, "give an address"),
        ({"batch_lines": 0}, "batch_lines = 0: must be at least 1"),
        ({"queue_requests": 0}, "queue_requests = 0"),
        ({"characters": 0}, "characters = 0"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        Settings(**settings)


def test_being_exposed_can_be_meant() -> None:
    assert Settings(host="0.0.0.0", open=True).is_exposed
    assert Settings(host="::", keys="keys").is_exposed
    assert not Settings(host="::1").is_exposed
    assert not Settings(host="localhost").is_exposed


# --- who leaves, what is counted, what is documented -----------------------------------------------------------


@contextmanager
def held_translations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Translations that take their time."""
    import threading

    from transduce.serve.models import Model

    batches: list[int] = []
    free, plain = threading.Event(), Model.translate

    def slow(self: Model, lines: list[str], request: Any) -> Any:
        batches.append(len(lines))
        free.wait(0.3)
        return plain(self, lines, request)

    monkeypatch.setattr(Model, "translate", slow)
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
