"""How fast `transduce doctor` reads a corpus: CPU time of each rule and analysis, and of everything on all cores.

python benchmarks/rule_speed.py                      Europarl's first 400,000 pairs
python benchmarks/rule_speed.py --pairs 40000        a quick trial, which writes no result file

CPU times do not depend on other programs on the machine as much as the time of the clock does. Every figure is the best of three.
"""

import argparse
import json
import lzma
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from facts import default_data, write_result

from transduce.cores import available_cores
from transduce.data import Corpus
from transduce.diagnosis.analysis import Block, Context, Side
from transduce.diagnosis.characters import character_rules
from transduce.diagnosis.examination import Options, examine, open_corpora
from transduce.diagnosis.markup import MARKUP_RULES
from transduce.diagnosis.pairs import PAIR_RULES
from transduce.diagnosis.reading import PortionParser, PortionReader
from transduce.diagnosis.thresholds import thresholds
from transduce.training.request import TrainingRequest, requested_settings

PAIRS = 400_000
REPEATS = 3
RULE_BLOCKS = 24  # blocks that single rules are timed on


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--data", type=Path, default=default_data() / "europarl-de-en")
    parser.add_argument(
        "--one", nargs=3, help=argparse.SUPPRESS
    )  # processes, "fast" or "full", folder: in a process of its own
    arguments = parser.parse_args()
    if arguments.one:
        print(
            json.dumps(whole(int(arguments.one[0]), arguments.one[1] == "fast", Path(arguments.one[2]), arguments.data))
        )
        return
    with tempfile.TemporaryDirectory() as scratch:
        unpack(arguments.data, arguments.pairs, Path(scratch))
        content = {
            "pairs": arguments.pairs,
            "rules": rules(Path(scratch)),
            "whole": [*wholes(Path(scratch), arguments.data)],
        }
    show(content)
    if arguments.pairs == PAIRS:
        print(write_result("doctor-rules", "python benchmarks/rule_speed.py", ["numpy", "ftfy"], **content))


def unpack(data: Path, pairs: int, folder: Path) -> None:
    for language in ("de", "en"):
        with lzma.open(data / f"train-0.{language}.xz") as file, (folder / f"train.{language}").open("wb") as copy:
            copy.writelines(islice(file, pairs))


def rules(folder: Path) -> dict[str, float]:
    """Microseconds of CPU time a pair, by rule; the first line is what all of them share."""
    corpus = Corpus(((str(folder / "train.de"), str(folder / "train.en")),))
    parse = PortionParser("train", corpus)
    blocks = [parse(portion).block for portion in islice(PortionReader("train", corpus), RULE_BLOCKS)]
    pairs = sum(map(len, blocks))
    context = Context("train", (), thresholds((), blocks[:1], {}))
    times = {
        "splitting into lines, decoding, lengths": best(lambda: [prepared(block) for block in fresh(blocks)], pairs)
    }
    ready = [prepared(block) for block in fresh(blocks)]
    for rule in (*character_rules(), *MARKUP_RULES, *PAIR_RULES):
        times[rule.name] = best(lambda rule=rule: [rule.rows(block, context) for block in ready], pairs)  # type: ignore[misc]
    return times


def fresh(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same blocks without what they remember."""
    return (Block(block.place, Side(block.source.data), Side(block.target.data)) for block in blocks)


def prepared(block: Block) -> Block:
    for side in block.sides:
        _ = side.lines, side.text, side.ends, side.lengths
    return block


def best(work: Callable[[], Any], pairs: int) -> float:
    times = []
    for _ in range(REPEATS):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return round(min(times) / pairs * 1e6, 3)


def wholes(folder: Path, data: Path) -> Iterator[dict[str, Any]]:
    for kind in ("fast", "full"):
        for processes in sorted({1, available_cores()}):
            one = ["--one", str(processes), kind, str(folder)]
            yield best_whole([sys.executable, __file__, "--data", str(data), *one])


def best_whole(command: list[str]) -> dict[str, Any]:
    outputs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(REPEATS)]
    return min((json.loads(output.splitlines()[-1]) for output in outputs), key=lambda one: one["seconds"])


def whole(processes: int, fast: bool, folder: Path, data: Path) -> dict[str, Any]:
    """One examination with validation and test data, without the preview of training."""
    files = [(str(folder / "train.de"), str(folder / "train.en")), (str(data / "valid.de"), str(data / "valid.en"))]
    requested = requested_settings(
        TrainingRequest(train=files[0], valid=files[1], languages=("de", "en"), settings=["train.steps=1"])
    )
    with open_corpora(requested, ((str(data / "test.de"), str(data / "test.en")),)) as corpora:
        report = examine(corpora, requested, Options(workers=processes, fast=fast)).report
    pairs = sum(one.pairs for one in report.corpora if one.role == "train")
    memory = [resource.getrusage(who).ru_maxrss // 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "processes": processes,
        "rules": "without near-duplicates and languages" if fast else "all",
        "seconds": round(report.reading_seconds, 2),
        "pairs_per_second": round(pairs / report.reading_seconds),
        "cpu_microseconds_a_pair": round(report.cpu_seconds / pairs * 1e6, 2),
        "by_analysis": {name: round(seconds / pairs * 1e6, 2) for name, seconds in report.rates.items()},
        "memory_mb": memory[0],
        "memory_of_a_worker_mb": memory[1],
    }


def show(content: dict[str, Any]) -> None:
    for name, microseconds in content["rules"].items():
        print(f"{name:45} {microseconds:7.3f} µs a pair")
    for one in content["whole"]:
        print(one)


if __name__ == "__main__":
    main()
