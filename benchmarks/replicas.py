"""Replicas of `transduce serve` behind a real nginx, with the files of deploy/nginx: load, and replicas that are killed and stopped.

    python benchmarks/replicas.py RUN [--data FILE] [--seconds 8] [--clients 16]

Needs nginx; about three minutes on two cores. RUN: a model from English to German; requests are the lines of FILE, one each.
load     1, 2 and 4 replicas, and one without nginx. Clients, nginx and all replicas share the cores, so more replicas are no
         faster here: the figures show what nginx costs, and that nothing breaks.
kill     one of the replicas is killed (`kill -9`) under load, started again a while later, and another one is killed; also with
         an nginx that does not repeat a POST, which loses what the replica was working on.
stop     the same with SIGTERM: a replica answers what it has accepted.
keys     a key's requests in a burst over two replicas that divide its rate (--replicas 2), and over two that do not.
A request is lost if its client gets anything but a translation. Writes benchmarks/results/replicas.json.
"""

import argparse
import asyncio
import itertools
import json
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from facts import write_result
from serve_load import closed_loop, summary
from served import Asked, Served, ask, connect, free_port, percentile, post, translation

from transduce.server.keys import add_key

NGINX = Path(__file__).parents[1] / "deploy" / "nginx"
LINES = Path(__file__).parents[1] / "docs" / "tutorial-data" / "test.en"
PROXY = (NGINX / "proxy.conf").read_text()
REPLICAS = (1, 2, 4)
RATE = 120  # requests a minute of the key
BURST = 3 * RATE
TURNS = 4  # replicas that end, one after the other
FORGOTTEN_S = 5.5  # nginx takes a replica back after its fail_timeout; with two away at once, nobody would answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--data", type=Path, default=LINES)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    lines = options.data.read_text(encoding="utf-8").splitlines()
    load = Load([translation(line) for line in lines], options.clients, options.seconds)
    found = {
        "load": loads(options.run, load),
        "kill": disturbed(options.run, load, signal.SIGKILL),
        "kill without repeated requests": disturbed(
            options.run, load, signal.SIGKILL, PROXY.replace(" non_idempotent", "")
        ),
        "stop": disturbed(options.run, load, signal.SIGTERM),
        "keys": {f"--replicas {n}": admitted(options.run, n) for n in (2, 1)},
    }
    for name, one in found.items():
        print(name, json.dumps(one, indent=1))
    print(
        write_result(
            "replicas",
            "python benchmarks/replicas.py RUN",
            ["granian", "ctranslate2"],
            nginx=nginx_version(),
            clients=options.clients,
            seconds=options.seconds,
            **found,
        )
    )


class Load:
    """What clients do: each sends its next request when the last is answered."""

    def __init__(self, requests: list[bytes], clients: int, seconds: float) -> None:
        self.requests, self.clients, self.seconds = requests, clients, seconds
        self.is_over = False

    async def on(self, port: int) -> list[Asked]:
        return await closed_loop(port, self.requests, self.clients, self.seconds)


# --- load ------------------------------------------------------------------------------------------------------


def loads(run: str, load: Load) -> dict[str, Any]:
    with Cluster(run, 1) as cluster:
        found = {"1 without nginx": measured(load, cluster.replicas[0].port)}
    for count in REPLICAS:
        with Cluster(run, count) as cluster:
            found[str(count)] = measured(load, cluster.port)
            found[str(count)]["requests_of_each"] = cluster.requests_of_each()
    return found


def measured(load: Load, port: int) -> dict[str, Any]:
    asked = asyncio.run(load.on(port))
    times = [1_000 * one.seconds for one in asked]
    return summary(asked, load.seconds + 1) | {"p90_ms": round(percentile(times, 0.9), 1), "requests": len(asked)}


# --- replicas that end -----------------------------------------------------------------------------------------


def disturbed(run: str, load: Load, number: signal.Signals, proxy: str = PROXY) -> dict[str, Any]:
    """What becomes of the requests while one replica after the other ends and comes back."""
    with Cluster(run, 2, proxy=proxy) as cluster:
        asked = asyncio.run(_disturbed(cluster, load, number))
        retried = cluster.retried()
    statuses = Counter(str(one.status) for one in asked)
    lost = [one for one in asked if one.status != 200]
    return {
        "ended_replicas": TURNS,
        "requests": len(asked),
        "lost": len(lost),
        "retried_by_nginx": retried,
        "statuses": dict(statuses),
        "p50_ms": round(1_000 * percentile([one.seconds for one in asked], 0.5), 1),
        "longest_ms": round(1_000 * max(one.seconds for one in asked), 1),
    }


