"""What a hostile network does to a server: nonsense, slowness, size, leaving early; and stops under load.

    python benchmarks/serve_attack.py RUN [--requests 100000] [--only starving ...] [--before FOLDER]

About twelve minutes on two cores. RUN: a model from English to German. `--only` runs some of the attacks and keeps the results of
the others; `--before` names a checkout of an earlier commit to starve beside this one. `serve_attack_models.py` attacks servers of
speech and language models.
fuzz            requests of random methods, paths, headers and bodies, mutated from valid ones; no 5xx but 503 (too much work)
schemathesis    requests made from the server's own OpenAPI document, and its checks on the answers
slow            500 connections that send a byte of their headers or body now and then; each must be closed, others served
huge            a header and a body of 200 MB, with a length and in chunks: refused while memory stays
cancellations   1,000 clients that ask for a document and hang up
starving        one client after another sends a request that costs as much as it can: text that normalisation makes 18 times
                longer, the same as long as it may be, a wide beam over thousands of lines, a page of ordinary text; beside it a
                short request every 50 ms, which must be answered within a second (p99) or refused within milliseconds
stops           20 times SIGTERM while requests are under way: each must be answered, the process must end with 0
Memory is the server's resident set, measured after it has served every kind of request and 5,000 that are like those of the fuzz:
torch is loaded by the first look at attention, and the libraries keep what they prepared for each shape of input.
Writes benchmarks/results/serve-attack.json.
"""

import argparse
import asyncio
import json
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from attacks.clients import CLIENTS, fuzzed
from attacks.target import left_waiting, metric, start, with_memory
from attacks.texts import INSIDE, SENTENCE, VALID, translation_attempt
from facts import HERE, RESULTS, write_result
from served import HOST, Asked, Served, ask, connect, percentile, post, translation

WARMING = 5_000
SLOW = 500
HUGE = 200_000_000
CANCELLATIONS = 1_000
STOPS = 20
ATTACKS = ("fuzz", "schemathesis", "slow", "huge", "cancellations")
ALL = (*ATTACKS, "starving", "stops")
STARVING_S = 20
HEADERS_S = 10  # after which the server closes a connection that has not sent its headers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--only", nargs="+", default=[*ALL], choices=ALL, metavar="ATTACK")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier commit")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    if set(options.only) & set(ATTACKS):
        results |= attacked(options)
    if "starving" in options.only:
        results["starving"] = starving(options)
    if "stops" in options.only:
        results["stops"] = stops(options.run)
        print("stops", results["stops"])
    command = "python benchmarks/serve_attack.py RUN"
    kept = {} if set(options.only) == set(ALL) else earlier_results()
    packages = ["fastapi", "granian", "schemathesis"]
    print(write_result("serve-attack", command, packages, **(kept | results)))


def attacked(options: argparse.Namespace) -> dict[str, Any]:
    """What each attack on one server did to it."""
    results = {}
    with start(options.run) as server:
        asyncio.run(every_kind(server.port))
        asyncio.run(fuzzed(server.port, translation_attempt, WARMING, first_seed=CLIENTS))
        for name in [name for name in ATTACKS if name in options.only]:
            attack = partial(globals()[name], server, options)
            results[name] = with_memory(server, attack, translation("A man is walking."))
            print(name, results[name], flush=True)
    return results


def earlier_results() -> dict[str, Any]:
    """The attacks of an earlier run, each with the commit it was made at."""
    path = RESULTS / "serve-attack.json"
    if not path.exists():
        return {}
    written = json.loads(path.read_text())
    of = {"date": written["date"], "commit": written["commit"]}
    return {name: of | written[name] for name in ALL if name in written}


# --- fuzz ------------------------------------------------------------------------------------------------------


def fuzz(server: Served, options: argparse.Namespace) -> dict[str, Any]:
    return asyncio.run(fuzzed(server.port, translation_attempt, options.requests)).summary()


async def every_kind(port: int) -> None:
    """Each valid request a few times at once, so that every thread has what it loads when it is first needed."""
    for path, body in [*VALID, *INSIDE] * 3:
        await asyncio.gather(*[ask(await connect(port), post(path, body)) for _ in range(8)])
    document = {"q": SENTENCE * 2_000, "source": "en", "target": "de"}
    await asyncio.gather(*[ask(await connect(port), post("/translate", document)) for _ in range(4)])


