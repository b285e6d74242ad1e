"""What damaged recordings and fuzzed prompts do to a server of a speech model and a language model.

    python benchmarks/serve_attack_models.py [--requests 20000] [--seconds 3600] [--only generate]

The models are small and random: what is tested is what surrounds them. Each attack has a fresh server, and ends after so many requests
or seconds. `--only` keeps the result of the other one.
uploads     recordings of several encodings with bytes changed, cut out or doubled and other numbers in their headers, and forms that
            make no sense, to /v1/transcribe and /v1/audio/transcriptions; one client in twenty hangs up on the way
generate    fuzzed requests to /v1/generate and /v1/completions; one in ten is a stream whose client hangs up in its middle
No status may be a 5xx but 503 (too much work), no connection may be dropped without an answer, and no request may stay in the queue
when its client has left. Memory is measured after a tenth as many requests, because libraries keep what they prepared for each shape
of input.
Writes benchmarks/results/serve-attack-models.json.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attacks.clients import CLIENTS, Make, fuzzed
from attacks.recordings import TRANSCRIBE, recordings, upload
from attacks.target import left_waiting, start, with_memory
from attacks.texts import generate_attempt
from facts import RESULTS, write_result
from served import Served, post

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from folders import write_character_model, write_speech_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=3_600, help="the longest that each attack may take")
    parser.add_argument("--only", nargs="+", default=[*ATTACKS], choices=ATTACKS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        models = [write_speech_model(Path(scratch, "talks")), write_character_model(Path(scratch, "stories"))]
        results = {name: attacked(models, *ATTACKS[name], options) for name in options.only}
    command = "python benchmarks/serve_attack_models.py"
    print(
        write_result(
            "serve-attack-models", command, ["fastapi", "granian", "soundfile"], **(earlier_results() | results)
        )
    )


def earlier_results() -> dict[str, Any]:
    """The attacks of an earlier run, each with the commit it was made at."""
    path = RESULTS / "serve-attack-models.json"
    written = json.loads(path.read_text()) if path.exists() else {}
    return {
        name: {key: written[key] for key in ("date", "commit")} | written[name] for name in ATTACKS if name in written
    }


def attacked(models: list[Path], make: Make, valid: Callable[[], bytes], options: argparse.Namespace) -> dict[str, Any]:
    """What the attack did; at the end the server must answer a valid request."""
    with start(*models) as server:
        asyncio.run(fuzzed(server.port, make, options.requests // 10, options.seconds / 10, first_seed=CLIENTS))
        found = with_memory(server, lambda: attack(server, make, options), valid())
    print(make.__name__, found, flush=True)
    return found


def attack(server: Served, make: Make, options: argparse.Namespace) -> dict[str, Any]:
    return asyncio.run(fuzzed(server.port, make, options.requests, options.seconds)).summary() | left_waiting(server)


def recording() -> bytes:
    content = recordings()[0]
    head = f"POST {TRANSCRIBE} HTTP/1.1\r\nHost: localhost\r\nContent-Type: audio/wav\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def prompt() -> bytes:
    return post("/v1/generate", {"prompt": "the", "max_tokens": 8})


ATTACKS: dict[str, tuple[Make, Callable[[], bytes]]] = {
    "uploads": (upload, recording),
    "generate": (generate_attempt, prompt),
}

if __name__ == "__main__":
    main()
