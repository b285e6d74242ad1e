"""The real server as a process: a real client, the limits of its sockets, and a stop that answers what was accepted."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("granian")
pytest.importorskip("libretranslatepy")

from folders import write_character_model, write_folder, write_speech_model
from libretranslatepy import LibreTranslateAPI
from serving import FAKE_LINGUA

from transduce import checkpoint
from transduce.cli import main
from transduce.server.settings import ServerSettings
from transduce.translator import LoadOptions, Translator

# As the command line starts it, but with limits that a test can wait for.
PROGRAM = """
import json, sys
from transduce.server.running import serve
from transduce.server.settings import ServerSettings
from transduce.translator import LoadOptions
serve(sys.argv[1:2], ServerSettings(**json.loads(sys.argv[2])), LoadOptions(threads=1))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("process") / "run")


@pytest.fixture(scope="module", autouse=True)
def fake_lingua(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The real one would take half a minute of every server's start."""
    folder = tmp_path_factory.mktemp("lingua")
    (folder / "lingua.py").write_text(FAKE_LINGUA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Served:
    """A server process."""

    def __init__(self, *arguments: str, port: int) -> None:
        self.port = port
        self.process = subprocess.Popen(
            [sys.executable, *arguments], stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}health/live", timeout=5).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(self.end())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}translate", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return dict(json.load(answer))

    def end(self) -> str:
        """What it said on stderr; it must have left in peace."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, said
        return said


@contextmanager
def refused(status: str) -> Iterator[None]:
    with pytest.raises(urllib.error.HTTPError, match=status) as refusal:
        yield
    refusal.value.close()


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Served]:
    port = free_port()
    settings = {"port": port, "header_s": 0.5, "body_s": 0.5, "reload_s": 0.1}
    served = Served("-c", PROGRAM, str(run), json.dumps(settings), port=port)
    yield served
    assert "Traceback" not in served.end()


def test_the_command_line_and_a_real_client(run: Path) -> None:
    port = free_port()
    options = ["--threads", "1", "--batch", "4", "--queue", "9", "--characters", "99"]
    served = Served("-m", "transduce", "serve", f"en-fr={run}", "--port", str(port), *options, port=port)
    client = LibreTranslateAPI(served.url)
    assert client.languages() == [{"code": "en", "name": "English", "targets": ["fr"]}]
    expected = Translator.load(run, LoadOptions(threads=1)).translate(["the cat sat."])[0]
    assert client.translate("the cat sat.", "en", "fr") == expected
    with refused("413"):
        client.translate("a" * 100, "en", "fr")
    assert served.end().startswith(f"transduce: http://127.0.0.1:{port} translates en-fr")


def test_language_and_speech_models_from_the_command_line(tmp_path: Path) -> None:
    """Over a real socket: a stream, a client that leaves one, an upload, and every limit of the command line."""
    soundfile = pytest.importorskip("soundfile")
    stories, talks = write_character_model(tmp_path / "stories"), write_speech_model(tmp_path / "talks")
    soundfile.write(tmp_path / "a.wav", [0.1, -0.1] * 4_000, 16_000)
    soundfile.write(tmp_path / "b.flac", [0.1, -0.1] * 4_000, 16_000)
    soundfile.write(tmp_path / "long.wav", [0.1, -0.1] * 9_000, 16_000)
    port, limits = free_port(), ["--max-tokens", "3000", "--audio-bytes", "40000", "--audio-seconds", "1"]
    options = ["--threads", "1", *limits, "--audio-types", "wav", "--uploads", "2"]
    served = Served(
        "-m", "transduce", "serve", str(stories), f"spoken={talks}", "--port", str(port), *options, port=port
    )

    def post(path: str, content: bytes) -> str:
        headers = {"content-type": "application/json"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{served.url}{path}", content, headers), timeout=60
        ) as answer:
            return str(answer.read().decode())

    lines = post("v1/generate", b'{"stream": true, "max_tokens": 20}').splitlines()
    assert len([line for line in lines if line.startswith("data: {")]) == 21
    assert "event: done" in lines
    with served.connect() as leaving:
        body = b'{"stream": true, "max_tokens": 3000}'
        head = f"POST /v1/generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        leaving.sendall(head.encode() + b"\r\n\r\n" + body)
        assert b"200 OK" in leaving.recv(100)
    until = time.monotonic() + 60
    while "transduce_abandoned_total 1.0" not in urllib.request.urlopen(f"{served.url}metrics").read().decode():
        assert time.monotonic() < until, "the server did not notice that the client left"
        time.sleep(0.05)
    assert json.loads(post("v1/transcribe", (tmp_path / "a.wav").read_bytes()))["seconds"] == 0.5
    for path, content, status in [
        ("v1/generate", b'{"max_tokens": 3001}', "413"),
        ("v1/transcribe", (tmp_path / "b.flac").read_bytes(), "415"),
        ("v1/transcribe", (tmp_path / "long.wav").read_bytes(), "413"),
        ("v1/transcribe", bytes(100_000), "413"),
    ]:
        with refused(status):
            post(path, content)
    assert f"transduce: http://127.0.0.1:{port} transcribes with spoken; generates text with stories\n" in served.end()


def test_keys_from_the_command_line(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "keys")
    assert main(["key", file, "website", "--requests-per-minute", "2"]) == 0
    key = capfd.readouterr().out.strip()
    port = free_port()
    options = ["--keys", file, "--host", "0.0.0.0", "--allow-host", "example.org", "--threads", "1"]
    served = Served("-m", "transduce", "serve", str(run), "--port", str(port), *options, port=port)
    assert LibreTranslateAPI(served.url, api_key=key).translate("the cat", "en", "de")
    with refused("403"):
        LibreTranslateAPI(served.url, api_key="guess").translate("the cat", "en", "de")
    named = urllib.request.Request(f"{served.url}health", headers={"Host": "example.org"})
    urllib.request.urlopen(named, timeout=5).close()
    assert LibreTranslateAPI(served.url, api_key=key).translate("the cat", "en", "de")
    with refused("429"):
        LibreTranslateAPI(served.url, api_key=key).translate("the cat", "en", "de")
    served.end()


def test_a_stop_answers_what_was_accepted(run: Path) -> None:
    port = free_port()
    served = Served("-c", PROGRAM, str(run), json.dumps({"port": port}), port=port)
    document = "\n".join(f"the cat sat on {number} old bridges in winter rain" for number in range(400))
    answers: list[dict[str, Any]] = []
    body = {"q": document, "source": "en", "target": "de"}
    asking = [threading.Thread(target=lambda: answers.append(served.ask(body))) for _ in range(4)]
    for thread in asking:
        thread.start()
    time.sleep(0.3)
    assert not answers, "they must be under way when the signal comes"
    served.end()
    for thread in asking:
        thread.join()
    assert [answer["translatedText"].count("\n") for answer in answers] == [399] * 4


def test_new_weights_drop_no_request(run: Path, tmp_path: Path) -> None:
    folder, port = Path(shutil.copytree(run, tmp_path / "run")), free_port()
    served = Served("-c", PROGRAM, str(folder), json.dumps({"port": port, "reload_s": 0.05}), port=port)
    body = {"q": "the cat sat on a mat", "source": "en", "target": "de"}
    before = served.ask(body)
    weights = checkpoint.RunFolder(folder).weights("best")
    tensors = checkpoint.read_tensors(weights)
    checkpoint.write_tensors(weights, {name: tensor.flip(0) for name, tensor in tensors.items()})
    until = time.monotonic() + 60
    while served.ask(body) == before:  # an answer that fails raises
        assert time.monotonic() < until
    assert served.end().endswith("transduce: en-de: loaded new weights\n")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs")
def test_a_fifo_in_place_of_weights_stops_nobody(run: Path, tmp_path: Path) -> None:
    folder, port = Path(shutil.copytree(run, tmp_path / "run")), free_port()
    served = Served("-c", PROGRAM, str(folder), json.dumps({"port": port, "reload_s": 0.05}), port=port)
    os.mkfifo(tmp_path / "fifo")
    os.replace(tmp_path / "fifo", folder / "best.safetensors")  # at once: a moment without a file would be noticed
    until = time.monotonic() + 60
    while 'reloads_total{model="en-de",outcome="failed"} 1.0' not in metrics(served):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert served.ask({"q": "the cat sat on a mat", "source": "en", "target": "de"})["translatedText"]
    assert f"{folder}/best.safetensors: cannot be read (not a regular file)" in served.end()


def test_ctrl_c_is_a_stop_too(run: Path) -> None:
    port = free_port()
    served = Served("-c", PROGRAM, str(run), json.dumps({"port": port}), port=port)
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(60) == 0
    served.process.communicate()


# --- sockets ---------------------------------------------------------------------------------------------------


def status(connection: socket.socket) -> str:
    answer = connection.recv(65_536).decode()
    return answer.split(" ")[1] if answer else "closed"


@pytest.mark.parametrize("sent", [b"", b"GET /heal", b"GET /health HTTP/1.1\r\nHost: loc"])
def test_slow_headers_are_given_up(server: Served, sent: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(sent)
        began = time.monotonic()
        assert status(connection) in ("closed", "408")
        assert time.monotonic() - began < ServerSettings().header_s, "as this server was told, and not as others are"


def test_a_slow_body_is_given_up(server: Served) -> None:
    with server.connect() as connection:
        connection.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert status(connection) == "408"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000, "431"),
        (b"GET /" + b"a" * 200_000, "431"),
        (b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000000\r\n\r\n", "413"),
        (b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", "400"),
    ],
    ids=["header", "path", "body", "negative"],
)
def test_what_is_too_large_is_refused(server: Served, head: bytes, expected: str) -> None:
    with server.connect() as connection:
        try:
            connection.sendall(head)
            found = status(connection)
        except ConnectionError:
            found = "closed"
        assert found in (expected, "414", "closed")
    assert server.ask({"q": "the cat", "source": "en", "target": "de"})["translatedText"]


def answer_to_chunks(server: Served) -> str:
    with server.connect() as connection:
        connection.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n" % 65_536 + b"a" * 65_536 + b"\r\n"
        try:
            for _ in range(40):
                connection.sendall(chunk)
            return status(connection)
        except ConnectionError:
            return "closed"


def test_chunks_without_end_are_refused(server: Served) -> None:
    """On a busy machine the time for a body may be over first (408): then once more."""
    found = next((found for found in (answer_to_chunks(server) for _ in range(20)) if found != "408"), "408")
    assert found in ("413", "closed")


def test_who_hangs_up_is_noticed(server: Served) -> None:
    body = json.dumps({"q": "The cat sat. " * 3_000, "source": "en", "target": "de"}).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = server.connect()
    connection.sendall(head.encode() + body)
    time.sleep(0.3)
    connection.close()
    until = time.monotonic() + 60
    while "transduce_abandoned_total 1.0" not in metrics(server):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert "transduce_waiting_requests 0.0" in metrics(server)


def metrics(server: Served) -> str:
    with urllib.request.urlopen(f"{server.url}metrics", timeout=10) as page:
        return str(page.read().decode())


def test_the_log_has_no_texts(run: Path) -> None:
    port = free_port()
    served = Served("-c", PROGRAM, str(run), json.dumps({"port": port}), port=port)
    served.ask({"q": "unmentionable", "source": "en", "target": "de"})
    with refused("404"):
        urllib.request.urlopen(f"{served.url}unmentionable?q=unmentionable", timeout=5)
    assert "unmentionable" not in served.end()


# --- what is wrong is said before anything is loaded -----------------------------------------------------------


def test_a_port_that_is_taken(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(run), "--port", str(port)]) == 2
    assert re.fullmatch(
        rf"transduce: 127\.0\.0\.1:{port}: cannot listen on this address \(Address already in use\); choose another --port or --host\n",
        capfd.readouterr().err,
    )


def test_being_exposed_needs_keys(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(run), "--host", "0.0.0.0"]) == 2
    assert (
        "require API keys with --keys FILE (`transduce key FILE NAME` creates one), or allow everyone with --open"
        in capfd.readouterr().err
    )


def test_a_missing_extra_is_one_line(
    run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("transduce.api.exchange.find_spec", lambda name: None)
    assert main(["serve", str(run)]) == 2
    said = capfd.readouterr().err
    assert said == "transduce: this needs the package 'fastapi': pip install 'transduce[serve]'\n"
