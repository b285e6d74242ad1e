"""Whether the server has become slower: this checkout beside another one, alternating.

    git worktree add ../before COMMIT
    python benchmarks/serve_before.py RUN --before ../before [--data FOLDER] [--rounds 7] [--seconds 3]

About four minutes on two cores. RUN: a model from English to German; requests are the sentences of Multi30k's test set, one each.
Both servers run all the time. In each round they are measured one after the other, the first of them in turn, with
1, 8 and 64 clients that each send their next request when the last is answered. A ratio is this checkout's requests a second
over the other's in the same round; it is slower only if the whole 95 % interval of the
median ratio, from drawing rounds with replacement, is below 0.97.
The same ratio is taken of what the server computed for a request, which other jobs of the machine change least.
Then both are offered three and ten times as many requests a second as they answered, in turns: how soon answers and refusals come.
Writes benchmarks/results/serve-before.json.
"""

import argparse
import asyncio
import os
import random
import statistics
import subprocess
from pathlib import Path
from typing import Any

from facts import default_data, write_result
from serve_load import CLIENTS, OVERLOAD, measured, overloaded
from served import Served, free_port, translation

SLOWER = 0.97
DRAWS = 10_000
OVERLOADS = 3  # rounds
SOON = (
    "offered_per_s",
    "goodput_per_s",
    "answered_p50_ms",
    "answered_p99_ms",
    "refused_p50_ms",
    "refused_p99_ms",
    "failed",
)
FIGURES = ("requests_per_s", "p50_ms", "p99_ms", "server_cpu_ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the commit to compare with")
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    lines = (options.data / "multi30k" / "test_2016_flickr.en").read_text(encoding="utf-8").splitlines()
    requests = [translation(line) for line in lines]
    servers = {"before": start(options.run, options.before), "now": start(options.run, Path(__file__).parents[1])}
    try:
        found = {str(clients): take_turns(servers, requests, clients, options) for clients in CLIENTS}
        peak = max(one[name]["requests_per_s"] for one in found.values() for name in servers)
        overload = {f"{times} times": overload_in_turns(servers, requests, times * peak, options) for times in (3, 10)}
    finally:
        for server in servers.values():
            server.stop()
    path = write_result(
        "serve-before",
        "python benchmarks/serve_before.py RUN --before FOLDER",
        ["fastapi", "granian", "ctranslate2"],
        before=commit_of(options.before),
        rounds=options.rounds,
        seconds=options.seconds,
        load_average=os.getloadavg(),
        clients=found,
        overload=overload,
    )
    print(path)


def start(run: str, checkout: Path) -> Served:
    port = free_port()
    return Served("-m", "transduce", "serve", run, "--port", port, port=port, checkout=checkout)


def take_turns(
    servers: dict[str, Served], requests: list[bytes], clients: int, options: argparse.Namespace
) -> dict[str, Any]:
    """The figures of both servers and their ratios, round by round."""
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(options.rounds):
        names = ["before", "now"] if number % 2 else ["now", "before"]
        rounds.append({name: measured(servers[name], requests, clients, options.seconds) for name in names})
    ratios = [one["now"]["requests_per_s"] / one["before"]["requests_per_s"] for one in rounds]
    computed = [one["now"]["server_cpu_ms"] / one["before"]["server_cpu_ms"] for one in rounds]
    medians = {
        name: {figure: round(statistics.median(one[name][figure] for one in rounds), 2) for figure in FIGURES}
        for name in servers
    }
    found = {"ratio": summary(ratios), "server_cpu_ratio": round(statistics.median(computed), 3), **medians}
    print(f"{clients} clients: {found}", flush=True)
    return found


def overload_in_turns(
    servers: dict[str, Served], requests: list[bytes], rate: float, options: argparse.Namespace
) -> dict[str, Any]:
    """How soon answers and refusals come: medians over the rounds."""
    rounds = [
        {name: asyncio.run(overloaded(server.port, requests, rate / OVERLOAD, options.seconds))}
        for _ in range(OVERLOADS)
        for name, server in servers.items()
    ]
    found = {
        name: {
            figure: round(statistics.median(one[name][figure] for one in rounds if name in one), 1) for figure in SOON
        }
        for name in servers
    }
    print(f"{rate:.0f} requests a second: {found}", flush=True)
    return found


def summary(ratios: list[float]) -> dict[str, Any]:
    """The median with its interval, and the verdict."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    low, high = medians[DRAWS // 40], medians[-DRAWS // 40]
    return {
        "median": round(statistics.median(ratios), 3),
        "interval_95": [round(low, 3), round(high, 3)],
        "rounds": [round(ratio, 3) for ratio in ratios],
        "slower": high < SLOWER,
    }


def commit_of(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
