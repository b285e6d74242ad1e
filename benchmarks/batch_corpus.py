"""A corpus through `transduce batch` in all its forms, with random kills: counts, bytes, memory and speed.

    python benchmarks/batch_corpus.py RUN FILE --lines 150000 --shard-lines 5000
    python benchmarks/batch_corpus.py /tmp/tiny europarl.en --tiny --lines 1000000 --shard-lines 50000

With `--tiny`, RUN is a model of one layer that pronounces words; it is trained first if it is not there (a minute on two cores). The lines are then the words of the file, one
on each: a million of them took 21 minutes on two busy cores.

Translates the lines greedily: by `transduce translate` over the whole file; by `batch` in one process (all lines, a quarter of them, all in one shard), in two processes of which
random ones are killed (and the command too), on Ray with two actors and the same kills, and as an array of four tasks in a loop.
All must write the same bytes. Writes benchmarks/results/batch-corpus.json, or batch-corpus-million.json with `--tiny`.
"""

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from facts import write_result

import transduce
from transduce.pronunciations import read_dictionary, split_dictionary, write_splits

WORD = re.compile(rb"[a-z']+")
TINY = (
    "model.d_model=64 model.d_ff=128 model.num_heads=4 model.num_encoder_layers=1 model.num_decoder_layers=1 model.dropout=0.0 "
    "train.tokens_per_batch=2048 train.steps=800 train.learning_rate=5e-3 train.warmup_steps=100 train.validate_every=400 "
    "train.checkpoint_every=400 train.validate_lines=300 train.average=0 search.beam=1"
).split()
WORKER_KILLS, DRIVER_KILLS, TASKS = 6, 2, 4