# --- schemathesis ----------------------------------------------------------------------------------------------


def schemathesis(server: Served, options: argparse.Namespace) -> dict[str, Any]:
    program = Path(sys.executable).with_name("schemathesis")
    command = [
        program,
        "run",
        f"http://{HOST}:{server.port}/openapi.json",
        "--max-examples",
        "200",
        "--no-color",
        "--seed",
        "1",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=scratch)
    said = re.sub(r"\s+", " ", done.stdout[done.stdout.rfind("SUMMARY") :])
    failures = re.findall(r"❌\s*([^:]+): (\d+)", done.stdout)
    if done.returncode:
        print(done.stdout[-6_000:])
    return {"exit_code": done.returncode, "failures": dict(failures), "summary": said[:800]}


# --- slow and huge ---------------------------------------------------------------------------------------------


def slow(server: Served, options: argparse.Namespace) -> dict[str, Any]:
    return asyncio.run(_slow(server.port))


async def _slow(port: int) -> dict[str, Any]:
    """Half of them never end their headers, half never end their body."""
    began = time.perf_counter()
    connections = [await connect(port) for _ in range(SLOW)]
    begun = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for number, connection in enumerate(connections):
        connection.transport.write(begun + (b"Content-Length: 1000\r\n\r\n{" if number % 2 else b"X-Slow: "))
    latencies = []
    while time.perf_counter() - began < 3 * HEADERS_S and not all(one.closed for one in connections):
        for connection in connections:
            if not connection.closed:
                connection.transport.write(b"a")
        other = await connect(port)
        latencies.append((await ask(other, translation("A man is walking."))).seconds)
        other.transport.close()
        await asyncio.sleep(0.5)
    return {
        "connections": SLOW,
        "closed": sum(one.closed for one in connections),
        "all_closed_after_s": round(time.perf_counter() - began, 1),
        "others_worst_ms": round(1_000 * max(latencies)),
    }


def huge(server: Served, options: argparse.Namespace) -> dict[str, Any]:
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunk = b"%x\r\n" % 65_536 + b"a" * 65_536 + b"\r\n"
    before = server.resident_mb()
    found = {
        "header": _pour(server, head + b"X: ", b"a" * 65_536),
        "body": _pour(server, head + b"Content-Length: %d\r\n\r\n" % HUGE, b"a" * 65_536),
        "chunks": _pour(server, head + b"Transfer-Encoding: chunked\r\n\r\n", chunk),
    }
    return {**found, "peak_growth_mb": max(one["peak_mb"] for one in found.values()) - round(before, 1)}


def _pour(server: Served, head: bytes, part: bytes) -> dict[str, Any]:
    """Send until it is refused or all of it is sent."""
    sent, peak = 0, 0.0
    with socket.create_connection((HOST, server.port), timeout=20) as connection:
        try:
            connection.sendall(head)
            while sent < HUGE:
                connection.sendall(part)
                sent += len(part)
                peak = max(peak, server.resident_mb())
        except OSError:
            pass
        try:
            answer = connection.recv(1_000)
        except OSError:
            answer = b""
    return {"sent_mb": round(sent / 1e6, 1), "status": answer[9:12].decode() or "closed", "peak_mb": round(peak, 1)}


# --- leaving ---------------------------------------------------------------------------------------------------


def cancellations(server: Served, options: argparse.Namespace) -> dict[str, Any]:
    before = _abandoned(server)
    asyncio.run(_cancel(server.port))
    waiting = left_waiting(server)
    return {"hung_up": CANCELLATIONS, "noticed": _abandoned(server) - before, **waiting}


def _abandoned(server: Served) -> int:
    return int(metric(server, "transduce_abandoned_total"))