async def _disturbed(cluster: "Cluster", load: Load, number: signal.Signals) -> list[Asked]:
    asking = asyncio.create_task(endless(cluster.port, load))
    for turn in range(TURNS):
        await asyncio.sleep(load.seconds / TURNS)
        await asyncio.to_thread(cluster.end, turn % len(cluster.replicas), number)
        await asyncio.sleep(load.seconds / TURNS)
        await asyncio.to_thread(cluster.start, turn % len(cluster.replicas))
        await asyncio.sleep(FORGOTTEN_S)
    load.is_over = True
    return await asking


async def endless(port: int, load: Load) -> list[Asked]:
    """The requests of all clients until the load is over."""
    requests, asked = itertools.cycle(load.requests), []
    load.is_over = False

    async def client() -> None:
        connection = await connect(port)
        while not load.is_over:
            asked.append(await ask(connection, next(requests)))
            if connection.closed:
                connection = await connect(port)
        connection.transport.close()

    await asyncio.gather(*(client() for _ in range(load.clients)))
    return asked


# --- keys ------------------------------------------------------------------------------------------------------


def admitted(run: str, divided_by: int) -> dict[str, Any]:
    """How many requests of one key two replicas admit at once; its rate allows 120."""
    with tempfile.TemporaryDirectory() as folder:
        secret = add_key(Path(folder) / "keys", "one", RATE)
        with Cluster(run, 2, "--keys", Path(folder) / "keys", "--replicas", divided_by) as cluster:
            statuses = asyncio.run(burst(cluster.port, secret))
    return {"rate": RATE, "sent": BURST, "statuses": {str(status): n for status, n in statuses.items()}}


async def burst(port: int, secret: str) -> Counter[int]:
    body = {"q": "Two dogs run.", "source": "en", "target": "de", "api_key": secret}
    connection = await connect(port)
    return Counter([(await ask(connection, post("/translate", body))).status for _ in range(BURST)])


# --- servers ---------------------------------------------------------------------------------------------------


class Cluster:
    """Replicas of the server, and nginx in front of them."""

    def __init__(self, run: str, count: int, *options: object, proxy: str = PROXY) -> None:
        self.command = ("-m", "transduce", "serve", run, "--threads", 1, *options)
        self.replicas = [self._replica(free_port()) for _ in range(count)]
        self.folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        configuration = write_configuration(
            Path(self.folder.name), proxy, self.port, [one.port for one in self.replicas]
        )
        self.nginx = subprocess.Popen(["nginx", "-p", self.folder.name, "-c", configuration])
        wait_for_port(self.port)

    def _replica(self, port: int) -> Served:
        return Served(*self.command, "--port", port, port=port)

    def end(self, number: int, by: signal.Signals) -> None:
        self.replicas[number].process.send_signal(by)
        self.replicas[number].process.wait(120)

    def start(self, number: int) -> None:
        self.replicas[number] = self._replica(self.replicas[number].port)

    def log(self) -> list[str]:
        """The lines of nginx's log about translations."""
        lines = (Path(self.folder.name) / "access.log").read_text().splitlines()
        return [line for line in lines if " POST " in line]

    def requests_of_each(self) -> list[int]:
        counts = Counter(port for line in self.log() for port in re.findall(r"127\.0\.0\.1:(\d+)", line))
        return [counts[str(one.port)] for one in self.replicas]

    def retried(self) -> int:
        """Requests that nginx passed to more than one replica."""
        return sum(len(re.findall(r"127\.0\.0\.1:\d+", line)) > 1 for line in self.log())

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.nginx.send_signal(signal.SIGQUIT)
        self.nginx.wait(30)
        for one in self.replicas:
            one.stop()
        self.folder.cleanup()


def write_configuration(folder: Path, proxy: str, port: int, replicas: list[int]) -> Path:
    """The files of deploy/nginx with other ports, and as much of an nginx.conf as they need."""
    proxy = proxy.replace("listen 8080;", f"listen 127.0.0.1:{port};")
    (folder / "proxy.conf").write_text(proxy.replace("/var/log/nginx/transduce.log", f"{folder}/access.log"))
    parts = re.split(r"127\.0\.0\.1:\d+(.*\n)(?: *server .*\n)*", (NGINX / "replicas.conf").read_text())
    servers = "    server ".join(f"127.0.0.1:{one}{parts[1]}" for one in replicas)
    (folder / "replicas.conf").write_text(parts[0] + servers + parts[2])
    (folder / "nginx.conf").write_text(
        f"daemon off; user root; pid {folder}/nginx.pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;"
        f" uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; include {folder}/proxy.conf; include {folder}/replicas.conf; }}\n"
    )
    return folder / "nginx.conf"


def wait_for_port(port: int) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise SystemExit("nginx did not start")


def nginx_version() -> str:
    return subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True).stderr.strip().split("/")[-1]


if __name__ == "__main__":
    main()
