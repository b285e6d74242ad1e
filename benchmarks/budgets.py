"""Are minutes kept, and do the settings fitted to them hold up against settings chosen by hand?

    python benchmarks/budgets.py clock --minutes 1 1.5 3 --task europarl     asked and taken, one run after the other
    python benchmarks/budgets.py fit --minutes 10 5 2 --slots 7              every task fitted, on two cores each
    python benchmarks/budgets.py by-hand --minutes 5                         four other settings beside what is fitted

`fit` gives each run two cores of its own. `by-hand` measures how many steps each setting would take on two cores in the time
that the fitted run trains, and trains that many steps, on a GPU if there is one: the same model, sooner. Scores are of the
validation data, greedily.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from facts import default_data, write_result
from learning_curves import FILES

FILES = FILES | {"europarl": ["europarl-de-en/{}.de.xz", "europarl-de-en/{}.en.xz"]}
INFLECTION = ("german", "finnish")
TASKS = ["tatoeba", "multi30k", "cmudict", "eng_us", "german", "finnish", "jpn_hira"]
TRAINING_SHARE = 0.8  # of the minutes: what the fitted runs spend on training, about

BY_HAND = {
    "translation": {
        "128x3 b1500 v6000": "d=128 n=3 b=1500 v=6000 r=2e-3",
        "128x2 b1024 v8000": "d=128 n=2 b=1024 v=8000 r=3e-3",
        "192x3 b1024 v8000": "d=192 n=3 b=1024 v=8000 r=2e-3",
        "256x3 b2048 v8000": "d=256 n=3 b=2048 v=8000 r=1e-3",
    },
    "symbols": {
        "128x3 b1024": "d=128 n=3 b=1024 v=1000 r=2e-3",
        "128x2 b512": "d=128 n=2 b=512 v=1000 r=2e-3",
        "64x2 b512": "d=64 n=2 b=512 v=1000 r=3e-3",
        "256x3 b512": "d=256 n=3 b=512 v=1000 r=1e-3",
    },
}


def files(task: str, split: str, data: Path) -> list[str]:
    stem = {"train": "train-high"}.get(split, split) if task in INFLECTION else split
    if task == "europarl":
        names = FILES[task] if split == "train" else [name.removesuffix(".xz") for name in FILES[task]]
        return [str(data / name.format("train-0" if split == "train" else split)) for name in names]
    return [str(data / name.format(stem)) for name in FILES[task]]


def train_command(task: str, run: str, data: Path, *more: str) -> list[str]:
    columns = ["--set", "data.columns=source=1,features=3,target=2"] if task in INFLECTION else []
    command = [sys.executable, "-m", "transduce", "train", run, "--train", *files(task, "train", data)]
    return [*command, "--valid", *files(task, "valid", data), "--quiet", "--json", *more, *columns]


def timed(task: str, minutes: float, data: Path, device: str, cores: tuple[int, ...] = ()) -> dict:
    """One run through the command line, its clock, its settings and its score."""
    with tempfile.TemporaryDirectory() as folder:
        run = f"{folder}/run"
        begun = time.perf_counter()
        done = call(train_command(task, run, data, "--minutes", str(minutes), "--set", f"train.device={device}"), cores)
        seconds = time.perf_counter() - begun
        if done.returncode:
            return {"task": task, "minutes": minutes, "error": done.stderr[-500:]}
        scores = evaluate(run, task, data, device, cores)
        config = tomllib.loads(Path(run, "config.toml").read_text())
        plans = [json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines()]
        result = json.loads(done.stdout)
    asked = 60 * minutes
    return {
        "task": task, "minutes": minutes, "command_s": round(seconds, 1), "off_percent": round(100 * (seconds / asked - 1), 1),
        "steps": result["steps"], "training_s": round(result["seconds"], 1), "settings": chosen(config), "scores": scores,
        "plans": sum(line["event"] == "plan" for line in plans), "validations": sum(line["event"] == "valid" for line in plans),
    }  # fmt: skip


def chosen(config: dict) -> dict:
    model, train = config["model"], config["train"]
    return {
        "d_model": model["d_model"], "layers": model["num_encoder_layers"], "dropout": model["dropout"],
        "vocabulary_size": config["data"]["vocabulary_size"], "tokens_per_batch": train["tokens_per_batch"],
        "learning_rate": train["learning_rate"], "warmup_steps": train["warmup_steps"], "task": config["data"]["task"],
    }  # fmt: skip


def evaluate(run: str, task: str, data: Path, device: str, cores: tuple[int, ...]) -> dict:
    columns = ["--device", device, "--beam", "1", "--json"]
    done = call([sys.executable, "-m", "transduce", "evaluate", run, *files(task, "valid", data), *columns], cores)
    if done.returncode:
        return {"error": done.stderr[-300:]}
    return {name: round(score["value"], 2) for name, score in json.loads(done.stdout)["scores"].items()}


def call(command: list[str], cores: tuple[int, ...]) -> subprocess.CompletedProcess[str]:
    """A command on cores of its own, if any are named."""
    pinned = (lambda: os.sched_setaffinity(0, cores)) if cores else None
    return subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=pinned)


# --- settings by hand ------------------------------------------------------------------------------------------


def parse(text: str) -> dict:
    values = {name: float(value) for name, value in (part.split("=") for part in text.split())}
    return {
        "d_model": int(values["d"]), "layers": int(values["n"]), "dropout": 0.1, "vocabulary_size": int(values["v"]),
        "tokens_per_batch": int(values["b"]), "learning_rate": values["r"],
    }  # fmt: skip


def fitted_settings(task: str, minutes: float, data: Path, cores: tuple[int, ...]) -> dict:
    """What would be trained: the run is ended as soon as it has written its settings."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run", "config.toml")
        command = train_command(task, str(path.parent), data, "--minutes", str(minutes), "--set", "train.device=cpu")
        pinned = (lambda: os.sched_setaffinity(0, cores)) if cores else None
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=pinned) as job:
            while not path.exists() and job.poll() is None:
                time.sleep(0.2)
            time.sleep(0.5)
            job.kill()
        return chosen(tomllib.loads(path.read_text()))


