"""A server under test, and the thinnest HTTP/1.1 client that will do: what is measured is to be the server."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"


class Served:
    """A process that listens on a port of its own and is stopped at the end; its code is that of a checkout."""

    def __init__(self, *command: object, port: int, checkout: Path = Path(__file__).parents[1]) -> None:
        self.port = port
        # Without the second, the folder this is started from would come before the checkout.
        environment = os.environ | {"PYTHONPATH": str(checkout.resolve()), "PYTHONSAFEPATH": "1"}
        self.process = subprocess.Popen([sys.executable, *map(str, command)], env=environment)
        until = time.monotonic() + 120
        while not self._answers():
            if time.monotonic() > until or self.process.poll() is not None:
                raise SystemExit("the server did not start")
            time.sleep(0.1)

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def resident_mb(self) -> float:
        return _resident_mb(self.process.pid)

    def children_mb(self) -> float:
        """The same of its processes that decode recordings or detect languages."""
        pid = self.process.pid
        children = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        return sum(_resident_mb(int(child)) for some in children for child in some)

    def cpu_s(self) -> float:
        """What it has computed so far, on all cores."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{HOST}:{self.port}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def _answers(self) -> bool:
        try:
            self.get("/health/live")
        except OSError:
            return False
        return True


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.split("\n") if line.startswith("VmRSS")) / 1_024


def free_port() -> int:
    with socket.create_server((HOST, 0)) as taken:
        return int(taken.getsockname()[1])


def post(path: str, body: object) -> bytes:
    """A request as it goes over the wire."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def translation(sentence: str) -> bytes:
    return post("/translate", {"q": sentence, "source": "en", "target": "de"})


class Connection(asyncio.Protocol):
    """One request at a time; the answer is its status, 0 where the connection was closed without one."""

    def __init__(self) -> None:
        self.buffer = b""
        self.waiting: asyncio.Future[int] | None = None
        self.closed = self.bodiless = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def ask(self, request: bytes) -> "asyncio.Future[int]":
        self.bodiless = request.startswith(b"HEAD ")
        self.waiting = asyncio.get_running_loop().create_future()
        if self.closed:
            self._answer(0)
        else:
            self.transport.write(request)
        return self.waiting if self.waiting else _done(0)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if found and (self.bodiless or _is_whole(head, rest)):
            self.buffer = b""
            self.closed = b"\r\nconnection: close" in head.lower()  # the server takes no further request here
            self._answer(int(head[9:12]))

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._answer(0)

    def _answer(self, status: int) -> None:
        waiting, self.waiting = self.waiting, None
        if waiting and not waiting.done():
            waiting.set_result(status)


def _done(status: int) -> "asyncio.Future[int]":
    future = asyncio.get_running_loop().create_future()
    future.set_result(status)
    return future


def _is_whole(head: bytes, body: bytes) -> bool:
    """Whether all of a body has arrived; a stream ends with a chunk of nothing."""
    if b"\r\ntransfer-encoding: chunked" in head.lower():
        return body.endswith(b"\r\n0\r\n\r\n")
    return len(body) >= _length(head)


def _length(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(b"content-length:")
    return int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0


async def connect(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, HOST, port)
    return connection


@dataclass(frozen=True)
class Asked:
    """What became of a request."""

    at: float
    seconds: float
    status: int


async def ask(connection: Connection, request: bytes) -> Asked:
    began = time.perf_counter()
    status = await connection.ask(request)
    return Asked(began, time.perf_counter() - began, status)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
