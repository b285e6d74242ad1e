"""The scripts of deploy/slurm on a real SLURM: an array that translates a corpus, and training that is interrupted and requeued.

    python benchmarks/slurm.py RUN --lines FILE [--preempt-by PARTITION]

Needs a SLURM whose default partition runs jobs here; about five minutes on two cores. RUN: a model that translates FILE.
array      four tasks share eight shards, then a job that depends on them verifies and joins: compared with one process.
requeue    a run on two tasks gets the signal that SLURM sends before the time limit, saves, goes back to the queue, and resumes.
cancel     the same, but the job is cancelled, and submitted again by hand.
preempt    the same, but a job in a partition of higher priority takes the node (PreemptMode=REQUEUE and a GraceTime).
All of them must end with the weights of a run that nobody interrupted. Writes benchmarks/results/slurm.json.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

from facts import write_result

from transduce.checkpoint import RunFolder, read_about
from transduce.run_log import read_events

SCRIPTS = Path(__file__).parents[1] / "deploy" / "slurm"
TASKS, SHARDS = 4, 8
SETTINGS = """
model.d_model=32 model.d_ff=64 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1 model.dropout=0.1
train.tokens_per_batch=512 train.log_every=1 train.validate_every=100 train.checkpoint_every=1000 train.validate_lines=20
train.steps=300 train.shards=4 train.device=cpu train.schedule=inverse_sqrt train.process_timeout=30
""".split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument("--preempt-by", default="")
    options = parser.parse_args()
    run, lines = options.run.resolve(), options.lines.resolve()
    # The jobs get this environment.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, chdir(folder):
        os.environ["TRANSDUCE_CACHE"] = f"{folder}/cache"
        write_pairs()
        found: dict[str, Any] = {"array": array(run, lines)}
        straight = Training("straight").finish()
        found["requeue"] = interrupted("requeued", straight, requeue)
        found["cancel"] = cancelled("cancelled", straight)
        if options.preempt_by:
            found["preempt"] = interrupted("preempted", straight, lambda job: preempt(job, options.preempt_by))
    found["slurm"] = subprocess.run(["sinfo", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(write_result("slurm", "python benchmarks/slurm.py RUN --lines FILE --preempt-by high", ["torch"], **found))


# --- translating -----------------------------------------------------------------------------------------------


def array(run: Path, lines: Path) -> dict[str, Any]:
    text = lines.read_text(encoding="utf-8").splitlines()
    common = [run, lines, "--shard-lines", -(-len(text) // SHARDS), "--beam", 1, "--threads", 1]
    transduce("batch", *common, "--output", "one", "--collect", "one.txt")
    transduce("batch", *common, "--output", "many", "--prepare")
    began = time.time()
    tasks = sbatch(f"--array=0-{TASKS - 1}", SCRIPTS / "batch.sh", *common, "--output", "many")
    join = "transduce batch --output many --verify --collect many.txt"
    wait(sbatch(f"--dependency=afterok:{tasks}", "--wrap", join))
    one, many = (Path(f"{name}.txt").read_bytes() for name in ("one", "many"))
    found = {
        "lines": len(text),
        "lines_out": many.count(b"\n"),
        "tasks": TASKS,
        "shards": len(list(Path("many").glob("shard-*"))),
        "equal_bytes": one == many,
        "seconds": round(time.time() - began, 1),
    }
    print("array", found, flush=True)
    return found


def transduce(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "transduce", *map(str, arguments)], check=True)


# --- training --------------------------------------------------------------------------------------------------


def write_pairs() -> None:
    """Words to spell backwards."""
    draw = random.Random(1)
    for name, count in (("train", 2000), ("valid", 40)):
        words = [[draw.choice("abcdefgh") for _ in range(draw.randint(2, 8))] for _ in range(count)]
        Path(f"{name}.tsv").write_text("".join(f"{' '.join(w)}\t{' '.join(w[::-1])}\n" for w in words))


class Training:
    """A run as a job of two tasks, each of which is one process."""

    def __init__(self, name: str) -> None:
        self.folder = Path(name)
        files = ["--train", "train.tsv", "--valid", "valid.tsv"]
        tasks = ["--nodes=1", "--ntasks=2", "--ntasks-per-node=2"]
        self.job = sbatch(*tasks, f"--output={name}.log", SCRIPTS / "train.sh", name, *files, "--set", *SETTINGS)

    def steps(self) -> int:
        log = self.folder / "metrics.jsonl"
        return max((event.get("step", 0) for event in read_events(log)), default=0) if log.exists() else 0

    def wait_for_step(self, step: int) -> None:
        until = time.time() + 120
        while self.steps() < step:
            if time.time() > until:
                raise SystemExit(f"step {step} was not reached:\n{Path(f'{self.folder}.log').read_text()}")
            time.sleep(0.1)

    def finish(self) -> dict[str, str]:
        wait(self.job)
        return {which: read_about(RunFolder(self.folder).weights(which))["sha256"] for which in ("best", "last")}


def interrupted(name: str, straight: dict[str, str], interrupt: Callable[[str], None]) -> dict[str, Any]:
    """A run that is interrupted after 50 steps; its checkpoints are so rare that only one saved by the signal helps."""
    training = Training(name)
    training.wait_for_step(50)
    began = time.time()
    interrupt(training.job)
    steps = training.steps()
    training.wait_for_step(steps + 20)
    found = {
        "interrupted_at_step": steps,
        "seconds_until_it_went_on": round(time.time() - began, 1),
        "equal_weights": training.finish() == straight,
        "restarts": int(state(training.job)["Restarts"]),
        "steps_repeated": repeated_steps(training.folder),
    }
    print(name, found, flush=True)
    return found


def cancelled(name: str, straight: dict[str, str]) -> dict[str, Any]:
    first = Training(name)
    first.wait_for_step(50)
    subprocess.run(["scancel", first.job], check=True)
    _wait(first.job, lambda shown: shown["JobState"] == "CANCELLED" and shown["EndTime"] != "Unknown", ends=("FAILED",))
    steps = first.steps()
    found = {
        "cancelled_at_step": steps,
        "equal_weights": Training(name).finish() == straight,
        "restarts": int(state(first.job)["Restarts"]),
        "steps_repeated": repeated_steps(first.folder),
    }
    print(name, found, flush=True)
    return found


def requeue(job: str) -> None:
    """What SLURM does two minutes before the time limit."""
    subprocess.run(["scancel", "--batch", "--signal=USR1", job], check=True)
    wait_for_restart(job)


def preempt(job: str, partition: str) -> None:
    urgent = sbatch(f"--partition={partition}", "--exclusive", "--wrap", "sleep 2")
    wait(urgent)
    wait_for_restart(job)


def repeated_steps(run: Path) -> int:
    steps = [event["step"] for event in read_events(run / "metrics.jsonl") if event["event"] == "train"]
    return len(steps) - len(set(steps))


# --- SLURM -----------------------------------------------------------------------------------------------------


def sbatch(*arguments: object) -> str:
    """Submits a job and returns its number."""
    submitted = subprocess.run(["sbatch", "--parsable", *map(str, arguments)], capture_output=True, text=True)
    if submitted.returncode:
        raise SystemExit(submitted.stderr)
    return submitted.stdout.strip()


def state(job: str) -> dict[str, str]:
    shown = subprocess.run(["scontrol", "show", "job", "--oneliner", job], capture_output=True, text=True, check=True)
    return dict(field.split("=", 1) for field in shown.stdout.split() if "=" in field)


def wait(job: str) -> None:
    """Until the job is completed."""
    _wait(job, lambda shown: shown["JobState"] == "COMPLETED")


def wait_for_restart(job: str) -> None:
    _wait(job, lambda shown: int(shown["Restarts"]) > 0)


ENDS = ("FAILED", "CANCELLED", "TIMEOUT")


def _wait(job: str, done: Callable[[dict[str, str]], bool], most_s: float = 200, ends: tuple[str, ...] = ENDS) -> None:
    until = time.time() + most_s
    while not done(shown := state(job)):
        if time.time() > until or shown["JobState"] in ends:
            logs = "\n".join(path.read_text() for path in Path().glob("*.log"))
            raise SystemExit(f"{logs}\njob {job} is {shown['JobState']} after {shown['Restarts']} restarts")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
