"""Flip bits in every file of a run folder, and count who notices.

    python benchmarks/flips.py --flips 40 --resumed 8

Two runs on a toy task are trained: one that is finished, with its CTranslate2 form and a shortlist, and one that was
stopped halfway. In a copy of the folder one file is altered, by a flipped bit or an overwritten byte, and a command is
run as a user would. Each time is one of

- detected: the command ends with one line that says so, or says what is damaged and goes on without it;
- unchanged: outputs, scores or final weights are those of the undamaged folder;
- different: they are others, and nobody said a word;
- traceback: an exception, a crash, or no answer at all.

The last two must not occur. Writes benchmarks/results/flips.json.
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SETTINGS = """
model.d_model=32 model.d_ff=64 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1
train.tokens_per_batch=120 train.positions_per_microbatch=64 train.log_every=4 train.validate_every=8
train.checkpoint_every=6 train.average=3 train.threads=1 train.device=cpu train.learning_rate=3e-3 train.warmup_steps=5
train.validate_lines=10 search.length_penalty=power
""".split()
STEPS, STOPPED_AT, RESUMED_TO = 24, 20, 26
SAID = re.compile(r"altered|torn|damaged|cannot be (read|drawn)|hash|lacks|missing")
HEADERS = 3_000  # bytes
PATIENCE_S = 300.0  # for an answer; a command takes seconds
COMMANDS = ("translate, torch", "translate, ct2", "translate, shortlist", "evaluate", "train")
OUTCOMES = ("detected", "unchanged", "different", "traceback")


@dataclass(frozen=True)
class Base:
    """The two runs, and what is asked of them."""

    folder: Path

    @property
    def finished(self) -> Path:
        return self.folder / "finished"

    @property
    def stopped(self) -> Path:
        return self.folder / "stopped"

    @property
    def runs(self) -> tuple[Path, Path]:
        return self.finished, self.stopped

    def commands(self, run: Path) -> dict[str, list[str]]:
        lines, test = str(self.folder / "lines"), str(self.folder / "valid.tsv")
        translate = ["translate", str(run), "--input", lines, "--threads", "1", "--device", "cpu", "--n-best", "2"]
        evaluate = ["evaluate", str(run), test, "--threads", "1", "--device", "cpu", "--json"]
        return {
            "translate, torch": [*translate, "--engine", "torch"],
            "translate, ct2": [*translate, "--engine", "ct2"],
            "translate, shortlist": [*translate, "--engine", "ct2", "--shortlist"],
            "evaluate": evaluate,
            "train": ["train", str(run), "--set", f"train.steps={RESUMED_TO}"],
        }


# --- the runs --------------------------------------------------------------------------------------------------


def make_base(folder: Path) -> Base:
    """A toy task, a finished run and one that was stopped."""
    os.environ["TRANSDUCE_CACHE"] = str(folder / "cache")
    draw = random.Random(0)
    for name, count in (("train", 300), ("valid", 20)):
        words = [[draw.choice("abcdef") for _ in range(draw.randint(2, 6))] for _ in range(count)]
        text = "".join(f"{' '.join(word)}\t{' '.join(reversed(word))}\n" for word in words)
        (folder / f"{name}.tsv").write_text(text)
    (folder / "lines").write_text("a b c\nf e d c\nb\n")
    base = Base(folder)
    train(base, base.finished)
    quietly(["shortlist", str(base.finished), "--threads", "1"])
    quietly(base.commands(base.finished)["translate, ct2"])
    train(base, base.stopped, STOPPED_AT)
    return base


def train(base: Base, run: Path, stop_at: int = 0) -> None:
    from transduce.training import SilentReporter, Stopped, TrainingRequest
    from transduce.training import train as run_training

    class Stopping(SilentReporter):
        def step(self, report: Any) -> None:
            if stop_at and report.step >= stop_at:
                os.kill(os.getpid(), signal.SIGTERM)

    files = {name: [(str(base.folder / f"{name}.tsv"),)] for name in ("train", "valid")}
    with contextlib.suppress(Stopped):
        request = TrainingRequest(**files, settings=[*SETTINGS, f"train.steps={STEPS}"])
        run_training(run, request, reporter=Stopping())


def quietly(arguments: list[str]) -> None:
    code, said, _ = run_command(arguments)
    if code:
        raise SystemExit(said)


# --- one damage ------------------------------------------------------------------------------------------------


def run_command(arguments: list[str]) -> tuple[int, str, Any]:
    """The exit code, what was said to people, and what came of it: the output, or the hashes of the weights."""
    from transduce.checkpoint import RunFolder, read_about
    from transduce.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    result: Any = out.getvalue()
    if arguments[0] == "train" and code == 0:
        folder = RunFolder(Path(arguments[1]))
        result = [read_about(folder.weights(which))["sha256"] for which in ("best", "last", "averaged")]
    if arguments[0] == "evaluate" and code == 0:
        result = json.loads(result)["scores"]
    return code, err.getvalue(), result


def outcome(arguments: list[str], expected: Any) -> tuple[str, str]:
    """What became of a command, and what it said."""
    try:
        code, said, result = run_command(arguments)
    except (Exception, SystemExit):
        return "traceback", traceback.format_exc()
    if code:
        one_line = said.splitlines()[-1:] and said.splitlines()[-1].startswith("transduce: ")
        return ("detected" if one_line and "Traceback" not in said else "traceback"), said
    if SAID.search(said):
        return "detected", said
    return ("unchanged" if result == expected else "different"), said


def damaged(content: bytes, draw: random.Random) -> bytes:
    """One bit flipped, or one byte overwritten by another; half of them near the beginning, where headers are."""
    altered = bytearray(content)
    place = draw.randrange(draw.choice((len(content), min(len(content), HEADERS))))
    altered[place] ^= 1 << draw.randrange(8) if draw.random() < 0.5 else draw.randint(1, 255)
    return bytes(altered)


def files_of(run: Path) -> list[str]:
    """Every file that is not empty, by its name within the run."""
    return sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.is_file() and p.stat().st_size)


@contextlib.contextmanager
def altered_copy(run: Path, file: str, draw: random.Random) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copytree(run, Path(scratch) / "run")
        (copy / file).write_bytes(damaged((run / file).read_bytes(), draw))
        yield copy


def whole_result(base: Base, run: Path, command: str) -> Any:
    """What comes of a command where nothing is damaged; the run itself is left alone."""
    if run == base.stopped and command != "train":
        return None  # it has no shortlist, and is only resumed
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copytree(run, Path(scratch) / "run")
        code, said, result = run_command(base.commands(copy)[command])
    if code:
        raise SystemExit(said)
    return result


# --- all of them -----------------------------------------------------------------------------------------------


class Worker:
    """Commands in another process, so that a crash or an endless wait is counted, not shared."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        self.here, there = self.context.Pipe()
        self.process = self.context.Process(target=_serve, args=(there,), daemon=True)
        self.process.start()

    def outcome(self, arguments: list[str], expected: Any) -> tuple[str, str]:
        self.here.send((arguments, expected))
        try:
            if self.here.poll(PATIENCE_S):
                found: tuple[str, str] = self.here.recv()
                return found
            reason = f"no answer in {PATIENCE_S:.0f} s"
        except EOFError:
            reason = "the process crashed"
        self.process.kill()
        self._start()
        return "traceback", reason

    def close(self) -> None:
        self.here.send(None)
        self.process.join()


