"""Requests with texts, valid in most respects and wrong in some: what is wrong everywhere is refused at once."""

import json
import random
from typing import Any

from .clients import Attempt

SENTENCE = "Two dogs run. "
VALID = [
    ("/translate", {"q": "A man is walking.", "source": "en", "target": "de"}),
    ("/translate", {"q": ["<b>A</b> man", "x"], "source": "en", "target": "de", "format": "html", "alternatives": 2}),
    ("/detect", {"q": "A man is walking."}),
    ("/v1/translate", {"text": "Two dogs.", "n_best": 3, "beam": 4, "tokens": True}),
    ("/v1/translate", {"text": ["Two dogs.", "A cat."], "source": "en", "target": "de", "alpha": 0.6}),
]
INSIDE = [  # a look inside a model takes many times as long, so these are few
    ("/v1/translate", {"text": "Two dogs.", "attention": True}),
    ("/v1/attention", {"text": "Two dogs.", "output": "Zwei Hunde."}),
    ("/v1/explore/translate", {"text": "Two dogs.", "n_best": 2}),
    ("/v1/explore/attention", {"text": "Two dogs.", "off": [["encoder", 0, 0]]}),
    ("/v1/explore/tree", {"text": "Two dogs.", "beam": 2}),
]
PATHS = [
    "/", "/health", "/health/live", "/health/ready", "/languages", "/metrics", "/docs", "/openapi.json", "/v1/models",
    "/frontend/settings", "/v1/explore/training?model=x", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/page/..%2f..",
    "/%00", "/translate?q=" + "a" * 300, "//translate", "/v1/%ff", "/static/../..",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, -1, 0, 2**70, 1e308, "", " ", "\x00", "é" * 20, "\ud800", "<script>", "a" * 200, SENTENCE * 3, [], [[]], {},
    {"a": {}}, ["x"] * 9, "../../etc/passwd", "auto", "en", "🦆" * 9, "\u202e", "NaN", "%s%n", "' OR 1=1 --",
]  # fmt: skip
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"]
HEADERS = [
    "Host: localhost", "Host: evil.example", "Host: ", "Origin: http://evil.example", "Content-Type: text/plain", "Accept: */*",
    "Content-Type: application/json; charset=utf-16", "Authorization: Bearer x", "X-API-Key: ключ", "Cookie: a=b", "Expect: nothing",
    "Content-Encoding: gzip", "X-Forwarded-Host: evil", "Range: bytes=0-1",
]  # fmt: skip


def translation_attempt(draw: random.Random) -> Attempt:
    """A fuzzed request to a translation model, or one of any method, path and body."""
    kind = draw.random()
    if kind < 0.15:
        return Attempt(_plain(draw))
    path, body = draw.choice(VALID if draw.random() < 0.95 else INSIDE)
    mutated: Any = dict(body)
    for _ in range(draw.choice([0, 1, 1, 1, 2])):
        mutated[draw.choice([*body, "model", "x"])] = draw.choice(VALUES)
    content = json.dumps(mutated).encode()
    if kind < 0.4:
        content = _bitten(draw, content)
    typed = "application/json" if kind < 0.9 else "application/x-www-form-urlencoded"
    return Attempt(_request(draw, "POST", path, content, typed))


def _plain(draw: random.Random) -> bytes:
    method = draw.choice(METHODS)
    content = b"" if method in ("GET", "HEAD") else draw.randbytes(draw.randint(0, 200))
    return _request(draw, method, draw.choice(PATHS), content, "application/json")


def _bitten(draw: random.Random, content: bytes) -> bytes:
    """Bytes cut out, doubled or changed."""
    at, length = draw.randrange(len(content)), draw.randint(1, 8)
    return content[:at] + draw.choice([b"", draw.randbytes(length), content[at:] * 2]) + content[at + length :]


def _request(draw: random.Random, method: str, path: str, content: bytes, kind: str) -> bytes:
    extra = draw.choice(HEADERS) if draw.random() < 0.1 else "Accept: */*"
    host = "" if extra.startswith("Host") else "Host: localhost\r\n"
    typed = "" if extra.startswith("Content-Type") else f"Content-Type: {kind}\r\n"
    head = f"{method} {path} HTTP/1.1\r\n{host}{typed}{extra}\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


# --- language models -------------------------------------------------------------------------------------------

GENERATE = [
    ("/v1/generate", {"prompt": "the cat", "max_tokens": 8}),
    ("/v1/generate", {"prompt": "the", "sampling": True, "n": 3, "seed": 7, "top_k": 5, "top_p": 0.9, "temperature": 0.7, "max_tokens": 12}),
    ("/v1/generate", {"prompt": "a", "max_tokens": 40, "stop": [" ", "\n"]}),
    ("/v1/generate", {"prompt": "a", "max_tokens": 60, "stream": True}),
    ("/v1/completions", {"model": "stories", "prompt": ["the cat"], "max_tokens": 8, "n": 2, "seed": 1}),
    ("/v1/completions", {"model": "stories", "prompt": "a", "temperature": 0, "echo": False, "logprobs": None, "user": "x"}),
    ("/v1/completions", {"model": "stories", "prompt": "the", "max_tokens": 40, "stream": True, "stop": "e"}),
]  # fmt: skip
LONG = {"prompt": "the", "model": "stories", "max_tokens": 2_000, "stream": True}  # nobody stays until its end
GENERATE_VALUES: list[Any] = [
    *VALUES, 1, 2, 16, 17, 0.5, -0.1, 1e-300, 2**63, 2**63 - 1, 100_000, "stories", "talks", "the " * 2_000, ["a", "b"], [""], ["x" * 201],
]  # fmt: skip


def generate_attempt(draw: random.Random) -> Attempt:
    """A fuzzed request to a language model; one in ten is a stream whose client hangs up in its middle."""
    if draw.random() < 0.1:
        path = draw.choice(["/v1/generate", "/v1/completions"])
        request = _request(draw, "POST", path, json.dumps(LONG).encode(), "application/json")
        return Attempt(request, draw.uniform(0, 0.1))
    path, body = draw.choice(GENERATE)
    mutated: Any = dict(body)
    for _ in range(draw.choice([0, 1, 1, 1, 2])):
        mutated[draw.choice([*body, "model", "stream", "n", "stop", "x"])] = draw.choice(GENERATE_VALUES)
    content = json.dumps(mutated).encode()
    if draw.random() < 0.2:
        content = _bitten(draw, content)
    return Attempt(_request(draw, "POST", path, content, "application/json"))
