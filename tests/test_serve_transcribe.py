"""Recordings over HTTP: transcripts, OpenAI's shape, limits, and uploads that nobody should send."""

import asyncio
import io
import json
import random
import re
import socket
import threading
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
pytest.importorskip("soundfile")

import httpx
import soundfile
from folders import WORDS, write_speech_model
from serving import Client, make_service, refused, run

import transduce
from transduce.audio.features import RATE
from transduce.audio.files import read_samples
from transduce.audio.recording import Recording
from transduce.audio.uploads import Sound, UploadError, UploadLimits, decode, type_of
from transduce.cli import main
from transduce.errors import SettingError
from transduce.server.app import make_app
from transduce.server.decoding import Decoder
from transduce.server.keys import add_key
from transduce.server.service import Service
from transduce.server.settings import ServerSettings
from transduce.server.transcript_answers import TranscribeAnswer, VerboseTranscriptionAnswer
from transduce.server.transcription import DecodingWork, TranscriptionWork
from transduce.translator import Translation, Translator
from transduce.translator.ctc_engine import CtcEngine
from transduce.translator.subtitles import srt, vtt
from transduce.translator.transcription import RecordingPieces, Transcript
from transduce.translator.word_times import words_of

LIMITS = UploadLimits(60.0)
OPENAI = "/v1/audio/transcriptions"


def sound(seconds: float, rate: int = RATE, channels: int = 1) -> Any:
    time = np.arange(round(seconds * rate)) / rate
    one = 0.3 * np.sin(2 * np.pi * 440 * time) + 0.01 * np.random.default_rng(0).normal(size=len(time))
    return np.stack([one] * channels, 1).astype(np.float32)