async def _cancel(port: int) -> None:
    """Ten at a time, each with a document that takes longer than the client stays."""
    request = post("/translate", {"q": "A man is walking his dog.\n" * 800, "source": "en", "target": "de"})
    draw = random.Random(1)

    async def one() -> None:
        connection = await connect(port)
        asking = connection.ask(request)
        await asyncio.sleep(draw.uniform(0.02, 0.1))
        connection.transport.abort()
        await asking

    for _ in range(CANCELLATIONS // 10):
        await asyncio.gather(*(one() for _ in range(10)))


# --- starving --------------------------------------------------------------------------------------------------

COSTLY: dict[str, dict[str, Any]] = {
    "expanding": {"text": "\ufdfa" * 50_000},
    "expanding, within the limit": {"text": "\ufdfa" * 2_777},
    "wide beam": {"text": "a\n" * 25_000, "beam": 16, "n_best": 16},
    "ordinary": {"text": "Two dogs run through the green grass. " * 1_250},
}


def starving(options: argparse.Namespace) -> dict[str, Any]:
    """Each attack on a fresh server, as a first request and as a later one; an earlier commit takes turns with this one."""
    checkouts = {"now": HERE.parent} | ({"before": options.before} if options.before else {})
    found: dict[str, Any] = {}
    for name, body in COSTLY.items():
        for which, checkout in checkouts.items():
            with start(options.run, checkout=checkout) as server:
                found.setdefault(which, {})[name] = asyncio.run(_starve(server.port, body))
            print("starving", which, name, found[which][name], flush=True)
    return found


async def _starve(port: int, body: dict[str, Any]) -> dict[str, Any]:
    costly, short = post("/v1/translate", body), translation("A man is walking.")
    alone = [await ask(await connect(port), short) for _ in range(20)]
    until = time.perf_counter() + STARVING_S
    attacking = asyncio.create_task(_repeat(port, costly, until, pause_s=0))
    beside = await _repeat(port, short, until, pause_s=0.05)
    attacking.cancel()
    answered, refused = ([one.seconds for one in beside if one.status == status] for status in (200, 503))
    return {
        "alone_p50_ms": _ms(alone_s := [one.seconds for one in alone], 0.5),
        "alone_p99_ms": _ms(alone_s, 0.99),
        "answered": len(answered),
        "answered_p50_ms": _ms(answered, 0.5),
        "answered_p99_ms": _ms(answered, 0.99),
        "answered_max_ms": _ms(answered, 1),
        "refused": len(refused),
        "refused_max_ms": _ms(refused, 1),
        "failed": len(beside) - len(answered) - len(refused),
    }


async def _repeat(port: int, request: bytes, until: float, pause_s: float) -> list[Asked]:
    """One request after the other, each over a connection of its own; what is cancelled hangs up."""
    asked = []
    while time.perf_counter() < until:
        connection = await connect(port)
        try:
            asked.append(await ask(connection, request))
        finally:
            connection.transport.abort()
        await asyncio.sleep(pause_s)
    return asked


def _ms(seconds: list[float], share: float) -> float | None:
    return round(1_000 * percentile(seconds, share), 1) if seconds else None


# --- stops -----------------------------------------------------------------------------------------------------


def stops(run: str) -> dict[str, Any]:
    """A request is lost when it was sent well before the signal and has no answer."""
    answered_, lost, codes, seconds = 0, 0, [], []
    for number in range(STOPS):
        server = start(run)
        good, bad = asyncio.run(_stop(server, random.Random(number)))
        began = time.perf_counter()
        codes.append(server.stop())
        seconds.append(time.perf_counter() - began)
        answered_, lost = answered_ + good, lost + bad
    return {
        "stops": STOPS,
        "answered": answered_,
        "lost": lost,
        "exit_codes": dict(Counter(codes)),
        "slowest_s": round(max(seconds), 2),
    }


async def _stop(server: Served, draw: random.Random) -> tuple[int, int]:
    connections = [await connect(server.port) for _ in range(40)]
    requests = [
        post("/translate", {"q": SENTENCE * draw.choice([1, 1, 10, 100]), "source": "en", "target": "de"})
        for _ in connections
    ]
    asking = [connection.ask(request) for connection, request in zip(connections, requests, strict=True)]
    await asyncio.sleep(draw.uniform(0.1, 0.3))
    server.process.send_signal(signal.SIGTERM)
    statuses = [await one for one in asking]
    return statuses.count(200), len(statuses) - statuses.count(200)


if __name__ == "__main__":
    main()