def _serve(pipe: Any) -> None:
    while asked := pipe.recv():
        pipe.send(outcome(*asked))


def plan(base: Base, flips: int, resumed: int) -> list[tuple[Path, str, str, int]]:
    """Which run, file and command, and how often."""
    *translating, evaluate, train = COMMANDS
    jobs = [(base.finished, f, c, flips // 3) for f in files_of(base.finished) for c in translating]
    for command in (evaluate, train):
        jobs += [(base.finished, file, command, resumed) for file in files_of(base.finished)]
    return jobs + [(base.stopped, file, "train", resumed) for file in files_of(base.stopped)]


def main() -> None:
    from facts import write_result

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=40, help="of each file, before translating")
    parser.add_argument("--resumed", type=int, default=8, help="of each file, before evaluating and before training on")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base, worker, draw = make_base(Path(folder)), Worker(), random.Random(1)
        counts: dict[str, Counter[str]] = {}
        expected = {(run, command): whole_result(base, run, command) for run in base.runs for command in COMMANDS}
        for run, file, command, times in plan(base, options.flips, options.resumed):
            tally = counts.setdefault(f"{run.name}: {_general(file)}: {command.split(',')[0]}", Counter())
            for _ in range(times):
                with altered_copy(run, file, draw) as copy:
                    found, said = worker.outcome(base.commands(copy)[command], expected[run, command])
                tally[found] += 1
                if found in OUTCOMES[2:]:
                    print(f"{run.name}/{file}, {command}: {found}\n{said}", flush=True)
            print(f"{run.name}/{file}, {command}: {dict(tally)}", flush=True)
        worker.close()
    total = {name: sum(tally[name] for tally in counts.values()) for name in OUTCOMES}
    command = f"python benchmarks/flips.py --flips {options.flips} --resumed {options.resumed}"
    table = {name: {o: tally[o] for o in OUTCOMES} for name, tally in counts.items()}
    print(write_result("flips", command, ["torch", "ctranslate2"], flips=sum(total.values()), **total, files=table))


def _general(file: str) -> str:
    """Without what differs from run to run: hashes, host names, times."""
    file = re.sub(r"-[0-9a-f]{16}/", "/", file)
    return re.sub(r"events\.out\S*", "events", file)


if __name__ == "__main__":
    main()
