"""Is this version slower than an earlier one? Both run alternately on one machine, each in its own process, which stays.

    git worktree add /tmp/before COMMIT
    python benchmarks/before_after.py /tmp/before --what train --device cuda --preset base --batch 25600
    python benchmarks/before_after.py /tmp/before --what translate --device cpu --run RUN --lines FILE

A turn of training is a number of steps on the same data; a turn of translation is a whole file, strings in, strings out;
`load` is opening a model folder and translating one line. The ratio is new over old speed in each round.
"""

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from company import alone

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the tree of the earlier version")
    parser.add_argument("--what", choices=["train", "translate", "load"], required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--preset", default="")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=40, help="of a turn")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=1, help="translate the file so many times over in a turn")
    parser.add_argument("--run", default="", help="the model folder to translate with")
    parser.add_argument("--lines", default="", help="the file to translate")
    parser.add_argument("--train", nargs="+", default=[], help="training data: a source and a target file")
    parser.add_argument("--commit", default="", help="of the earlier version, where it is not in a Git repository")
    parser.add_argument("--name", default="", help="write benchmarks/results/NAME.json")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        WORK[options.what](options)
        return
    from facts import write_result  # not in a worker: it imports this version, and a worker may be of the other

    result = compare(options)
    print(json.dumps(result))
    if options.name:
        command = f"python benchmarks/before_after.py BEFORE --what {options.what} --device {options.device}"
        write_result(
            options.name,
            command,
            ["torch"],
            before=options.commit or commit(options.before),
            options=shown(options),
            **result,
        )


def compare(options: argparse.Namespace) -> dict:
    """Every version once a round, each round beginning with the other."""
    workers = {"before": start(options.before), "now": start(HERE.parent)}
    for worker in workers.values():
        answer(worker)  # ready, and warm
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    with alone():
        for number in range(options.rounds):
            for name in list(workers) if number % 2 else list(workers)[::-1]:
                seconds[name].append(turn(workers[name]))
    for worker in workers.values():
        worker.stdin.close()  # type: ignore[union-attr]
        worker.terminate()
    ratios = sorted(before / now for before, now in zip(seconds["before"], seconds["now"], strict=True))
    return {
        "what": options.what,
        "now_over_before": {"median": round(statistics.median(ratios), 3), "least": round(ratios[0], 3), "most": round(ratios[-1], 3)},
        "seconds": {name: [round(one, 4) for one in all_] for name, all_ in seconds.items()},
    }  # fmt: skip


def start(tree: Path) -> "subprocess.Popen[str]":
    arguments = [word for word in sys.argv[1:] if word != "--worker"]
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), *arguments, "--worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(tree.resolve()), "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"},
    )  # fmt: skip


def turn(worker: "subprocess.Popen[str]") -> float:
    worker.stdin.write("go\n")  # type: ignore[union-attr]
    worker.stdin.flush()  # type: ignore[union-attr]
    return answer(worker)


def answer(worker: "subprocess.Popen[str]") -> float:
    for line in worker.stdout:  # type: ignore[union-attr]
        if line.startswith("seconds "):
            return float(line.split()[1])
    raise SystemExit("a worker ended")


def commit(tree: Path) -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def shown(options: argparse.Namespace) -> dict:
    return {
        name: value for name, value in vars(options).items() if name in ("preset", "batch", "steps", "beam", "repeat")
    }


# --- what a worker does ----------------------------------------------------------------------------------------


def tell(seconds: float) -> None:
    print(f"seconds {seconds}", flush=True)


def work_in_turns(once) -> None:  # type: ignore[no-untyped-def]
    """Twice to warm up; then once for each line that comes in."""
    once()
    once()
    tell(0.0)
    for _ in sys.stdin:
        begun = time.perf_counter()
        once()
        tell(time.perf_counter() - begun)


def own_copy(run: str) -> str:
    """The model folder without what a version keeps in it: each makes that for itself."""
    copy = f"{tempfile.mkdtemp()}/run"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("ct2"))
    return copy


def translate(options: argparse.Namespace) -> None:
    import transduce

    gc.set_threshold(50_000, 10, 10)  # as the command line does
    model = transduce.load(own_copy(options.run), device=options.device)
    lines = options.repeat * Path(options.lines).read_text(encoding="utf-8").split("\n")[:-1]
    work_in_turns(lambda: model.translate(lines, beam=options.beam))


def load(options: argparse.Namespace) -> None:
    import transduce

    line = Path(options.lines).read_text(encoding="utf-8").split("\n")[0]
    run = own_copy(options.run)
    work_in_turns(lambda: transduce.load(run, device=options.device).translate([line]))


def train(options: argparse.Namespace) -> None:
    """Steps of a real training, which waits for its turn after each so many of them."""
    import transduce
    from transduce.training.loop import Trainer

    usual, begun = Trainer._after_step, [0.0]

    def in_turns(trainer) -> None:  # type: ignore[no-untyped-def]
        usual(trainer)
        if trainer.progress.step % options.steps == 0:
            trainer.update.measured()  # waits for the device
            tell(time.perf_counter() - begun[0])
            if not sys.stdin.readline():
                os._exit(0)
            begun[0] = time.perf_counter()

    Trainer._after_step = in_turns
    settings = [
        f"train.tokens_per_batch={options.batch}", "train.steps=1000000", "train.epochs=0", f"train.device={options.device}",
        "train.validate_every=1000000", "train.checkpoint_every=1000000",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        transduce.train(
            f"{folder}/run", train=[tuple(options.train)], preset=options.preset, settings=settings, quiet=True
        )


WORK = {"train": train, "translate": translate, "load": load}


if __name__ == "__main__":
    main()
