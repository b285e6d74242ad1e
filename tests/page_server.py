"""A small server for tests of the page: its files, and the views of one model folder, under the page's own policy."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from transduce.errors import TransduceError
from transduce.explore import views
from transduce.explore.page import files
from transduce.translator import LoadOptions, Translator

VIEWS: dict[str, Callable[..., Any]] = {
    "/v1/explore/translate": views.translate_view,
    "/v1/explore/attention": views.attention_view,
    "/v1/explore/tree": views.tree_view,
}
POLICY = "default-src 'self'"


class Server(ThreadingHTTPServer):
    request_queue_size = 64  # connections that may wait: a browser opens more than the usual five at once


@contextmanager
def serve(run: Path, policy: str = POLICY) -> Iterator[str]:
    """The address of a server that knows one model; an empty policy leaves the page to its own care."""
    server = Server(("127.0.0.1", 0), make_handler(run, policy))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def make_handler(run: Path, policy: str) -> type[BaseHTTPRequestHandler]:
    translator, one_at_a_time = Translator.load(run, LoadOptions(engine="torch", device="cpu")), Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path in files():
                self.answer(200, *files()[path])
            elif path == "/v1/models":
                self.answer_json({"models": [{"name": "tiny", "source": "en", "target": "de", "description": ""}]})
            elif path == "/v1/explore/training":
                self.answer_json(views.training_view(run))
            else:
                self.answer_json({"error": f"{path}: no such address"}, 404)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            del asked["model"]
            try:
                with one_at_a_time:
                    self.answer_json(VIEWS[self.path](translator, **asked))
            except TransduceError as error:
                self.answer_json({"error": str(error)}, 422)

        def answer_json(self, answer: Any, status: int = 200) -> None:
            self.answer(status, json.dumps(answer).encode(), "application/json")

        def answer(self, status: int, content: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if policy:
                self.send_header("Content-Security-Policy", policy)
            self.end_headers()
            with suppress(ConnectionError):  # the page no longer wants to know
                self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    return Handler
