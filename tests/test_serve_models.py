"""Models of a server: new weights, torn weights, and settings that cannot be."""

import asyncio
import dataclasses
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("granian")
pytest.importorskip("httpx")

from agreement import assert_texts_agree
from serving import Client, make_service, refused, run, symbols

import transduce
from tests.families import write_pairs
from transduce import checkpoint
from transduce.errors import RunError, SettingError
from transduce.server.models import ServedModel, TranslationWork
from transduce.server.running import notes_on_languages, what_it_does
from transduce.server.settings import ServerSettings


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


def change_weights(folder: Path) -> None:
    weights = checkpoint.RunFolder(folder).weights("best")
    tensors = checkpoint.read_tensors(weights)
    checkpoint.write_tensors(weights, {name: tensor.flip(0) for name, tensor in tensors.items()})


def test_weights_that_failed_once_are_tried_again_after_others_have_loaded(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cause may be gone: memory that was short, or a folder that was being copied."""
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    service, load = make_service([folder]), ServedModel.load
    said: list[str] = []
    service.models.loading = dataclasses.replace(service.models.loading, say=said.append)
    first = service.models.named("en-de")

    def refresh() -> ServedModel:
        service.models.refresh(service.models.named("en-de"))
        return service.models.named("en-de")

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    change_weights(folder)
    monkeypatch.setattr(ServedModel, "load", fail)
    assert refresh() is refresh() is first
    monkeypatch.setattr(ServedModel, "load", load)
    assert refresh() is first, "they are not tried again and again"
    change_weights(folder)  # back to those that are loaded: nothing to do, and the failure is over
    assert refresh() is first
    change_weights(folder)
    assert refresh() is not first
    assert said == ["en-de: keeps its old weights: no room", "en-de: loaded new weights"]


def test_a_failure_of_any_kind_leaves_the_model_as_it_is(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    service = make_service([folder])
    old = service.models.named("en-de")

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(ServedModel, "load", fail)
    weights = checkpoint.RunFolder(folder).weights("best")
    checkpoint.write_tensors(weights, {n: tensor.flip(0) for n, tensor in checkpoint.read_tensors(weights).items()})
    service.models.refresh(old)
    assert service.models.named("en-de") is old


def test_only_what_torch_translates_waits_its_turn(run: Path) -> None:
    """CTranslate2 serves several threads; what it cannot do is one batch at a time, known without loading torch's engine."""
    model = make_service([run]).models.named("en-de")
    power, paper = (model.translator.request(beam=2, length_penalty=kind) for kind in ("power", "paper"))
    assert TranslationWork(model, power).alone is None
    assert TranslationWork(model, paper).alone is model
    assert "_torch" not in vars(model.translator.engines)


def test_no_sentence_has_more_tokens_than_the_model_learned_from(run: Path) -> None:
    """Not even of characters that normalisation makes eighteen times as long."""
    model = make_service([run]).models.named("en-de")
    longest = model.translator.config.data.max_length
    sentences = model.splitter.text("\ufdfa" * (longest // 3 - 1)).sentences
    assert max(map(len, model.translator.vocabularies.source.encode(sentences))) <= longest
    assert "".join(sentences) == "\ufdfa" * (longest // 3 - 1)


def test_folders_are_watched(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_service([run])
    seen: list[str] = []
    monkeypatch.setattr(service.models, "refresh", lambda model: seen.append(model.of.name))

    async def watch() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(service.models.watch(0.01), 0.2)

    asyncio.run(watch())
    assert set(seen) == {"en-de"}


def test_a_folder_that_hangs_keeps_no_other_waiting(run: Path, symbols: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_service([run, symbols])
    said: list[str] = []
    hanging, seen, free = threading.Event(), threading.Semaphore(0), threading.Event()
    service.models.loading = dataclasses.replace(service.models.loading, say=said.append)
    service.models.load_s = 0.05

    def refresh(model: ServedModel) -> None:
        if model.of.name == "en-de":
            hanging.set()
            free.wait(20)
        else:
            seen.release()

    monkeypatch.setattr(service.models, "refresh", refresh)

    async def watch() -> None:
        watching = asyncio.create_task(service.models.watch(0.01))
        for _ in range(3):
            assert await asyncio.to_thread(seen.acquire, timeout=20)
        while not said:
            await asyncio.sleep(0.01)
        watching.cancel()

    asyncio.run(watch())
    assert hanging.is_set()
    assert said == [f"{run}: not loaded within 0.05 s; en-de keeps its old weights for now"]
    free.set()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs")
@pytest.mark.parametrize("file", ["best.safetensors", "config.toml", "vocabulary.spm"])
def test_a_fifo_in_place_of_a_file_changes_nothing(tmp_path: Path, run: Path, file: str) -> None:
    """Opening one would wait for somebody who writes to it, and with it everything else."""
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    service = make_service([folder])
    said: list[str] = []
    service.models.loading = dataclasses.replace(service.models.loading, say=said.append)
    (folder / file).unlink()
    os.mkfifo(folder / file)
    if file != "best.safetensors":  # the others are read when there are new weights
        weights = checkpoint.RunFolder(folder).weights("best")
        checkpoint.write_tensors(weights, {n: tensor.flip(0) for n, tensor in checkpoint.read_tensors(weights).items()})
    old = service.models.named("en-de")
    service.models.refresh(old)
    assert service.models.named("en-de") is old
    assert len(said) == 1
    assert said[0].startswith("en-de: keeps its old weights: ")
    assert str(folder) in said[0]
    assert Client(service).post("/v1/translate", {"text": "the cat"}).status_code == 200


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs")
def test_a_fifo_in_place_of_a_log_is_refused(tmp_path: Path, run: Path) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    (folder / "metrics.jsonl").unlink(missing_ok=True)
    os.mkfifo(folder / "metrics.jsonl")
    answer = Client(make_service([folder])).get("/v1/explore/training")
    assert "metrics.jsonl: cannot be read (not a regular file)" in refused(answer, 400)


def test_a_model_that_never_loads_is_one_line(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    monkeypatch.setattr(ServedModel, "load", lambda *_: free.wait(20))
    with pytest.raises(RunError, match=rf"{run}: the model could not be loaded within 0\.01 s"):
        make_service([run], load_s=0.01)
    free.set()


def test_models_without_languages_say_how_to_use_them(run: Path, symbols: Path) -> None:
    alone = make_service([symbols])
    assert what_it_does(alone.models.all) == "translates with symbols"
    assert notes_on_languages(alone.models.all) == [
        "symbols has no languages: send texts to POST /v1/translate; for /translate and /languages too, serve it as "
        f"SOURCE-TARGET={symbols}, such as el-ipa={symbols}"
    ]
    client = Client(alone)
    answer = client.post("/translate", {"q": "cat", "source": "en", "target": "ipa"})
    reason = refused(answer, 404)
    assert reason.startswith("no model of this server has languages: send texts to POST /v1/translate; for /translate")
    assert reason.endswith("name the languages of the model, as in el-ipa=RUN")
    assert client.post("/v1/translate", {"text": "cat"}).status_code == 200
    named = make_service([f"en-ipa={symbols}", run])
    assert what_it_does(named.models.all) == "translates en-ipa, en-de"
    assert notes_on_languages(named.models.all) == []
    assert Client(named).post("/translate", {"q": "cat", "source": "en", "target": "ipa"}).status_code == 200
    both = make_service([symbols, run])
    assert what_it_does(both.models.all) == "translates en-de; translates with symbols"


def test_models_that_cannot_be_served(run: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"another model is already named en-de; name this one as SOURCE-TARGET=RUN"):
        make_service([run, f"en-de={run}"])
    with pytest.raises(RunError, match="no such folder"):
        make_service([tmp_path / "nowhere"])
    with pytest.raises(RunError, match="no such folder"):
        make_service([f"en-de={tmp_path / 'nowhere'}"])
    with pytest.raises(SettingError, match=r"the name 'xx' must be two language codes, as in en-de=/") as error:
        make_service([f"xx={run}"])
    assert str(error.value).endswith(f"give {run} alone, and send requests to POST /v1/translate")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"port": 0}, "--port 0"),
        ({"host": "0.0.0.0"}, r"--host 0\.0\.0\.0: other machines could use this server"),
        ({"host": "example.org"}, "must be an IP address"),
        ({"batch_lines": 0}, "--batch 0: must be from 1 to 10,000"),
        ({"queue_requests": 0}, "--queue 0: must be from 1"),
        ({"characters": 0}, "--characters 0: must be from 1"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        ServerSettings(**settings)


def test_being_exposed_can_be_meant() -> None:
    assert ServerSettings(host="0.0.0.0", open=True).is_exposed
    assert ServerSettings(host="::", keys="keys").is_exposed
    assert not ServerSettings(host="::1").is_exposed
    assert not ServerSettings(host="localhost").is_exposed


@pytest.mark.numerics
def test_another_family_translates_over_http(tmp_path: Path) -> None:
    """A recurrent network: CTranslate2 and the GPU kernels do not have it, so plain PyTorch answers, as in the command line."""
    settings = {
        "model.family": "rnn", "model.d_model": 16, "train.device": "cpu", "train.threads": 1, "train.tokens_per_batch": 200,
        "train.validate_lines": 2, "train.average": 0, "search.max_extra": 3, "data.cache": str(tmp_path / "cache"),
    }  # fmt: skip
    pairs = write_pairs(tmp_path, 80)
    transduce.train(tmp_path / "rnn", train=pairs, steps=4, settings=settings, languages=("en", "de"), quiet=True)
    client, texts = Client(make_service([tmp_path / "rnn"])), ["a b c", "f e d"]
    answer = client.post("/translate", {"q": texts, "source": "en", "target": "de"})
    assert answer.status_code == 200, answer.text
    served = answer.json()["translatedText"]
    translator = transduce.load(tmp_path / "rnn", device="cpu", threads=1, quiet=True)
    assert_texts_agree(translator, translator.request(), texts, served, translator.translate(texts))
    (first, _) = client.post("/v1/translate", {"text": texts, "model": "en-de"}).json()["translations"]
    assert_texts_agree(
        translator, translator.request(), texts[:1], [first["sentences"][0]["outputs"][0]["text"]], served[:1]
    )
