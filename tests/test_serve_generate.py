"""Language models over HTTP: what is generated, streams, who leaves, limits, OpenAI's shape, and other kinds of models beside them."""

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from folders import write_character_model, write_speech_model
from serving import SCOPE, SECRET, Client, make_service, refused, run

from transduce.errors import SettingError
from transduce.server.app import make_app
from transduce.server.generate_routes import CompletionAnswer, GenerateAnswer
from transduce.server.generation import TURN, GenerationWork
from transduce.server.jobs import LAST, UNNECESSARY
from transduce.server.keys import add_key
from transduce.server.service import Service
from transduce.translator.generation import GeneratedText, GenerationRequest
from transduce.translator.language_model import LanguageModel

SAMPLED: dict[str, Any] = {"prompt": "the ca", "sampling": True, "n": 3, "seed": 7, "top_p": 0.9, "max_tokens": 20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_character_model(tmp_path_factory.mktemp("serve") / "stories")


@pytest.fixture(scope="module")
def service(folder: Path) -> Service:
    return make_service([folder])


@pytest.fixture
def client(service: Service) -> Client:
    return Client(service)


def model_of(service: Service) -> LanguageModel:
    return service.models.language_model("").model


def events(text: str) -> list[tuple[str, Any]]:
    """The name and the data of each event."""
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        data = fields["data"]
        found.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return found


# --- texts -----------------------------------------------------------------------------------------------------


def test_texts_are_those_of_the_library(client: Client, service: Service) -> None:
    response = client.post("/v1/generate", SAMPLED)
    answer = GenerateAnswer.model_validate_json(response.content, strict=True)
    options = {name: value for name, value in SAMPLED.items() if name != "prompt"}
    assert [one.text for one in answer.texts] == model_of(service).generate("the ca", **options)
    assert (answer.model, answer.prompt_tokens, answer.cut, answer.unknown) == ("stories", 6, 0, 0)
    assert client.post("/v1/generate", {"prompt": "日本 the\n語", "max_tokens": 1}).json()["unknown"] == 3
    assert {(one.tokens, one.finish_reason) for one in answer.texts} == {(20, "length")}
    greedy = client.post("/v1/generate", {"prompt": "the"}).json()["texts"][0]
    assert [greedy["text"]] == model_of(service).generate("the")


@pytest.mark.parametrize("change", [{"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.3}, {"seed": 9}])
def test_every_option_of_sampling_is_heeded(client: Client, service: Service, change: dict[str, Any]) -> None:
    body = {"prompt": "a", "sampling": True, "max_tokens": 30, **change}
    found = client.post("/v1/generate", body).json()["texts"][0]["text"]
    assert [found] == model_of(service).generate("a", sampling=True, max_tokens=30, **change)
    assert found != client.post("/v1/generate", {"prompt": "a", "sampling": True, "max_tokens": 30}).json()["texts"][0]


def test_a_text_ends_before_stop_and_says_so(client: Client) -> None:
    free = client.post("/v1/generate", SAMPLED | {"n": 1}).json()["texts"][0]["text"]
    for stop in (free[5:7], ["~", free[5:7]]):
        found = client.post("/v1/generate", SAMPLED | {"n": 1, "stop": stop}).json()["texts"][0]
        assert found["text"] == free[: free.index(free[5:7])]
        assert found["finish_reason"] == "stop"


def test_a_prompt_beyond_the_context_is_cut_and_counted(client: Client) -> None:
    answer = client.post("/v1/generate", {"prompt": "the cat sat on " * 5, "max_tokens": 1}).json()
    assert (answer["prompt_tokens"], answer["cut"]) == (75, 75 + 1 - 32)


def test_a_stream_brings_the_same_text_in_parts(client: Client) -> None:
    whole = client.post("/v1/generate", SAMPLED).json()
    response = client.post("/v1/generate", SAMPLED | {"stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    *parts, last = events(response.text)
    texts = ["".join(data["text"] for _, data in parts if data["index"] == n) for n in range(3)]
    assert texts == [one["text"] for one in whole["texts"]]
    assert len(parts) > 20
    for one in whole["texts"]:
        del one["text"]
    assert last == ("done", whole)


def test_turns_are_counted_in_advance(service: Service) -> None:
    generation = model_of(service).generation("the", GenerationRequest(n=1, max_tokens=20))
    emitted: list[Any] = []
    work = GenerationWork(service.models.language_model(""), generation, emitted.append)
    assert work.costs == [3 / 8 + TURN, TURN, TURN]
    assert work([""] * 4) == [TURN, TURN, LAST, UNNECESSARY]
    assert len(emitted) == 20


def test_tokens_are_counted_in_the_metrics(folder: Path) -> None:
    client = Client(make_service([folder]))
    client.post("/v1/generate", SAMPLED)
    page = client.get("/metrics").text
    assert 'transduce_generated_tokens_total{model="stories"} 60.0' in page
    assert 'transduce_characters_total{model="stories"} 6.0' in page


# --- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"n": 2}, "n = 2: without sampling all texts would be the same"),
        ({"temperature": 0.5}, "temperature has no effect without sampling"),
        ({"sampling": True, "temperature": 0}, "temperature"),
        ({"sampling": True, "top_k": -1}, "top_k"),
        ({"n": 17, "sampling": True}, "n: Input should be less than or equal to 16"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ""}, "stop: an empty string would end every text before it begins: leave it out"),
        ({"stop": ["a"] * 17}, "stop: give a text, or a list of at most 16 texts, of at most 200 characters each"),
        ({"stop": "a" * 201}, "stop: give a text, or a list of at most 16 texts, of at most 200 characters each"),
        ({"seed": -1, "sampling": True}, "seed"),
        ({"promt": "a"}, "promt"),
        ({"prompt": 3}, "prompt"),
    ],
)
def test_what_cannot_be_generated_is_said(client: Client, change: dict[str, Any], reason: str) -> None:
    assert reason in refused(client.post("/v1/generate", {"prompt": "a", **change}), 400)


def test_prompts_and_texts_have_limits(folder: Path) -> None:
    client = Client(make_service([folder], generated_tokens=100, characters=50))
    assert client.post("/v1/generate", {"max_tokens": 100}).status_code == 200
    too_many = client.post("/v1/generate", {"max_tokens": 51, "n": 2, "sampling": True, "stream": True})
    assert refused(too_many, 413) == "n x max_tokens = 102; a request may generate at most 100 tokens"
    assert "51 characters" in refused(client.post("/v1/generate", {"prompt": "a" * 51}), 413)


def test_a_key_is_needed(folder: Path, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys", "one")
    service = make_service([folder], keys=str(tmp_path / "keys"))
    for path in ("/v1/generate", "/v1/completions"):
        assert Client(service).post(path, {"model": "stories", "max_tokens": 1}).status_code == 401
        known = Client(service, authorization=f"Bearer {key}")
        assert known.post(path, {"model": "stories", "max_tokens": 1}).status_code == 200


def test_the_engine_of_another_runtime_is_refused(folder: Path) -> None:
    with pytest.raises(SettingError, match="a language model needs the torch engine"):
        make_service([folder], engine="ct2")


# --- failures, time, and clients that leave ----------------------------------------------------------------------


def ask(service: Service, body: dict[str, Any], leaves_after: int = 10**9) -> list[Any]:
    """What is sent to a client that disconnects after so many messages."""

    async def asked() -> list[Any]:
        sent: list[Any] = []
        left, given = asyncio.Event(), iter([json.dumps(body).encode()])

        async def receive() -> Any:
            for content in given:
                return {"type": "http.request", "body": content}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if len(sent) >= leaves_after:
                left.set()

        scope = dict(SCOPE) | {"path": "/v1/generate", "raw_path": b"/v1/generate"}
        await asyncio.wait_for(make_app(service)(scope, receive, send), 20)
        await asyncio.sleep(0.05)
        assert service.queue.waiting == 0
        return sent

    return asyncio.run(asked())


def test_who_leaves_a_stream_frees_its_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service, turns = make_service([folder]), []
    plain = GenerationWork._turn

    def turn(self: GenerationWork) -> object:
        turns.append(threading.current_thread().name)
        return plain(self)

    monkeypatch.setattr(GenerationWork, "_turn", turn)
    sent = ask(service, {"max_tokens": 4_000, "stream": True}, leaves_after=4)
    assert len(sent) < 4_000
    assert len(turns) < 4_000 // TURN
    page = Client(service).get("/metrics").text
    assert "transduce_abandoned_total 1.0" in page
    assert "transduce_waiting_requests 0.0" in page


def test_a_generation_that_takes_too_long_ends_with_a_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = GeneratedText.take

    def slow(self: GeneratedText, token: int) -> str:
        time.sleep(0.01)
        return plain(self, token)

    services = [make_service([folder], request_s=seconds) for seconds in (0.05, 1.5)]
    monkeypatch.setattr(GeneratedText, "take", slow)
    alone, streaming = map(Client, services)
    assert "not finished within 0.05 s" in refused(alone.post("/v1/generate", {"max_tokens": 4_000}), 503)
    *parts, (name, last) = events(streaming.post("/v1/generate", {"max_tokens": 4_000, "stream": True}).text)
    assert parts
    assert name == "error"
    assert "not finished within 1.5 s" in last["error"]


def test_a_failure_is_said_without_the_text(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, calls = LanguageModel.generation, []

    def fail(self: LanguageModel, *arguments: Any) -> Any:
        generation = plain(self, *arguments)
        steps = generation.texts[0].take

        def take(token: int) -> str:
            calls.append(token)
            if len(calls) % 5 == 0:
                raise ValueError(SECRET)
            return steps(token)

        monkeypatch.setattr(generation.texts[0], "take", take)
        return generation

    service = make_service([folder])
    monkeypatch.setattr(LanguageModel, "generation", fail)
    client = Client(service)
    assert refused(client.post("/v1/generate", {}), 500) == "internal server error"
    name, last = events(client.post("/v1/generate", {"stream": True}).text)[-1]
    assert (name, last) == ("error", {"error": "internal server error"})
    assert SECRET not in capsys.readouterr().err


def test_generations_run_beside_one_another_and_beside_translations(folder: Path, run: Path) -> None:
    service = make_service([folder, run], longest_wait_s=60.0)
    bodies = [SAMPLED | {"seed": seed, "max_tokens": 60, "model": "stories"} for seed in range(1, 5)]
    alone = [Client(service).post("/v1/generate", body).json() for body in bodies]

    async def together() -> list[Any]:
        import httpx

        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            asked = [client.post("/v1/generate", json=body) for body in bodies]
            asked += [client.post("/v1/translate", json={"text": "the cat sat.", "model": "en-de"}) for _ in range(4)]
            return [answer.json() for answer in await asyncio.gather(*asked)]

    answers = asyncio.run(together())
    assert answers[:4] == alone
    assert all(answer["translations"] for answer in answers[4:])


# --- OpenAI's shape ----------------------------------------------------------------------------------------------

COMPLETION: dict[str, Any] = {"model": "stories", "prompt": "the ca", "seed": 7, "n": 2, "max_tokens": 12}


def test_completions_have_the_shape_that_clients_of_openai_know(client: Client, service: Service) -> None:
    response = client.post("/v1/completions", COMPLETION)
    answer = CompletionAnswer.model_validate_json(response.content, strict=True)
    expected = model_of(service).generate("the ca", sampling=True, seed=7, n=2, max_tokens=12)
    assert [choice.text for choice in answer.choices] == expected
    assert [choice.finish_reason for choice in answer.choices] == ["length", "length"]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (6, 24, 30)
    *chunks, (_, done) = events(client.post("/v1/completions", COMPLETION | {"stream": True}).text)
    assert done == "[DONE]"
    parts = [choice for _, chunk in chunks for choice in chunk["choices"]]
    assert ["".join(part["text"] for part in parts if part["index"] == n) for n in range(2)] == expected
    assert [part["finish_reason"] for part in parts[-2:]] == ["length", "length"]
    assert len({chunk["id"] for _, chunk in chunks}) == 1


def test_temperature_zero_is_greedy_and_without_a_seed_texts_differ(client: Client, service: Service) -> None:
    body = {"model": "stories", "prompt": ["the"], "max_tokens": 30}
    greedy = client.post("/v1/completions", body | {"temperature": 0, "stop": None}).json()["choices"][0]["text"]
    assert [greedy] == model_of(service).generate("the", max_tokens=30)
    texts = {client.post("/v1/completions", body).json()["choices"][0]["text"] for _ in range(3)}
    assert len(texts) > 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"logprobs": 3}, "logprobs is not supported: leave it out"), ({"echo": True}, "echo"), ({"best_of": 2}, "best_of"),
     ({"suffix": "x"}, "suffix is not supported: leave it out"), ({"presence_penalty": 1.0}, "presence_penalty"),
     ({"prompt": ["a", "b"]}, "prompt: give a text, or a list with one text"), ({"temperature": 0, "n": 2}, "n = 2"),
     ({"model": None}, "model")],
)  # fmt: skip
def test_what_completions_do_not_support_is_refused(client: Client, change: dict[str, Any], reason: str) -> None:
    assert refused(client.post("/v1/completions", COMPLETION | change), 400).startswith(reason)


def test_openai_s_names_are_taken_where_there_is_no_choice(client: Client, folder: Path) -> None:
    answer = client.post("/v1/completions", COMPLETION | {"model": "gpt-3.5-turbo-instruct"}).json()
    assert answer["model"] == "stories"
    assert answer["choices"] == client.post("/v1/completions", COMPLETION).json()["choices"]
    assert "no such model" in refused(client.post("/v1/generate", {"model": "gpt-3.5-turbo-instruct"}), 404)
    two = Client(make_service([folder, f"more={folder}"]))
    assert "no such model" in refused(two.post("/v1/completions", COMPLETION | {"model": "davinci"}), 404)


# --- several kinds of models -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(folder: Path, run: Path, tmp_path_factory: pytest.TempPathFactory) -> Service:
    pytest.importorskip("soundfile")
    speech = write_speech_model(tmp_path_factory.mktemp("serve") / "talks")
    return make_service([run, f"novels={folder}", speech])


def test_each_kind_of_model_is_found_without_a_name(mixed: Service) -> None:
    client = Client(mixed)
    models = client.get("/v1/models").json()["models"]
    assert [(one["name"], one["kind"]) for one in models] == [
        ("en-de", "translation"), ("novels", "language model"), ("talks", "speech"),
    ]  # fmt: skip
    assert client.post("/v1/generate", {"max_tokens": 1}).json()["model"] == "novels"
    assert client.post("/v1/translate", {"text": "the cat"}).json()["model"] == "en-de"
    assert client.get("/languages").json() == [{"code": "en", "name": "English", "targets": ["de"]}]


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/v1/generate", {"model": "en-de"}, "en-de translates text: send requests for it to /v1/translate"),
        ("/v1/completions", {"model": "talks"}, "talks transcribes recordings: send requests for it to /v1/transcribe"),
        (
            "/v1/translate",
            {"text": "a", "model": "novels"},
            "novels generates text: send requests for it to /v1/generate",
        ),
        ("/v1/attention", {"text": "a", "model": "talks"}, "talks transcribes recordings"),
        ("/v1/explore/translate", {"text": "a", "model": "novels"}, "novels generates text"),
        ("/v1/transcribe?model=novels", None, "novels generates text: send requests for it to /v1/generate"),
    ],
)
def test_a_model_of_another_kind_is_refused(mixed: Service, path: str, body: Any, reason: str) -> None:
    assert refused(Client(mixed).post(path, body), 400).startswith(reason)


def test_the_only_model_may_be_of_another_kind(client: Client) -> None:
    assert refused(client.post("/v1/translate", {"text": "a"}), 400).startswith("stories generates text")


def test_names_of_language_models(folder: Path, run: Path) -> None:
    with pytest.raises(SettingError, match=r"another model is already named stories; name this one as NAME=RUN"):
        make_service([folder, f"{folder}/../stories"])
    with pytest.raises(SettingError, match="must be up to 64 letters"):
        make_service([f"no way={folder}"])
    with pytest.raises(SettingError, match="must be two language codes"):
        make_service([f"novels={run}"])
