"""LibreTranslate's routes, as its clients ask them."""

import asyncio
import json
import re
from html import escape
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

import httpx
from serving import SCOPE, Client, client, direct, fake_lingua, make_service, refused, run, service, symbols

from transduce.server.app import _lifespan, make_app
from transduce.server.detection import Detected, Detector, LinguaProcess
from transduce.server.lingua_process import likeliest
from transduce.server.refusals import Overloaded
from transduce.server.service import Service
from transduce.translator import SearchRequest


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
    assert "at most 30" in refused(client.post("/translate", body | {"q": "<b>the</b> <i>cat</i> <b>at</b>"}), 413)


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


def test_detection(service: Service, fake_lingua: Path) -> None:
    service.detector = Detector()
    client = Client(service)
    assert client.post("/detect", {"q": "the cat"}).json() == [{"language": "en", "confidence": 90.0}]
    answer = client.post("/translate", {"q": ["the cat"], "source": "auto", "target": "de"}).json()
    assert answer["detectedLanguage"] == [{"language": "en", "confidence": 90.0}]
    assert len(answer["translatedText"]) == 1
    refusal = client.post("/translate", {"q": "le chat", "source": "auto", "target": "de"})
    assert "does not translate this language pair" in refused(refusal, 404)
    service.detector.close()


def test_a_detector_that_stops_is_restarted(fake_lingua: Path, capsys: pytest.CaptureFixture[str]) -> None:
    detector = Detector()
    first = detector.start()
    assert detector.start() is first, "it is started once"
    assert capsys.readouterr().err == "transduce: loading the language detector\n"
    first.result().end()
    assert detector(["the cat"]) == [[Detected("en", 90.0)]]
    with pytest.raises(Overloaded, match="stopped and is restarted: try again later"):
        detector(["stop"])
    assert detector(["le chat"]) == [[Detected("fr", 90.0)]]
    detector.close()


def test_a_detector_that_is_killed_while_it_answers_is_restarted(fake_lingua: Path) -> None:
    detector = Detector()
    detector(["the cat"])
    assert detector._process
    detector._process._read = lambda: '[["en", 9'  # type: ignore[method-assign]
    with pytest.raises(Overloaded, match="stopped and is restarted: try again later"):
        detector(["the cat"])
    assert detector(["the cat"]) == [[Detected("en", 90.0)]]
    detector.close()


def test_who_leaves_while_the_detector_loads_makes_room_for_others(run: Path, fake_lingua: Path) -> None:
    (fake_lingua / "lingua.py").write_text("import time; time.sleep(60)")
    service = make_service([run])
    body = {"type": "http.request", "body": json.dumps({"q": "the"}).encode()}
    messages = iter([body, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        raise AssertionError("nobody is there to receive it")

    async def leave() -> None:
        async with asyncio.timeout(30):  # the request itself would wait for a minute
            await make_app(service)(SCOPE | {"path": "/detect", "raw_path": b"/detect"}, receive, send)

    asyncio.run(leave())
    assert service.metrics.abandoned._value.get() == 1
    service.close()


def test_a_detector_that_cannot_be_started(run: Path, fake_lingua: Path) -> None:
    (fake_lingua / "lingua.py").write_text("1 / 0")
    client = Client(make_service([run]))
    assert "could not be started: give the source language" in refused(client.post("/detect", {"q": "the"}), 503)


def test_a_detector_that_is_still_loading(run: Path, fake_lingua: Path) -> None:
    (fake_lingua / "lingua.py").write_text("import time; time.sleep(60)")
    service = make_service([run], request_s=0.05)
    refusal = Client(service).post("/detect", {"q": "the"})
    assert "still loading: try again later" in refused(refusal, 503)
    service.close()


def test_the_detector_starts_at_the_first_request_that_needs_it(
    run: Path, fake_lingua: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process takes 1.3 GB of memory, which a server without detection must not spend."""
    started: list[LinguaProcess] = []

    class Recorded(LinguaProcess):
        def __init__(self) -> None:
            super().__init__()
            started.append(self)

    monkeypatch.setattr("transduce.server.detection.LinguaProcess", Recorded)
    service = make_service([run])

    async def live() -> None:
        async with _lifespan(service):
            await service.translate(service.models.named("en-de"), ["the cat"], SearchRequest())
            assert not started
            assert await service.detect("the cat") == [Detected("en", 90.0)]
            assert await service.detect("le chat") == [Detected("fr", 90.0)]

    asyncio.run(live())
    [process] = started
    assert not process.is_alive, "it ends with the server"


def test_other_requests_are_answered_while_the_detector_loads(run: Path, fake_lingua: Path) -> None:
    (fake_lingua / "lingua.py").write_text("import time; time.sleep(60)")
    service = make_service([run], queue_requests=4)

    async def ask_during_loading() -> None:
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            first = asyncio.create_task(client.post("/detect", json={"q": "the"}))
            while not service._detector_waiters.locked():
                await asyncio.sleep(0.01)
            second = await client.post("/detect", json={"q": "the"})
            assert "still loading" in refused(second, 503)
            assert second.headers["retry-after"] == "10"
            body = {"q": "the cat", "source": "en", "target": "de"}
            assert (await client.post("/translate", json=body)).status_code == 200
            assert not first.done()
            first.cancel()

    asyncio.run(ask_during_loading())
    service.close()


def test_lingua_s_answers_are_understood() -> None:
    """Lingua itself, with three languages: all of them take long to load."""
    lingua = pytest.importorskip("lingua")
    few = lingua.Language.GERMAN, lingua.Language.ENGLISH, lingua.Language.FRENCH
    detector = lingua.LanguageDetectorBuilder.from_languages(*few).build()
    best, *others = likeliest(detector, "Wo ist der Bahnhof, und wann kommt der nächste Zug?")
    assert best[0] == "de"
    assert best[1] > 50
    assert all(other[1] < best[1] for other in others)


def test_without_a_detector_it_says_so(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.server.detection.find_spec", lambda name: None)
    assert r"transduce[detect]" in refused(client.post("/detect", {"q": "the cat"}), 404)
    assert "give the source" in refused(client.post("/translate", {"q": "a", "source": "auto", "target": "de"}), 404)
