"""Pairs a second of `transduce doctor`, by analysis and in all, beside OpusFilter's equivalent rules on the same pairs.

python benchmarks/doctor_speed.py --opusfilter /path/to/its/environment/bin/python
python benchmarks/doctor_speed.py                      without OpusFilter

OpusFilter needs an environment of its own: python -m venv DIR && DIR/bin/pip install opusfilter==3.3.1
"""

import argparse
import json
import lzma
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from facts import CORES, default_data, write_result

from transduce.data import Corpus
from transduce.diagnosis.analysis import Context
from transduce.diagnosis.drift import DriftAnalysis
from transduce.diagnosis.language import LanguageAnalysis
from transduce.diagnosis.near_duplicates import NearDuplicateAnalysis
from transduce.diagnosis.reading import PortionParser, PortionReader

HERE = Path(__file__).parent
PACKAGES = ["numpy", "ftfy", "lingua-language-detector"]
PAIRS = 200_000
PAIRS_FOR_OPUSFILTER = 20_000  # its speed does not depend on their number
REPEATS = 2
WITH_AN_END = (DriftAnalysis, NearDuplicateAnalysis, LanguageAnalysis)  # they do much of their work after the last pair
FEW = 1_000  # pairs: what such a run takes is the time to start, most of it for importing torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--opusfilter", default="", help="the Python of an environment that has OpusFilter")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [unpack(arguments.data, side, Path(folder), PAIRS) for side in ("de", "en")]
        few = [unpack(arguments.data, side, Path(folder), FEW) for side in ("de", "en")]
        some = [unpack(arguments.data, side, Path(folder), PAIRS_FOR_OPUSFILTER) for side in ("de", "en")]
        valid = [str(arguments.data / "europarl-de-en" / f"valid.{side}") for side in ("de", "en")]
        content = measure(files, few, valid) | {"opusfilter": run_opusfilter(some, arguments.opusfilter)}
    for line in report(content):
        print(line)
    command = f"python benchmarks/doctor_speed.py{' --opusfilter PYTHON' if arguments.opusfilter else ''}"
    print(write_result("doctor-speed", command, PACKAGES, **content))


def unpack(data: Path, side: str, folder: Path, pairs: int) -> str:
    path = folder / f"{pairs}.{side}"
    with lzma.open(data / "europarl-de-en" / f"train-0.{side}.xz") as file:
        path.write_bytes(b"".join(islice(file, pairs)))
    return str(path)


def measure(files: list[str], few: list[str], valid: list[str]) -> dict[str, Any]:
    """The programs take turns, because other work on the machine changes the times."""
    runs: dict[str, list[dict[str, Any]]] = {"start": [], "fast": [], "all": []}
    for _ in range(REPEATS):
        runs["start"].append(doctor(few, valid))
        runs["fast"].append(doctor(files, valid, "--fast"))
        runs["all"].append(doctor(files, valid))
    best = {name: min(some, key=lambda run: run["seconds"]) for name, some in runs.items()}
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    least = {name: min(run["cpu_seconds"] for run in some) for name, some in runs.items()}
    start = best.pop("start")["seconds"]
    return {
        "pairs": PAIRS,
        "start_seconds": round(start, 2),
        "pairs_per_second": {name: round(PAIRS / run["seconds"]) for name, run in best.items()},
        "pairs_per_second_after_the_start": {n: round((PAIRS - FEW) / (r["seconds"] - start)) for n, r in best.items()},
        "seconds_of_every_run": {name: [round(run["seconds"], 2) for run in some] for name, some in runs.items()},
        "cpu_seconds": {name: round(seconds, 2) for name, seconds in least.items()},
        "pairs_per_cpu_second_after_the_start": {
            name: round((PAIRS - FEW) / (least[name] - least["start"])) for name in best
        },
        "pairs_per_cpu_second_by_analysis": {k: round(PAIRS / v) for k, v in best["all"]["rates"].items() if v},
        "pairs_per_cpu_second_with_the_end": {one.__name__: alone(one, files) for one in WITH_AN_END},
        "memory_of_the_largest_process_mb": memory,
    }


def doctor(files: list[str], valid: list[str], *options: str) -> dict[str, Any]:
    """The report of the command line, whose seconds do not include the start of Python."""
    command = [
        sys.executable,
        "-m",
        "transduce",
        "doctor",
        "--train",
        *files,
        "--valid",
        *valid,
        "--languages",
        "de",
        "en",
    ]
    before = cpu_seconds_of_children()
    done = subprocess.run([*command, "--json", *options], stdout=subprocess.PIPE, check=False, text=True)
    report = json.loads(done.stdout)  # the exit code is 3 if something serious is found
    return report | {"cpu_seconds": cpu_seconds_of_children() - before}


def cpu_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def alone(kind: Any, files: list[str]) -> int:
    """Pairs a second of one analysis in this process, with what it does after the last pair."""
    analysis, corpus, first = kind(Context(languages=("de", "en"))), Corpus((tuple(files),)), 0
    parse = PortionParser("train", corpus)
    blocks = [parse(portion).block for portion in PortionReader("train", corpus)]
    begun = time.process_time()
    for block in blocks:
        analysis.add(replace(block.place, first_pair=first), analysis.observe(block))
        first += len(block)
    analysis.finish()
    return round(first / (time.process_time() - begun))


def run_opusfilter(files: list[str], python: str) -> dict[str, Any]:
    if not python:
        print("OpusFilter is left out: name its Python with --opusfilter", file=sys.stderr)
        return {}
    command = [python, str(HERE / "doctor_opusfilter.py"), *files, str(PAIRS_FOR_OPUSFILTER), str(CORES)]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    whole = {jobs: round(PAIRS_FOR_OPUSFILTER / seconds) for jobs, seconds in found["whole_seconds"].items()}
    used = {jobs: round(PAIRS_FOR_OPUSFILTER / seconds) for jobs, seconds in found["whole_cpu_seconds"].items()}
    rules = {name: round(rate) for name, rate in found["pairs_per_second"].items()}
    return {
        "pairs_per_cpu_second_by_rule": rules,
        "pairs_per_second_by_processes": whole,
        "pairs_per_cpu_second_by_processes": used,
    }


def report(content: dict[str, Any]) -> Iterator[str]:
    for name, rate in content["pairs_per_second"].items():
        after = content["pairs_per_second_after_the_start"][name]
        yield f"doctor, {name}: {rate:,} pairs/s on {CORES} cores, {after:,} without the {content['start_seconds']} s to start"
        yield f"    {content['pairs_per_cpu_second_after_the_start'][name]:,} pairs for each second of CPU time after the start"
    yield f"largest process: {content['memory_of_the_largest_process_mb']} MB"
    for name, rate in content["pairs_per_cpu_second_by_analysis"].items():
        yield f"    {name:34} {rate:12,} pairs/s of one core"
    for name, rate in content["pairs_per_cpu_second_with_the_end"].items():
        yield f"    {name:34} {rate:12,} pairs/s of one core, with its end"
    for name, rate in content["opusfilter"].get("pairs_per_cpu_second_by_rule", {}).items():
        yield f"OpusFilter {name:30} {rate:8,} pairs/s of one core"
    for jobs, rate in content["opusfilter"].get("pairs_per_second_by_processes", {}).items():
        used = content["opusfilter"]["pairs_per_cpu_second_by_processes"][jobs]
        yield f"OpusFilter, the same rules and duplicates, {jobs} processes: {rate:,} pairs/s, {used:,} for each CPU second"


if __name__ == "__main__":
    main()
