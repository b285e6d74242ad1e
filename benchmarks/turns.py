"""Systems that take turns in one process, and HF with our weights as one of them."""

import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # what the command line sets; here it holds for all
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from transduce.device import Device
from transduce.model import Tokens
from transduce.text import EOS

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from test_hf_oracle import as_hf  # noqa: F401  the copying that the tests prove

HF_SENTENCES = 32  # a call of `generate`
MAX_EXTRA = 50

Outputs = list[Any]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Turns:
    """Seconds of every turn, and what the last one gave."""

    seconds: list[float]
    outputs: Outputs


def take_turns(systems: dict[str, Callable[[], Outputs]], repeats: int) -> dict[str, Turns]:
    """Every system once a round, each round beginning with another; warm them up before."""
    names, seconds, outputs = list(systems), {name: [] for name in systems}, {}
    for number in range(repeats):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            begin = time.perf_counter()
            outputs[name] = systems[name]()
            seconds[name].append(time.perf_counter() - begin)
    return {name: Turns(seconds[name], outputs[name]) for name in names}


def speeds(turns: dict[str, Turns], amounts: dict[str, dict[str, int]]) -> dict[str, Any]:
    """Amounts a second of every system, and how many times faster ours was in each turn."""
    unit = next(iter(amounts["ours"]))
    rates = {name: [amounts[name][unit] / s for s in turns[name].seconds] for name in turns}
    report: dict[str, Any] = {"systems": {}, "ours_over": {}}
    for name, one in turns.items():
        middle = statistics.median(one.seconds)
        each = {f"{what}_per_s": round(amount / middle, 1) for what, amount in amounts[name].items()}
        report["systems"][name] = each | amounts[name] | {"seconds": [round(s, 3) for s in one.seconds]}
        if name != "ours":
            ratios = sorted(ours / theirs for ours, theirs in zip(rates["ours"], rates[name], strict=True))
            report["ours_over"][name] = {
                "median": round(statistics.median(ratios), 2),
                "least": round(ratios[0], 2),
                "most": round(ratios[-1], 2),
            }
    return report


def hf_translation(theirs: Any, sources: Outputs, beam: int, device: Device) -> Outputs:
    """Without `</s>` and all after it; one limit a batch, as `generate` has it."""
    found: Outputs = []
    searching = {"num_beams": beam, "length_penalty": 0.6} if beam > 1 else {"num_beams": 1}
    for begin in range(0, len(sources), HF_SENTENCES):
        asked = Tokens.padded(sources[begin : begin + HF_SENTENCES], theirs.config.pad_token_id).to(device.torch)
        with device.mixed_precision():
            generated = theirs.generate(
                input_ids=asked.ids,
                attention_mask=asked.real.long(),
                do_sample=False,
                max_new_tokens=asked.width + MAX_EXTRA,
                **searching,
            )
        rows = [row[1:] for row in generated.tolist()]
        found += [row[: row.index(EOS)] if EOS in row else row for row in rows]
    return found