def encoded(samples: Any, rate: int = RATE, kind: str = "WAV", subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


WAV = encoded(sound(1.0))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_speech_model(tmp_path_factory.mktemp("serve") / "talks")


@pytest.fixture(scope="module")
def service(folder: Path) -> Service:
    return make_service([folder], audio_seconds=60.0)


@pytest.fixture
def client(service: Service) -> Client:
    return Client(service)


def send(client: Client, content: bytes, path: str = "/v1/transcribe", **fields: Any) -> httpx.Response:
    """A recording as a form."""
    return client("POST", path, files={"file": ("a.wav", content)}, data=fields)


# --- transcripts -----------------------------------------------------------------------------------------------


def test_a_recording_in_the_body_and_in_a_form_have_the_same_text(client: Client, service: Service) -> None:
    raw = client("POST", "/v1/transcribe", content=WAV, headers={"content-type": "audio/wav"})
    answer = TranscribeAnswer.model_validate_json(raw.content, strict=True)
    translator = service.models.speech("").translator
    heard = RecordingPieces.of(decode(WAV, LIMITS).resampled())
    expected = heard.segments(translator.transcribe(heard.features, translator.request(log_probs="outputs")))
    assert answer.text == expected[0].text
    assert answer.segments[0].confidence == pytest.approx(expected[0].confidence)
    assert (answer.model, answer.seconds, len(answer.segments)) == ("talks", 1.0, 1)
    assert send(client, WAV).json() == raw.json()


def test_long_recordings_are_pieces_of_one_job(tmp_path: Path) -> None:
    client = Client(make_service([write_speech_model(tmp_path / "talks", {"piece_seconds": 2.0})]))
    long = sound(3.0)
    long[RATE + RATE // 2 : 2 * RATE] = 0
    answer = send(client, encoded(long, kind="FLAC")).json()
    assert answer["seconds"] == pytest.approx(3)
    assert answer["segments"][0]["begin"] == 0
    assert answer["segments"][-1]["end"] == pytest.approx(3)
    assert len(answer["segments"]) == 2


def test_the_beam_is_the_one_that_was_requested(client: Client, service: Service) -> None:
    translator = service.models.speech("").translator
    utterances = RecordingPieces.of(decode(WAV, LIMITS).resampled()).features
    for beam in (1, 4):
        found = client("POST", f"/v1/transcribe?model=talks&beam={beam}", content=WAV).json()["text"]
        assert found == translator.transcribe(utterances, translator.request(beam=beam))[0].outputs[0].text
    refused(client("POST", "/v1/transcribe?beam=99", content=WAV), 400)


def test_where_the_decoder_listens(client: Client, folder: Path) -> None:
    path = "/v1/transcribe?attention=true"
    answer = TranscribeAnswer.model_validate_json(client("POST", path, content=WAV).content, strict=True)
    listened = answer.segments[0].attention
    assert listened is not None
    assert "".join(listened.tokens[:-1]).replace("\u2581", " ").strip() == answer.text
    assert {len(row) for row in listened.weights} == {26}  # 101 frames, in two steps of two
    assert [sum(row) for row in listened.weights] == pytest.approx([1] * len(listened.tokens), abs=0.01)
    assert (listened.begin, listened.end) == (0.0, 1.0)
    assert listened.ctc is not None
    heard = [token for token, _ in groupby(listened.ctc.emitted) if token is not None]
    assert heard == list(range(len(listened.tokens) - 1)), "every token but </s> once, in order"
    assert len(listened.ctc.emitted) == len(listened.ctc.probabilities) == 26
    assert all(0 <= one <= 1 for one in listened.ctc.probabilities)
    plain = client("POST", "/v1/transcribe", content=WAV).json()
    assert "attention" not in plain["segments"][0]
    assert plain["text"] == answer.text
    silence = client("POST", path, content=encoded(np.zeros(RATE, np.float32))).json()
    assert silence["segments"] == [{"begin": 0.0, "end": 1.0, "text": "", "confidence": 1.0}]
    short = Client(make_service([folder], inspected_seconds=0.5))
    assert "attention is shown for at most 0.5 s" in refused(short("POST", path, content=WAV), 413)


def test_the_shape_that_clients_of_openai_know(client: Client) -> None:
    text = send(client, WAV).json()["text"]
    fields = {"model": "talks", "language": "iba", "prompt": "x", "temperature": "0"}
    assert send(client, WAV, OPENAI, **fields).json() == {"text": text}
    assert send(client, WAV, OPENAI, response_format="text").text == f"{text}\n"
    verbose = send(client, WAV, OPENAI, response_format="verbose_json").json()
    assert (verbose["task"], verbose["duration"], verbose["text"]) == ("transcribe", 1.0, text)
    assert (verbose["segments"][0]["start"], verbose["segments"][0]["end"]) == (0.0, 1.0)
    assert "words" not in verbose
    assert "1 unknown fields" in refused(send(client, WAV, OPENAI, speed="2"), 400)
    assert send(client, WAV, OPENAI, model="talks", stream="false").json() == {"text": text}
    assert "stream: the answer is sent when" in refused(send(client, WAV, OPENAI, stream="true"), 400)
    refused(client("POST", OPENAI, content=WAV), 415)


def test_openai_s_names_are_taken_where_there_is_no_choice(client: Client, folder: Path) -> None:
    assert send(client, WAV, OPENAI, model="whisper-1").json() == send(client, WAV, OPENAI, model="talks").json()
    assert "no such model; this server has: talks" in refused(
        client("POST", "/v1/transcribe?model=whisper-1", content=WAV), 404
    )
    two = Client(make_service([folder, f"more={folder}"]))
    assert "no such model; this server has: talks, more" in refused(send(two, WAV, OPENAI, model="whisper-1"), 404)


@pytest.fixture
def several_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The random model, which writes no spaces, writes three words; their times are those of its CTC output."""
    transcribe = Translator.transcribe

    def heard(*arguments: Any) -> list[Translation]:
        return [replace(one, outputs=[replace(one.outputs[0], text="the cat sat")]) for one in transcribe(*arguments)]

    monkeypatch.setattr(Translator, "transcribe", heard)


def heard_with_words(service: Service) -> Transcript:
    """What `transduce transcribe` makes of the recording."""
    translator = service.models.speech("").translator
    heard = RecordingPieces.of(decode(WAV, LIMITS).resampled())
    segments = heard.segments(translator.transcribe(heard.features, translator.request(log_probs="outputs")))
    found = [words_of(translator, *pair) for pair in heard.spoken(segments)]
    return Transcript("", heard.with_words(segments, found))


@pytest.mark.usefixtures("several_words")
def test_subtitles_and_text_are_those_of_the_command_line(client: Client, service: Service) -> None:
    expected = heard_with_words(service)
    assert [word.text for word in expected.segments[0].words] == ["the", "cat", "sat"]
    forms = {"text": f"{expected.text}\n", "srt": srt(expected), "vtt": vtt(expected)}
    for name, text in forms.items():
        ours = client("POST", f"/v1/transcribe?response_format={name}", content=WAV)
        theirs = send(client, WAV, OPENAI, response_format=name)
        assert ours.text == theirs.text == text
        assert ours.headers["content-type"] == f"text/{'vtt' if name == 'vtt' else 'plain'}; charset=utf-8"


@pytest.mark.usefixtures("several_words")
def test_words_have_times_where_they_are_asked_for(client: Client, service: Service) -> None:
    (segment,) = heard_with_words(service).segments
    ours = client("POST", "/v1/transcribe?response_format=verbose_json", content=WAV)
    words = TranscribeAnswer.model_validate_json(ours.content, strict=True).segments[0].words
    assert words is not None
    assert [(word.text, word.begin, word.end) for word in words] == [
        (word.text, word.begin, word.end) for word in segment.words
    ]
    times = {"timestamp_granularities[]": ["segment", "word"]}  # as OpenAI's clients send a list
    both = send(client, WAV, OPENAI, response_format="verbose_json", **times)
    answer = VerboseTranscriptionAnswer.model_validate_json(both.content, strict=True)
    assert answer.segments is not None
    assert answer.words is not None
    assert [(one.word, one.start, one.end) for one in answer.words] == [
        (word.text, word.begin, word.end) for word in segment.words
    ]
    times["timestamp_granularities[]"] = ["word"]
    alone = send(client, WAV, OPENAI, response_format="verbose_json", **times).json()
    assert "segments" not in alone
    assert alone["words"] == both.json()["words"]


def test_formats_that_do_not_exist_are_refused_in_one_line(client: Client) -> None:
    known = "json, text, srt, vtt, verbose_json"
    assert refused(send(client, WAV, OPENAI, response_format="pdf"), 400) == f"response_format: must be one of {known}"
    message = refused(client("POST", "/v1/transcribe?response_format=pdf", content=WAV), 400)
    assert message == "query.response_format: Input should be 'json', 'text', 'srt', 'vtt' or 'verbose_json'"
    times = "timestamp_granularities[]"
    verbose = {"response_format": "verbose_json"}
    assert refused(send(client, WAV, OPENAI, **verbose, **{times: "letter"}), 400) == (
        "timestamp_granularities[]: must be one of segment, word"
    )
    assert "set response_format=verbose_json" in refused(send(client, WAV, OPENAI, **{times: "word"}), 400)
    assert "2 fields named `model`" in refused(send(client, WAV, OPENAI, model=["talks", "talks"]), 400)
    assert "?response_format=srt" in refused(send(client, WAV, response_format="srt"), 400)
    address = "/v1/transcribe?response_format=vtt&attention=true"
    assert "the format vtt cannot hold it" in refused(client("POST", address, content=WAV), 400)


# --- words -----------------------------------------------------------------------------------------------------


def write_words(run: Path, *words: str) -> Path:
    """The n-gram model of a run, which may write these words and no others."""
    (run / "words.txt").write_text("\n".join(words) + "\n")
    transduce.ngram(run, [run / "words.txt"], lexicon=run / "words.txt", tune=False, quiet=True)
    return run


@pytest.fixture(scope="module")
def with_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_words(write_speech_model(tmp_path_factory.mktemp("words") / "talks"), *WORDS[:8])


def test_both_routes_search_with_words(with_words: Path, folder: Path) -> None:
    service = make_service([with_words], ngram=True)
    client = Client(service)
    found = [send(client, WAV, path).json()["text"] for path in ("/v1/transcribe", OPENAI)]
    translator = transduce.load(with_words, ngram=True, device="cpu", quiet=True)
    utterances = RecordingPieces.of(decode(WAV, LIMITS).resampled()).features
    assert found == [translator.transcribe(utterances)[0].outputs[0].text] * 2
    assert found[0]
    assert set(found[0].split()) <= set(WORDS[:8])
    assert send(Client(make_service([with_words])), WAV).json()["text"] != found[0], "only if it is asked for"
    listened = client("POST", "/v1/transcribe?attention=true&response_format=verbose_json&beam=3", content=WAV).json()
    assert listened["segments"][0]["attention"]
    assert " ".join(word["text"] for word in listened["segments"][0]["words"]) == listened["text"]


def test_a_search_with_words_has_its_turn_and_its_time(with_words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One search at a time for each model; a client that waits too long is told so."""
    service = make_service([with_words], ngram=True, request_s=1.0)
    model = service.models.speech("")
    assert TranscriptionWork(model, model.translator.request()).alone is model
    service.decoder = partial(decode, limits=LIMITS)  # type: ignore[assignment]  # starting a process may take long
    searching, answered = threading.Event(), threading.Event()

    def search(*_: object) -> Any:
        searching.set()
        answered.wait()
        return iter(())

    monkeypatch.setattr(CtcEngine, "stream", search)
    try:
        assert "not finished within 1 s" in refused(send(Client(service), WAV), 503)
        assert searching.is_set()
    finally:
        answered.set()


def test_words_are_for_the_speech_models_of_a_server(with_words: Path, run: Path) -> None:
    client = Client(make_service([with_words, run], ngram=True))
    assert set(send(client, WAV).json()["text"].split()) <= set(WORDS[:8])
    assert client.post("/v1/translate", {"text": "the cat sat"}).status_code == 200


def test_new_words_take_their_place(tmp_path: Path, run: Path) -> None:
    talks = write_words(write_speech_model(tmp_path / "talks"), "cat")
    service = make_service([talks, run], ngram=True)
    before = service.models.all
    for model in before:
        service.models.refresh(model)
    assert service.models.all == before
    write_words(talks, "seven")
    for model in before:
        service.models.refresh(model)
    assert service.models.speech("") is not before[0]
    assert service.models.named("") is before[1]
    assert set(send(Client(service), WAV).json()["text"].split()) <= {"seven"}


def test_servers_without_words_for_their_models_are_refused(
    folder: Path, with_words: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_ctc = write_speech_model(tmp_path / "without", ctc_weight=0.0, ctc_search=0.0)
    for models, options, message in (
        ([folder], [], f"`transduce ngram {folder}` creates it"),
        ([run], [], "--ngram is for speech models, and none of these models is one: leave it out"),
        ([without_ctc], [], "needs a CTC output: train a model with model.ctc_weight above 0"),
        ([with_words], ["--engine", "ct2"], "an n-gram model needs the torch engine: leave out --engine ct2"),
    ):
        assert main(["serve", *map(str, models), "--ngram", "--port", str(free_port()), *options]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


# --- what models do not know -----------------------------------------------------------------------------------


def test_a_model_without_ctc_has_subtitles_but_no_times_of_words(tmp_path: Path) -> None:
    client = Client(make_service([write_speech_model(tmp_path / "talks", ctc_weight=0.0, ctc_search=0.0)]))
    assert "00:00:00,000 --> 00:00:01,000" in client("POST", "/v1/transcribe?response_format=srt", content=WAV).text
    message = refused(client("POST", "/v1/transcribe?response_format=verbose_json", content=WAV), 400)
    assert "does not know the times of words" in message
    seen = client("POST", "/v1/transcribe?attention=true", content=WAV).json()["segments"][0]["attention"]
    assert "ctc" not in seen


@pytest.mark.usefixtures("several_words")
def test_times_are_those_of_the_recording_if_a_model_leaves_out_quiet(tmp_path: Path) -> None:
    client = Client(make_service([write_speech_model(tmp_path / "talks", {"trim_quiet": 35.0})]))
    padded = np.concatenate([np.zeros((RATE // 2, 1), np.float32), sound(1.0), np.zeros((RATE // 4, 1), np.float32)])
    path = "/v1/transcribe?attention=true&response_format=verbose_json"
    segment = client("POST", path, content=encoded(padded, subtype="FLOAT")).json()["segments"][0]
    assert (segment["begin"], segment["end"]) == (0.0, 1.75)
    assert (segment["attention"]["begin"], segment["attention"]["end"]) == (0.5, 1.5)
    assert 0.5 <= segment["words"][0]["begin"] < segment["words"][-1]["end"] <= 1.54
    plain = client("POST", path, content=encoded(sound(1.0), subtype="FLOAT")).json()["segments"][0]
    assert plain["attention"]["weights"] == segment["attention"]["weights"]


@pytest.mark.parametrize(
    ("kind", "subtype", "rate", "channels"),
    [("WAV", "PCM_16", 16_000, 1), ("WAV", "FLOAT", 192_000, 8), ("FLAC", None, 44_100, 2), ("OGG", "OPUS", 48_000, 1),
     ("OGG", "VORBIS", 22_050, 2), ("MP3", None, 44_100, 1), ("MP3", None, 8_000, 1)],
)  # fmt: skip
def test_every_type_is_decoded_from_memory_as_from_a_file(
    tmp_path: Path, kind: str, subtype: str | None, rate: int, channels: int
) -> None:
    if kind not in soundfile.available_formats():
        pytest.skip(f"libsndfile without {kind} on this system")
    content = encoded(sound(0.5, rate, channels), rate, kind, subtype)
    assert type_of(content) == {"WAV": "wav", "FLAC": "flac", "OGG": "ogg", "MP3": "mp3"}[kind]
    (tmp_path / "a").write_bytes(content)
    np.testing.assert_allclose(
        decode(content, LIMITS).resampled(), read_samples(Recording(str(tmp_path / "a"))), atol=1e-6
    )


# --- limits ----------------------------------------------------------------------------------------------------


def test_size_length_and_type_have_limits(folder: Path) -> None:
    client = Client(make_service([folder], audio_bytes=40_000, audio_seconds=1, audio_types=("wav",)))
    assert send(client, WAV).status_code == 200
    too_long = encoded(sound(1.1)[:, 0], subtype="PCM_U8")
    assert refused(send(client, too_long), 413) == "the recording: it lasts 1.1 s; at most 1 s are accepted"
    assert "at most 40,000 are accepted" in refused(send(client, b"RIFF" + bytes(40_000)), 413)
    assert "the body is too large" in refused(send(client, bytes(100_000)), 413)
    assert refused(send(client, encoded(sound(0.5), kind="FLAC")), 415) == (
        "the recording: flac is not accepted; send wav"
    )


def test_other_routes_do_not_take_bodies_of_that_size(client: Client) -> None:
    assert "1,000,000 bytes" in refused(client("POST", "/v1/generate", content=bytes(1_000_001)), 413)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"audio_bytes": 0}, "--audio-bytes 0: must be from 1"),
        ({"audio_seconds": 0}, "--audio-seconds 0: must be from 1"),
        ({"audio_types": ("wav", "exe")}, "--audio-types wav exe: choose from wav, flac, ogg, mp3"),
        ({"audio_types": ()}, "--audio-types"),
        ({"uploads": 0}, "--uploads 0"),
        ({"generated_tokens": 0}, "--max-tokens 0"),
    ],
)
def test_limits_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        ServerSettings(**settings)


def test_only_so_many_recordings_are_in_memory_at_a_time(folder: Path) -> None:
    service = make_service([folder], uploads=1)

    async def slow_upload() -> tuple[httpx.Response, httpx.Response]:
        more = asyncio.Event()

        async def body() -> Any:
            yield WAV[:1000]
            await more.wait()
            yield WAV[1000:]

        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            first = asyncio.create_task(client.post("/v1/transcribe", content=body()))
            await asyncio.sleep(0.05)
            second = await client.post("/v1/transcribe", content=WAV)
            more.set()
            return await first, second

    first, second = asyncio.run(slow_upload())
    assert first.status_code == 200
    assert "too many recordings" in refused(second, 503)
    assert send(Client(service), WAV).status_code == 200


def test_a_stranger_is_refused_before_the_recording_is_read(folder: Path, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys", "one", 1)
    service = make_service([folder], keys=str(tmp_path / "keys"))

    async def ask() -> httpx.Response:
        async def body() -> Any:
            raise AssertionError("the body was read")
            yield

        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/v1/transcribe", content=body())

    assert "needs an API key" in refused(asyncio.run(ask()), 401)
    known = Client(service, authorization=f"Bearer {key}")
    assert send(known, WAV).status_code == 200
    refused(send(known, WAV), 429)


# --- hostile uploads -------------------------------------------------------------------------------------------


def lengthened(content: bytes) -> bytes:
    """A FLAC file whose header promises 2^36 - 1 samples."""
    head = bytearray(content)
    head[21] |= 0x0F
    head[22:26] = b"\xff" * 4
    return bytes(head)


def with_rate(content: bytes, rate: int) -> bytes:
    return content[:24] + rate.to_bytes(4, "little") + content[28:]


NAN = np.full(RATE, np.nan, np.float32)
HOSTILE: list[tuple[str, bytes, int, str]] = [
    ("empty", b"", 400, "it has no bytes"),
    ("no samples", encoded(np.zeros(0, np.float32)), 400, "no samples"),
    ("text", b"this is not sound\n" * 50, 415, "not a recording of a known type"),
    ("a header and nothing else", b"RIFF\x00\x00\x00\x00WAVE", 400, "cannot be decoded"),
    ("a wav that is cut", WAV[: len(WAV) // 2], 400, "cut short"),
    ("a flac that is cut", encoded(sound(1.0), kind="FLAC")[:5_000], 400, "cut short|cannot be decoded"),
    ("an ogg that is cut", encoded(sound(1.0), kind="OGG")[:300], 400, "cut short"),
    ("an ogg without its last bytes", encoded(sound(1.0), kind="OGG")[:-10], 400, "cut short: its last Ogg page"),
    ("a wav without its last second", encoded(sound(2.0))[: -2 * RATE], 400, "cut short: its header promises 64,000"),
    ("10 ms", encoded(sound(0.01)), 400, "10 ms; it must last at least 50 ms"),
    ("NaN", encoded(NAN, subtype="FLOAT"), 400, "NaN, infinite"),
    ("an hour of silence", encoded(np.zeros(8_000 * 3_600, np.int16), 8_000, "FLAC"), 413, "it lasts 3,600.0 s"),
    ("a flac that promises weeks", lengthened(encoded(sound(0.2), kind="FLAC")), 413, "it lasts"),
    ("a rate of 2 GHz", with_rate(WAV, 2**31 - 1), 415, "sampling rate"),
    ("a rate of 1 Hz", with_rate(WAV, 1), 415, "sampling rate"),
    ("100 channels", encoded(np.zeros((2_000, 100), np.float32)), 415, "100 channels; at most 32"),
    ("an executable", b"\x7fELF" + bytes(500), 415, "not a recording"),
]


@pytest.mark.parametrize(("content", "status", "reason"), [case[1:] for case in HOSTILE], ids=[c[0] for c in HOSTILE])
def test_hostile_recordings_are_refused_in_one_line(client: Client, content: bytes, status: int, reason: str) -> None:
    message = refused(send(client, content), status)
    assert re.search(reason, message), message
    assert "\n" not in message
    assert send(client, WAV).status_code == 200


def test_a_refused_recording_costs_the_others_of_its_batch_nothing() -> None:
    decoded: list[bytes] = []

    def decoder(recording: bytes) -> Sound:
        decoded.append(recording)
        return decode(recording, LIMITS)

    batch = [WAV, b"no recording", WAV]
    first, refusal, last = DecodingWork(cast(Decoder, decoder), 0.0, 25.0)(batch)
    assert isinstance(refusal, UploadError)
    assert isinstance(first, RecordingPieces)
    assert isinstance(last, RecordingPieces)
    assert decoded == batch


FORM = "multipart/form-data; boundary=b"
PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'


@pytest.mark.parametrize(
    ("content_type", "body", "reason"),
    [
        ("multipart/form-data", b"x", "no valid boundary"),
        ("multipart/form-data; boundary=" + "x" * 71, b"x", "no valid boundary"),
        (FORM, b"", "its end is missing"),
        (FORM, PART + WAV, "its end is missing"),
        (FORM, PART + WAV + b"\r\n" + PART + WAV + b"\r\n--b--", "2 fields named `file`"),
        (FORM, b"--b--\r\n", "0 fields named `file`"),
        (FORM, b"--b\r\n\r\nx\r\n--b--", "no valid header"),
        (FORM, b"--bb\r\n" + PART + b"\r\n--b--", "no valid header"),
        (FORM, b"--b\r\nX: y\r\n\r\nx\r\n--b--", "no name"),
        (FORM, b"--b\r\n" + b"X: y\r\n" * 1_000 + b"\r\nx\r\n--b--", "no valid header"),
        (
            FORM,
            (b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n' * 40) + b"--b--",
            "more than 32 fields",
        ),
        (FORM, b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\xff\r\n' + PART + b"x\r\n--b--", "UTF-8"),
    ],
)
def test_forms_that_make_no_sense(client: Client, content_type: str, body: bytes, reason: str) -> None:
    for path in ("/v1/transcribe", OPENAI):
        answer = client("POST", path, content=body, headers={"content-type": content_type})
        assert reason in refused(answer, 400)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/tmp/x.wav", "a\0b", "C:\\x", "x" * 2_000, "é\n\r"])
def test_names_of_files_mean_nothing(client: Client, name: str) -> None:
    expected = send(client, WAV).json()
    assert client("POST", "/v1/transcribe", files={"file": (name, WAV)}).json() == expected


def test_a_wav_of_unknown_length_is_transcribed(client: Client) -> None:
    streamed = WAV[:4] + b"\xff" * 4 + WAV[8:40] + b"\xff" * 4 + WAV[44:]
    assert send(client, streamed).json() == send(client, WAV).json()


def damaged(draw: random.Random) -> bytes:
    """A recording with some bytes changed, removed or doubled; its first bytes may still be those of its type."""
    kind, subtype = draw.choice([("WAV", "PCM_16"), ("FLAC", None), ("OGG", "VORBIS"), ("OGG", "OPUS")])
    content = bytearray(encoded(sound(0.2), kind=kind, subtype=subtype))
    for _ in range(draw.randint(1, 12)):
        at = draw.randrange(4 if draw.random() < 0.8 else 0, min(len(content), draw.choice([60, 10**6])))
        if draw.random() < 0.6:
            content[at] = draw.randrange(256)
        elif draw.random() < 0.5:
            del content[at : at + draw.randint(1, 200)]
        else:
            content[at:at] = content[at : at + draw.randint(1, 200)]
    return bytes(content)


def test_damaged_recordings_never_break_the_server() -> None:
    """Every outcome is samples at 16 kHz within the limit, or one line that says what is wrong."""
    draw, outcomes = random.Random(1), []
    for _ in range(300):
        try:
            found = len(decode(damaged(draw), LIMITS).resampled()) <= 60 * RATE + 1
            outcomes.append("decoded" if found else "too much")
        except UploadError as error:
            outcomes.append("several lines" if "\n" in str(error) else error.reason)
    assert {"decoded", "broken"} <= set(outcomes) <= {"decoded", "broken", "type", "empty", "too long", "too short"}


def test_damaged_uploads_beside_good_requests(folder: Path, run: Path) -> None:
    service, draw = make_service([folder, run], audio_seconds=60.0, uploads=100, longest_wait_s=60.0), random.Random(2)
    expected = send(Client(service), WAV).json()
    bad = [b"--b\r\n" + damaged(draw)[: draw.randint(0, 5_000)] for _ in range(20)]

    async def together() -> list[httpx.Response]:
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            asked = [client.post("/v1/transcribe", content=content, headers={"content-type": FORM}) for content in bad]
            asked += [client.post("/v1/transcribe", content=damaged(draw)) for _ in range(20)]
            asked += [client.post("/v1/transcribe", content=WAV) for _ in range(5)]
            asked += [client.post("/v1/translate", json={"text": "the cat"}) for _ in range(5)]
            return await asyncio.gather(*asked)

    answers = asyncio.run(together())
    assert all(answer.status_code in (200, 400, 413, 415) for answer in answers[:40])
    for answer in answers[40:45]:  # they share batches, whose rounding may decide between equally probable texts
        found = answer.json()
        assert (found["model"], found["seconds"]) == ("talks", 1.0)
        assert found["segments"][0]["confidence"] == pytest.approx(expected["segments"][0]["confidence"], abs=1e-3)
    assert all(answer.status_code == 200 for answer in answers[45:])
    assert json.loads(answers[0].content)["error"]


def test_a_recording_leaves_no_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    client = Client(make_service([folder]))
    assert send(client, WAV).status_code == 200
    assert list(tmp_path.iterdir()) == []
    assert 'transduce_audio_seconds_total{model="talks"} 1.0' in client.get("/metrics").text
