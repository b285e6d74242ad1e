"""Our own routes: n-best, scores, tokens, attention, models by name."""

import json
import threading
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from serving import FROZEN, Client, client, make_service, refused, run, service, symbols

from transduce.server.api import AttentionAnswer, TranslateAnswer
from transduce.server.models import ServedModel
from transduce.server.service import Service, Translated
from transduce.translator import SearchRequest, Translation


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


def test_an_unknown_field_is_named_with_the_nearest_known_one(client: Client) -> None:
    answer = client.post("/v1/translate", {"txt": "the cat sat", "model": "en-de"})
    assert refused(answer, 400) == "unknown field txt; did you mean text?"
    answer = client.post("/v1/translate", {"text": "the cat sat", "model": "en-de", "zzzz": 1})
    assert refused(answer, 400).startswith("unknown field zzzz; known fields: ")


def test_search_settings_are_those_asked_for(client: Client, service: Service) -> None:
    translator = service.models.named("en-de").translator
    for changes in ({"beam": 1}, {"alpha": 0.0}, {"length_penalty": "paper"}):
        answer = client.post(
            "/v1/translate", {"text": "the cat sat on a mat", "source": "en", "target": "de", **changes}
        )
        found = next(iter(translator.stream(["the cat sat on a mat"], translator.request(**changes))))
        sentence = answer.json()["translations"][0]["sentences"][0]
        assert sentence["outputs"][0]["score"] == pytest.approx(found.outputs[0].score, abs=1e-5)


def test_answers_are_what_the_documentation_says(client: Client) -> None:
    body = {"text": ['the "cat" sat.\nü', ""], "model": "en-de", "n_best": 2, "tokens": True, "attention": True}
    answer = TranslateAnswer.model_validate_json(client.post("/v1/translate", body).content, strict=True)
    assert [len(text.sentences) for text in answer.translations] == [2, 0]
    assert all(sentence.attention for sentence in answer.translations[0].sentences)


def test_long_answers_are_written_aside(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty thousand outputs in JSON take seconds, and other requests are to be answered meanwhile."""
    threads: list[str] = []
    plain = Translated.text

    def text(self: Translated, rank: int = 0) -> str:
        threads.append(threading.current_thread().name)
        return plain(self, rank)

    monkeypatch.setattr(Translated, "text", text)
    many = "the cat.\n" * 90
    for path, body in [
        ("/v1/translate", {"text": many, "model": "en-de", "beam": 1}),
        ("/translate", {"q": many, "source": "en", "target": "de"}),
    ]:
        assert client.post(path, body).status_code == 200
    assert [name.partition("_")[0] for name in threads] == ["preparing", "preparing"]


def test_a_sentence_without_outputs_is_refused_not_answered_with_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(_: ServedModel, lines: list[str], request: SearchRequest) -> list[Translation]:
        return [Translation(line, []) for line in lines]

    monkeypatch.setattr(ServedModel, "translate", nothing)
    answer = client.post("/v1/translate", {"text": "the cat. Seven dogs.", "model": "en-de"})
    assert "found no output for 2 of 2 sentences" in refused(answer, 400)


def test_attention_of_a_translation(client: Client) -> None:
    answer = client.post("/v1/translate", {"text": ["the cat.", "Seven dogs."], "model": "en-de", "attention": True})
    for text in answer.json()["translations"]:
        alignment = text["sentences"][0]["attention"]
        assert len(alignment["weights"]) == len(alignment["target_tokens"])
        assert {len(row) for row in alignment["weights"]} == {len(alignment["source_tokens"])}
        assert [sum(row) for row in alignment["weights"]] == pytest.approx(
            [1] * len(alignment["target_tokens"]), abs=0.01
        )
    assert client.post("/v1/translate", {"text": "", "model": "en-de", "attention": True}).status_code == 200


@pytest.mark.parametrize("target", [None, "der Hund läuft"])
def test_attention_of_every_head(client: Client, service: Service, target: str | None) -> None:
    body = {"text": "the cat sat", "model": "en-de"}
    response = client.post("/v1/attention", {**body, "target_text": target})
    AttentionAnswer.model_validate_json(response.content, strict=True)
    answer = response.json()
    assert client.post("/v1/attention", {**body, "output": target}).json() == answer, "the old name"
    seen = service.models.named("en-de").translator.attention("the cat sat", target)
    assert (answer["source_tokens"], answer["decoder_input_tokens"]) == (seen.source, seen.target)
    assert answer["target_tokens"] == [*answer["decoder_input_tokens"][1:], "</s>"]
    for name, maps in (("encoder", seen.maps.encoder), ("decoder", seen.maps.decoder), ("cross", seen.maps.cross)):
        assert answer[name][1][3][0] == pytest.approx(maps[1][0, 3, 0].tolist(), abs=1e-4)


def test_models_by_name(client: Client, service: Service) -> None:
    models = client.get("/v1/models").json()["models"]
    assert [model["name"] for model in models] == ["en-de", "symbols"]
    assert models[0]["description"] == "2 + 2 layers of 4 heads, d_model 64"
    answer = client.post("/v1/translate", {"text": "hello", "model": "symbols"}).json()
    expected = service.models.named("symbols").translator.translate(["hello"])
    assert [answer["translations"][0]["text"]] == expected


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
