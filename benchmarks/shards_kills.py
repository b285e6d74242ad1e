"""Kill and stop processes of runs under torchrun, and compare their weights with those of a run that nobody disturbed.

    python benchmarks/shards_kills.py --kills 20 --changes 5 --hangs 2

Small runs learn to spell backwards with four shards. `kills`: `kill -9` of a random process at a random moment, torchrun
restarts the others; five kills a run. `changes`: a process is killed, torchrun gives up, and the run is resumed with another
number of processes. `hangs`: SIGSTOP of a process, which the time-out must name. Measures the seconds from the kill until
the run logs steps again. Writes benchmarks/results/shards-kills.json after each run; `--resume` continues one that was stopped.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from facts import RESULTS, write_result

from transduce.checkpoint import RunFolder, read_about

SETTINGS = """
model.d_model=64 model.d_ff=128 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1 model.dropout=0.1
train.tokens_per_batch=512 train.log_every=1 train.validate_every=100 train.checkpoint_every=10 train.validate_lines=20
train.average=3 train.steps=300 train.shards=4 train.device=cpu train.schedule=inverse_sqrt train.process_timeout=15
""".split()
KINDS = ("kills", "changes", "hangs")
KILLS_PER_RUN = 5
STARTING_S = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--changes", type=int, default=5)
    parser.add_argument("--hangs", type=int, default=2)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--resume", action="store_true", help="keep the results of a benchmark that was stopped")
    options = parser.parse_args()
    command = (
        f"python benchmarks/shards_kills.py --kills {options.kills} --changes {options.changes} --hangs {options.hangs}"
    )
    with tempfile.TemporaryDirectory() as folder:
        disturb = Disturbed(Path(folder), options.processes)
        straight = disturb.finish(Path(folder) / "straight", 1)
        results = earlier_results(straight) if options.resume else {kind: [] for kind in KINDS}
        for kind, one in disturbances(disturb, options, results):
            results[kind].append(one | {"equal": one.pop("weights") == straight})
            about = summary(results) | {"processes": options.processes, "weights": straight}
            path = write_result("shards-kills", command, ["torch"], **about)  # now: the next one may take long
    print(path)


def earlier_results(straight: dict[str, str]) -> dict[str, list[dict]]:
    """Those of a benchmark that was stopped; its undisturbed run must have had the same weights."""
    written = json.loads((RESULTS / "shards-kills.json").read_text())
    assert written["weights"] == straight, "other weights than those of the earlier results"
    return written["runs"]


def disturbances(
    disturb: "Disturbed", options: argparse.Namespace, done: dict[str, list[dict]]
) -> Iterator[tuple[str, dict]]:
    """Whatever is not done yet."""
    while left := options.kills - sum(len(one["seconds"]) for one in done["kills"]):
        yield "kills", disturb.killed(len(done["kills"]), min(KILLS_PER_RUN, left))
    for number in range(len(done["changes"]), options.changes):
        yield "changes", disturb.changed(number)
    for number in range(len(done["hangs"]), options.hangs):
        yield "hangs", disturb.hung(number)


def summary(results: dict[str, list[dict]]) -> dict:
    found = [one for ones in results.values() for one in ones]
    seconds = {kind: [second for one in ones for second in one["seconds"]] for kind, ones in results.items()}
    return {
        **{kind: len(values) for kind, values in seconds.items()},
        "equal": f"{sum(one['equal'] for one in found)} of {len(found)} runs",
        "named": f"{sum(one['named'] for one in results['hangs'])} of {len(results['hangs'])} hanging processes",
        "seconds_to_recover": {kind: _spread(values) for kind, values in seconds.items() if values},
        "runs": results,
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 1),
        "least": round(min(values), 1),
        "most": round(max(values), 1),
    }


class Disturbed:
    """Runs in a folder, with their data."""

    def __init__(self, folder: Path, processes: int) -> None:
        self.folder, self.processes, self.draw = folder, processes, random.Random(1)
        os.environ["TRANSDUCE_CACHE"] = str(folder / "cache")
        for name, count in (("train", 2000), ("valid", 40)):
            words = [[self.draw.choice("abcdefgh") for _ in range(self.draw.randint(2, 8))] for _ in range(count)]
            (folder / f"{name}.tsv").write_text("".join(f"{' '.join(w)}\t{' '.join(w[::-1])}\n" for w in words))

    def start(self, run: Path, processes: int, restarts: int) -> "subprocess.Popen[str]":
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        files = ["--train", str(self.folder / "train.tsv"), "--valid", str(self.folder / "valid.tsv")]
        command = [*launcher, f"--max-restarts={restarts}", "-m", "transduce", "train", str(run), *files]
        return subprocess.Popen([*command, "--set", *SETTINGS], stderr=subprocess.PIPE, text=True)

    def finish(self, run: Path, processes: int) -> dict[str, str]:
        return self.finished(self.start(run, processes, 0), run)

    def finished(self, process: "subprocess.Popen[str]", run: Path) -> dict[str, str]:
        _, printed = process.communicate()
        if process.returncode:
            raise SystemExit(printed)
        return {which: read_about(RunFolder(run).weights(which))["sha256"] for which in ("best", "last", "averaged")}

    def killed(self, number: int, kills: int) -> dict:
        """One run under one torchrun, in which random processes are killed one after the other."""
        run, seconds = self.folder / f"killed-{number}", []
        process = self.start(run, self.processes, kills)
        running_after(process, run, 0.0)
        for _ in range(kills):
            time.sleep(self.draw.uniform(0.0, 2.0))
            workers = workers_of(process)
            os.kill(self.draw.choice(workers), signal.SIGKILL)
            seconds.append(running_after(process, run, time.time(), set(workers)))
        print(f"killed {kills} times, running again after {seconds} s", flush=True)
        return {"weights": self.finished(process, run), "seconds": seconds}

    def changed(self, number: int) -> dict:
        """One run that is killed and resumed with twice or half as many processes."""
        run = self.folder / f"changed-{number}"
        process = self.start(run, self.processes, 0)
        running_after(process, run, 0.0)
        time.sleep(self.draw.uniform(0.0, 2.0))
        os.kill(self.draw.choice(workers_of(process)), signal.SIGKILL)
        begun = time.time()
        process.communicate()
        others = [count for count in (1, 2, 4) if count != self.processes]
        resumed = self.start(run, others[number % len(others)], 0)
        seconds = [running_after(resumed, run, begun)]
        print(f"resumed with {others[number % len(others)]} processes after {seconds} s", flush=True)
        return {"weights": self.finished(resumed, run), "seconds": seconds}

    def hung(self, number: int) -> dict:
        """One run in which a process is stopped; the time-out ends it, and it is resumed."""
        run = self.folder / f"hung-{number}"
        process = self.start(run, self.processes, 0)
        running_after(process, run, 0.0)
        rank = number % self.processes
        os.kill(workers_of(process)[rank], signal.SIGSTOP)
        begun = time.time()
        _, printed = process.communicate()
        named = f"process {rank} (host " in printed and "did not answer within 15 seconds" in printed
        seconds = [round(time.time() - begun, 1)]
        print(f"hung process named: {named}; ended after {seconds} s", flush=True)
        return {"weights": self.finish(run, self.processes), "seconds": seconds, "named": named}


def running_after(process: "subprocess.Popen[str]", run: Path, moment: float, before: set[int] = frozenset()) -> float:
    """Seconds from a moment until the run writes to its log again, by other workers than before."""
    until = time.time() + STARTING_S
    log = run / "metrics.jsonl"
    while time.time() < until:
        if process.poll() is not None:
            raise SystemExit(f"torchrun ended: {process.communicate()[1]}")
        others = set(workers_of(process)) - set(before)
        if others and log.exists() and log.stat().st_mtime > moment and not set(workers_of(process)) & set(before):
            return round(time.time() - moment, 1)
        time.sleep(0.05)
    raise SystemExit(f"{run}: no step within {STARTING_S:.0f} seconds")


def workers_of(process: "subprocess.Popen[str]") -> list[int]:
    """The processes that torchrun started, in the order of their numbers."""
    found = {}
    for children in Path(f"/proc/{process.pid}/task").glob("*/children"):
        for pid in children.read_text().split():
            rank = rank_of(pid)
            if rank is not None:
                found[int(pid)] = rank
    return sorted(found, key=lambda pid: found[pid])


def rank_of(pid: str) -> int | None:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((int(one[5:]) for one in variables if one.startswith(b"RANK=")), None)


if __name__ == "__main__":
    main()