def speed_of(settings: dict, task: str, cores: tuple[int, ...]) -> float:
    """Target tokens a second on two cores, measured now."""
    vocabulary = settings["vocabulary_size"] if task in ("tatoeba", "multi30k") else 100
    length = {"multi30k": 18, "german": 14, "finnish": 16}.get(task, 11)
    program = (
        "from transduce.config import TransformerConfig, TrainConfig; from transduce.device import choose_device;"
        "from transduce.training.speed import Sentences, tokens_per_second;"
        f"m = TransformerConfig(d_model={settings['d_model']}, d_ff={4 * settings['d_model']}, num_heads=4,"
        f" num_encoder_layers={settings['layers']}, num_decoder_layers={settings['layers']}, norm='pre');"
        f"print(tokens_per_second(m, TrainConfig(clip_norm=1.0), Sentences({vocabulary}, {vocabulary}, {length}, {length}),"
        "choose_device('cpu'), 2.0))"
    )
    return float(call([sys.executable, "-c", program], cores).stdout)


def by_steps(task: str, name: str, settings: dict, speed: float, minutes: float, data: Path, device: str) -> dict:
    steps = max(1, round(TRAINING_SHARE * 60 * minutes * speed / settings["tokens_per_batch"]))
    d_model, layers = settings["d_model"], settings["layers"]
    assignments = [
        f"model.d_model={d_model}", f"model.d_ff={4 * d_model}", "model.num_heads=4", f"model.num_encoder_layers={layers}",
        f"model.num_decoder_layers={layers}", f"model.dropout={settings['dropout']}", "train.average=0", f"train.device={device}",
        f"data.vocabulary_size={settings['vocabulary_size']}", f"train.tokens_per_batch={settings['tokens_per_batch']}",
        f"train.learning_rate={settings['learning_rate']}", f"train.warmup_steps={max(1, steps // 20)}",
        f"train.validate_every={steps + 1}", f"train.checkpoint_every={steps + 1}",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        done = call(train_command(task, f"{folder}/run", data, "--steps", str(steps), "--set", *assignments), ())
        scores = (
            evaluate(f"{folder}/run", task, data, device, ()) if not done.returncode else {"error": done.stderr[-300:]}
        )
    return {"task": task, "name": name, "steps": steps, "tokens_per_second": round(speed), "settings": settings, "scores": scores}  # fmt: skip


# --- the three tables ------------------------------------------------------------------------------------------


def clock(options: argparse.Namespace) -> list[dict]:
    return [show(timed(options.task, minutes, options.data, options.device)) for minutes in options.minutes]


def fit(options: argparse.Namespace) -> list[dict]:
    free: queue.Queue[tuple[int, ...]] = queue.Queue()
    for slot in range(options.slots):
        free.put((2 * slot, 2 * slot + 1) if options.slots > 1 else ())

    def one(job: tuple[float, str]) -> dict:
        cores = free.get()
        try:
            return show(timed(job[1], job[0], options.data, "cpu", cores))
        finally:
            free.put(cores)

    jobs = [(minutes, task) for minutes in options.minutes for task in options.tasks]
    with ThreadPoolExecutor(options.slots) as pool:
        return list(pool.map(one, jobs))


def by_hand(options: argparse.Namespace) -> list[dict]:
    """Speeds are measured, or read if they were, and then every setting is trained for the steps they allow."""
    minutes = options.minutes[0]
    if not Path(options.speeds).exists():
        with ThreadPoolExecutor(options.slots) as pool:
            cores = [(2 * n, 2 * n + 1) if options.slots > 1 else () for n in range(len(options.tasks))]
            found = pool.map(lambda job: measure(*job, minutes, options.data), zip(options.tasks, cores, strict=True))
            Path(options.speeds).write_text(json.dumps([one for several in found for one in several]))
    if options.measure_only:
        return []
    jobs = json.loads(Path(options.speeds).read_text())
    with ThreadPoolExecutor(options.slots) as pool:
        done = [pool.submit(by_steps, *job, minutes, options.data, options.device) for job in jobs]
        return [show(job.result()) for job in done]


def measure(task: str, cores: tuple[int, ...], minutes: float, data: Path) -> list[tuple]:
    """What is fitted, what is chosen by hand, and how fast each is on these cores."""
    fitted = fitted_settings(task, minutes, data, cores)
    settings = {"fitted": fitted} | {name: parse(text) for name, text in BY_HAND[fitted["task"]].items()}
    speeds: dict[tuple, float] = {}  # a shape is measured once: two measurements of the same one differ by up to 30 %
    for one in settings.values():
        if shape(one) not in speeds:
            speeds[shape(one)] = speed_of(one, task, cores)
    return [(task, name, one, speeds[shape(one)]) for name, one in settings.items()]


def shape(settings: dict) -> tuple:
    """What the speed on a CPU depends on."""
    return settings["d_model"], settings["layers"], settings["vocabulary_size"]


def show(row: dict) -> dict:
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["clock", "fit", "by-hand"])
    parser.add_argument("--minutes", type=float, nargs="+", required=True)
    parser.add_argument("--task", default="tatoeba", choices=[*TASKS, "europarl"])
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--slots", type=int, default=1, help="runs at once")
    parser.add_argument("--speeds", default="speeds.json", help="by-hand: where measured speeds are kept")
    parser.add_argument("--measure-only", action="store_true", help="by-hand: measure speeds and train nothing")
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--beside", default="nothing", help="what else the machine did, for the record")
    parser.add_argument("--name", default="", help="write benchmarks/results/NAME.json")
    options = parser.parse_args()
    rows = {"clock": clock, "fit": fit, "by-hand": by_hand}[options.what](options)
    if options.name:
        arguments = [word for word in sys.argv[1:] if word not in ("--data", str(options.data))]
        command = f"python benchmarks/budgets.py {' '.join(arguments)}"
        write_result(options.name, command, ["torch", "sacrebleu"], beside=options.beside, rows=rows)


if __name__ == "__main__":
    main()
