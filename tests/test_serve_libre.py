"""LibreTranslate's routes, as its clients ask them."""

import re
import sys
import types
from html import escape
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from serving import Client, client, direct, make_service, refused, run, service, symbols

from transduce.server.detection import Detector
from transduce.server.service import Service


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


def test_lingua_s_answers_are_understood() -> None:
    """Lingua itself, with three languages: all of them take long to load."""
    lingua = pytest.importorskip("lingua")
    few = lingua.Language.GERMAN, lingua.Language.ENGLISH, lingua.Language.FRENCH
    detector = Detector()
    detector.__dict__["_lingua"] = lingua.LanguageDetectorBuilder.from_languages(*few).build()
    best, *others = detector.detect("Wo ist der Bahnhof, und wann kommt der nächste Zug?")
    assert best.language == "de"
    assert best.confidence > 50
    assert all(other.confidence < best.confidence for other in others)


def test_without_a_detector_it_says_so(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.server.detection.find_spec", lambda name: None)
    assert r"transduce[detect]" in refused(client.post("/detect", {"q": "the cat"}), 404)
    assert "name the source" in refused(client.post("/translate", {"q": "a", "source": "auto", "target": "de"}), 404)