@dataclass(frozen=True)
class Job:
    run: str
    given: Path
    shard_lines: int

    def command(self, verb: str, *more: str) -> list[str]:
        return [sys.executable, "-m", "transduce", verb, self.run, str(self.given), "--beam", "1", "--quiet", *more]

    def batch(self, output: Path, *more: str) -> list[str]:
        return self.command("batch", "-o", str(output), "--shard-lines", str(self.shard_lines), *more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("file", type=Path)
    parser.add_argument("--lines", type=int, default=150_000, help="the file is repeated if it has fewer")
    parser.add_argument("--shard-lines", type=int, default=5_000)
    parser.add_argument("--tiny", action="store_true", help="train a tiny model as RUN, and translate single words")
    parser.add_argument(
        "--dictionary", type=Path, help="a folder with train.tsv and valid.tsv; else that of `transduce demo`"
    )
    options = parser.parse_args()
    if options.tiny:
        train_tiny(options.run, options.dictionary)
    command = f"python benchmarks/batch_corpus.py RUN {options.file.name} --lines {options.lines} --shard-lines {options.shard_lines}{' --tiny' * options.tiny}"
    name = "batch-corpus-million" if options.tiny else "batch-corpus"
    with tempfile.TemporaryDirectory() as folder:
        job = Job(options.run, Path(folder) / "given", options.shard_lines)
        write_lines(options.file, options.lines, job.given, WORD if options.tiny else None)
        for figures in measure(job, Path(folder), options.lines):  # written each time: all forms together take long
            path = write_result(name, command, ["torch", "ctranslate2", "ray"], lines=options.lines, **figures)
    print(path)


def train_tiny(run: str, data: Path | None) -> None:
    """English spelling to pronunciation, with one layer."""
    if not (Path(run) / "README.md").exists():
        with tempfile.TemporaryDirectory() as folder:
            if data is None:
                write_splits(split_dictionary(read_dictionary()), data := Path(folder))
            train, valid = str(data / "train.tsv"), str(data / "valid.tsv")
            transduce.train(run, train=train, valid=valid, settings=TINY)


def write_lines(source: Path, count: int, given: Path, part: "re.Pattern[bytes] | None" = None) -> None:
    """The first lines of a file, or the first parts of them, such as words; repeated if there are fewer.

    One after the other: the memory of this process counts in that of the commands it starts.
    """
    with given.open("wb") as out:
        while count:
            with source.open("rb") as file:
                for line in file:
                    found = part.findall(line.lower()) if part else [line.removesuffix(b"\n")]
                    out.writelines(one + b"\n" for one in found[:count])
                    count -= min(count, len(found))


def measure(job: Job, folder: Path, lines: int) -> Iterator[dict]:
    """The figures of all forms so far, after each of them."""
    whole, found = folder / "whole", {}
    found["translate"] = timed(job.command("translate"), lines, whole)
    quarter = Job(job.run, folder / "quarter", job.shard_lines)
    write_lines(job.given, lines // 4, quarter.given)
    found["quarter"] = timed(quarter.batch(folder / "quarter-out"), lines // 4)
    found["local"] = timed(job.batch(folder / "local"), lines)
    found["one_shard"] = timed(replace(job, shard_lines=lines).batch(folder / "one_shard"), lines)
    # Files are read from here on: the memory of this process counts in that of the commands it starts.
    pace, reference = found["local"]["seconds"], joined(folder / "local")
    pairs = zip(whole.read_bytes().split(b"\n"), reference.split(b"\n"), strict=True)
    differ = sum(one != other for one, other in pairs)
    on_ray = "--on ray --workers 2 --threads 1".split()
    forms = {
        "local": lambda output: found["local"],
        "array": lambda output: array(job, output, lines),
        "processes": lambda output: killed(job.batch(output, "--workers", "2"), output, pace, lines),
        "ray": lambda output: killed(job.batch(output, *on_ray), output, pace, lines),
    }
    for name, run in forms.items():
        found[name] = run(folder / name)
        content = reference if name == "local" else joined(folder / name)
        found[name] |= {"same_bytes": content == reference, "lines": content.count(b"\n")}
        found[name]["verified"] = transduce.verify_batch(folder / name).is_complete
        yield {"forms": found, "differ_from_translate": differ}


def timed(command: list[str], lines: int, output: Path | None = None) -> dict:
    """Seconds by the clock and of computing, lines per second of both, and the largest memory of a command."""
    begun = time.perf_counter()
    with output.open("wb") if output else contextlib.nullcontext() as file:
        process = subprocess.Popen(command, stdout=file)
        _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, command
    seconds = time.perf_counter() - begun
    print(f"{lines / seconds:,.0f} lines/s: {' '.join(command[3:])}", flush=True)
    computing = usage.ru_utime + usage.ru_stime
    return {
        "seconds": round(seconds, 1),
        "lines_per_s": round(lines / seconds),
        "computing_s": round(computing, 1),
        "lines_per_computing_s": round(lines / computing),
        "peak_mb": usage.ru_maxrss >> 10,
    }


def array(job: Job, output: Path, lines: int) -> dict:
    tasks = [timed(job.batch(output, "--shard", str(n), "--shards", str(TASKS)), lines // TASKS) for n in range(TASKS)]
    return {"tasks": TASKS, "seconds": round(sum(task["seconds"] for task in tasks), 1)}


def killed(command: list[str], output: Path, pace: float, lines: int) -> dict:
    """Run a command to its end, while its workers, and sometimes the command itself, are killed at random moments."""
    draw, begun, commands = random.Random(1), time.perf_counter(), 1
    victims = ["worker"] * WORKER_KILLS + ["driver"] * DRIVER_KILLS
    draw.shuffle(victims)
    done: list[dict] = []
    driver = subprocess.Popen(command)
    while driver.poll() is None:
        if not victims or not wait_busy(driver, output, draw.uniform(0.05, 0.15) * pace):
            driver.wait()
            break
        victim = victims.pop()
        done.append({"killed": victim, "after_s": round(time.perf_counter() - begun, 1), "shards": finished(output)})
        kill(driver, victim, draw)
        if victim == "driver":
            driver.wait()
            driver, commands = subprocess.Popen(command), commands + 1
    assert driver.wait() == 0
    seconds = round(time.perf_counter() - begun, 1)
    print(f"{lines / seconds:,.0f} lines/s with {len(done)} kills: {' '.join(command[3:])}", flush=True)
    return {"seconds": seconds, "lines_per_s": round(lines / seconds), "commands": commands, "kills": done}


def wait_busy(driver: subprocess.Popen, output: Path, seconds: float) -> bool:
    """Wait until a worker is writing a shard, and some time more; False if the command ends before."""
    while driver.poll() is None and not list(workers(driver.pid, output)):
        time.sleep(0.05)
    end = time.perf_counter() + seconds
    while driver.poll() is None and time.perf_counter() < end:
        time.sleep(0.05)
    return driver.poll() is None


def kill(driver: subprocess.Popen, victim: str, draw: random.Random) -> None:
    pids = [driver.pid] if victim == "driver" else list(workers(driver.pid, Path()))
    if pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(draw.choice(pids), signal.SIGKILL)


def workers(driver: int, output: Path) -> Iterator[int]:
    """The processes below this one that translate, once a shard is being written."""
    if output != Path() and not list(output.glob(".shard-*")):
        return
    for pid in descendants(driver):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"worker_process" in line or b"ray::RayWorker" in line:
                yield pid


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                yield child
                yield from descendants(child)


def finished(output: Path) -> int:
    return len(list(output.glob("shard-*")))


def joined(output: Path) -> bytes:
    transduce.collect_batch(output, output / "joined")
    return (output / "joined").read_bytes()


if __name__ == "__main__":
    main()
