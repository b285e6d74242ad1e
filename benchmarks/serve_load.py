"""Requests a second and how long they take, batching on and off, beside a bare FastAPI + CTranslate2 handler; and overload.

    python benchmarks/serve_load.py RUN [--data FOLDER] [--seconds 8] [--rounds 2]

About five minutes on two cores. RUN: a model from English to German; requests are the sentences of Multi30k's test set, one each.
load       1, 8 and 64 clients, each sending its next request when the last is answered. Systems take turns, round by round.
           The clients run on the same cores as the server: what they cost is in every figure.
fairness   one client with its short requests while four others send documents of 300 sentences over and over.
overload   ten times the peak's requests a second for a while, whatever is answered, over as many connections as that takes.
           Then a request every 50 ms: recovery is when ten in a row are answered within twice their time before.
Writes benchmarks/results/serve-load.json.
"""

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from facts import default_data, write_result
from served import Asked, Connection, Served, ask, connect, free_port, percentile, translation

CLIENTS = (1, 8, 64)
OVERLOAD = 10  # times the peak
PROBES = 10
MOST_CONNECTIONS = 2_000
WARM_S = 1
BARE = Path(__file__).with_name("bare_server.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    lines = (options.data / "multi30k" / "test_2016_flickr.en").read_text(encoding="utf-8").splitlines()
    requests = [translation(line) for line in lines]

    load: dict[str, dict[str, Any]] = {}
    servers = {name: start(name, options.run) for name in ("batching", "no batching", "bare FastAPI + CTranslate2")}
    try:
        for clients in CLIENTS:
            rounds = [
                (name, measured(server, requests, clients, options.seconds))
                for _ in range(options.rounds)
                for name, server in servers.items()
            ]
            for name in servers:
                found = [one for of, one in rounds if of == name]
                load.setdefault(name, {})[str(clients)] = middle(found)
                print(f"{name}, {clients} clients: {load[name][str(clients)]}")
    finally:
        for server in servers.values():
            server.process.kill() if server is servers["bare FastAPI + CTranslate2"] else server.stop()

    peak = max(found["requests_per_s"] for found in load["batching"].values())
    with start("batching", options.run) as server:
        fairness = asyncio.run(beside_documents(server.port, lines, options.seconds))
        print(fairness)
        overload = asyncio.run(overloaded(server.port, requests, peak, options.seconds))
        overload["resident_mb"] = round(server.resident_mb())
    print(overload)
    path = write_result(
        "serve-load",
        "python benchmarks/serve_load.py RUN",
        ["fastapi", "granian", "ctranslate2"],
        seconds=options.seconds,
        rounds=options.rounds,
        sentences=len(lines),
        load=load,
        fairness=fairness,
        overload=overload,
    )
    print(path)


def start(name: str, run: str) -> Served:
    port = free_port()
    if name.startswith("bare"):
        return Served(BARE, run, port, port=port)
    batch = [] if name == "batching" else ["--batch", "1"]
    return Served("-m", "transduce", "serve", run, "--port", port, *batch, port=port)


def measured(server: Served, requests: list[bytes], clients: int, seconds: float) -> dict[str, float]:
    """A round's figures; what the server computed for a request hardly depends on what else the machine does."""
    began = server.cpu_s()
    asked = asyncio.run(closed_loop(server.port, requests, clients, seconds))
    cpu_ms = 1_000 * (server.cpu_s() - began) / max(1, len(asked))
    return summary([one for one in asked if one.at >= asked[0].at + WARM_S], seconds) | {
        "server_cpu_ms": round(cpu_ms, 2)
    }


# --- load ------------------------------------------------------------------------------------------------------


async def closed_loop(port: int, requests: list[bytes], clients: int, seconds: float) -> list[Asked]:
    """What became of every request; the first second's is for warming up."""
    connections = [await connect(port) for _ in range(clients)]
    endless = itertools.cycle(requests)
    asked: list[Asked] = []
    until = time.perf_counter() + WARM_S + seconds
    await asyncio.gather(*(_client(one, endless, asked, until) for one in connections))
    for one in connections:
        one.transport.close()
    return asked


async def _client(connection: Connection, requests: Iterator[bytes], asked: list[Asked], until: float) -> None:
    while time.perf_counter() < until:
        asked.append(await ask(connection, next(requests)))


def summary(asked: list[Asked], seconds: float) -> dict[str, float]:
    times = [one.seconds * 1_000 for one in asked if one.status == 200]
    return {
        "requests_per_s": round(len(times) / seconds, 1),
        "p50_ms": round(percentile(times, 0.5), 1),
        "p99_ms": round(percentile(times, 0.99), 1),
        "refused": sum(one.status == 503 for one in asked),
        "failed": sum(one.status not in (200, 503) for one in asked),
    }


def middle(found: list[dict[str, float]]) -> dict[str, Any]:
    medians = {name: round(statistics.median(one[name] for one in found), 2) for name in found[0]}
    return {**medians, "requests_per_s_of_each_round": [one["requests_per_s"] for one in found]}


async def beside_documents(port: int, lines: list[str], seconds: float) -> dict[str, Any]:
    documents = [translation("\n".join(lines[begin : begin + 300])) for begin in (0, 200, 400, 600)]
    asked: list[Asked] = []
    until = time.perf_counter() + WARM_S + seconds
    clients = [_client(await connect(port), itertools.repeat(one), asked, until) for one in documents]
    writing = asyncio.gather(*clients)
    await asyncio.sleep(WARM_S)
    short = await closed_loop(port, [translation(line) for line in lines], 1, seconds - WARM_S)
    await writing
    return {
        "short": summary(short, seconds),
        "documents_p50_s": round(percentile([one.seconds for one in asked], 0.5), 2),
        "documents_failed": sum(one.status != 200 for one in asked),
    }


# --- overload --------------------------------------------------------------------------------------------------


async def overloaded(port: int, requests: list[bytes], peak: float, seconds: float) -> dict[str, Any]:
    before = [await ask(await connect(port), request) for request in requests[:50]]
    usual = percentile([one.seconds for one in before], 0.5)
    asked = await open_loop(port, requests, OVERLOAD * peak, seconds)
    ended = time.perf_counter()
    answered, refused = ([one for one in asked if one.status == status] for status in (200, 503))
    return {
        "offered_per_s": round(len(asked) / seconds),
        "times_peak": round(len(asked) / seconds / peak, 1),
        "goodput_per_s": round(len(answered) / seconds, 1),
        "goodput_of_peak": round(len(answered) / seconds / peak, 2),
        "answered_p50_ms": round(1_000 * percentile([one.seconds for one in answered], 0.5), 1),
        "answered_p99_ms": round(1_000 * percentile([one.seconds for one in answered], 0.99), 1),
        "refused_p50_ms": round(1_000 * percentile([one.seconds for one in refused], 0.5), 1),
        "refused_p99_ms": round(1_000 * percentile([one.seconds for one in refused], 0.99), 1),
        "failed": len(asked) - len(answered) - len(refused),
        "recovery_s": round(await recovery(port, requests, 2 * usual, ended), 2),
    }


async def open_loop(port: int, requests: list[bytes], rate: float, seconds: float) -> list[Asked]:
    """Requests at a fixed rate, whatever is answered, each over a connection that is free or a new one."""
    pool = Pool(port)
    asked: list[Asked] = []
    tasks: set[asyncio.Task[None]] = set()

    async def one(request: bytes) -> None:
        connection = await pool.take()
        asked.append(await ask(connection, request))
        pool.give_back(connection)

    begin = time.perf_counter()
    endless, sent = itertools.cycle(requests), 0
    while (passed := time.perf_counter() - begin) < seconds:
        for _ in range(int(passed * rate) - sent):
            tasks.add(task := asyncio.create_task(one(next(endless))))
            task.add_done_callback(tasks.discard)
            sent += 1
        await asyncio.sleep(0.002)
    if tasks:
        await asyncio.wait(tasks)
    pool.close()
    return asked


class Pool:
    """Connections, the last used first; as many as are needed at once, up to a limit."""

    def __init__(self, port: int) -> None:
        self.port, self.made = port, 0
        self.free: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()

    async def take(self) -> Connection:
        if self.free.empty() and self.made < MOST_CONNECTIONS:
            self.made += 1
            return await connect(self.port)
        return await self.free.get()

    def give_back(self, connection: Connection) -> None:
        if connection.closed:
            self.made -= 1
        else:
            self.free.put_nowait(connection)

    def close(self) -> None:
        while not self.free.empty():
            self.free.get_nowait().transport.close()


async def recovery(port: int, requests: list[bytes], usual: float, ended: float) -> float:
    """Seconds after the end of the overload until ten requests in a row are as quick as usual."""
    good, since = 0, ended
    for request in itertools.cycle(requests):
        asked = await ask(await connect(port), request)
        since = asked.at if not good else since
        good = good + 1 if asked.status == 200 and asked.seconds <= max(usual, 0.05) else 0
        if good == PROBES or time.perf_counter() - ended > 60:
            break
        await asyncio.sleep(0.05)
    return since - ended


if __name__ == "__main__":
    main()
