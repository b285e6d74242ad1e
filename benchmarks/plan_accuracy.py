"""`transduce plan` against what then happened: time, memory, disk, steps of an epoch.

    python benchmarks/plan_accuracy.py --cases tatoeba cmudict german minutes base --name plan-accuracy-cpu
    python benchmarks/plan_accuracy.py --device cuda --cases gpu-base gpu-big --caps 24 40 80 --name plan-accuracy-gpu

Each case is planned and then trained with the same arguments, in processes of their own, after the cache was filled once. Time
is that of the whole command, and memory the peak of the process, or of the GPU with `--device cuda`. `--caps` imitates smaller
GPUs by limiting PyTorch's allocator: with the planned settings, and with those that the plan suggests for that size.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from facts import default_data, write_result

SHORT = ["--preset", "tiny", "--set", "train.tokens_per_batch=1024", "train.validate_lines=100"]
CASES = {
    "tatoeba": ("tatoeba-de-en/{}.de tatoeba-de-en/{}.en", [*SHORT, "--steps", "150"]),
    "cmudict": ("cmudict/{}.tsv", [*SHORT, "--steps", "150"]),
    "german": ("conll2017-inflection/german/{}.tsv", [*SHORT, "--epochs", "1"]),
    "minutes": ("multi30k/{}.en multi30k/{}.de", ["--minutes", "2"]),
    "base": (
        "multi30k/{}.en multi30k/{}.de",
        ["--preset", "base", "--steps", "4", "--set", "train.tokens_per_batch=4096", "train.validate_lines=10"],
    ),
    "gpu-base": ("europarl-de-en/{}.de.xz europarl-de-en/{}.en.xz", ["--preset", "base", "--steps", "1500"]),
    "gpu-big": ("europarl-de-en/{}.de.xz europarl-de-en/{}.en.xz", ["--preset", "big", "--steps", "600"]),
}
STEMS = {"german": ("train-high", "valid"), "gpu-base": ("train-0", "valid"), "gpu-big": ("train-0", "valid")}
COLUMNS = {"german": ["--columns", "source=1,features=3,target=2"]}
# Runs a command of the command line, with PyTorch's allocator limited to so many GiB, and prints the peak of the GPU.
PROGRAM = """
import json, sys
import torch
from transduce.cli.main import main
limit = float(sys.argv[1])
if limit:
    capacity, asked = int(limit * 2**30), torch.cuda.mem_get_info
    torch.cuda.set_per_process_memory_fraction(capacity / torch.cuda.get_device_properties(0).total_memory)
    torch.cuda.mem_get_info = lambda *_: (max(0, capacity - torch.cuda.memory_reserved()), capacity)
code = main(sys.argv[2:])
if limit:
    torch.cuda.mem_get_info = asked
free, total = torch.cuda.mem_get_info() if torch.cuda.is_available() else (0, 0)
if total:
    used = {"reserved": torch.cuda.max_memory_reserved(), "allocated": torch.cuda.max_memory_allocated()}
    print("gpu", json.dumps(used | {"context": total - free - torch.cuda.memory_reserved()}), file=sys.stderr)
sys.exit(code)
"""


def arguments(case: str, data: Path, device: str, steps: int = 0) -> list[str]:
    files, options = CASES[case]
    options = [*options, "--steps", str(steps)] if steps else options
    train, valid = STEMS.get(case, ("train", "valid"))
    valid_files = files.removesuffix(".xz").replace(".xz ", " ")  # validation data is not compressed
    return [
        "--train", *(str(data / name) for name in files.format(*2 * [train]).split()),
        "--valid", *(str(data / name) for name in valid_files.format(*2 * [valid]).split()),
        *COLUMNS.get(case, []), *options, "--device", device, "--json",
    ]  # fmt: skip


def measured(command: list[str], folder: Path, limit: float = 0.0) -> dict:
    """Run a command: its JSON, its seconds, its peak memory, and the most that its folder took on disk."""
    whole = [sys.executable, "-c", PROGRAM, str(limit), *command]
    begun, load, most = time.perf_counter(), os.getloadavg()[0], 0
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(whole, stdout=out, stderr=err)
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            most = max(most, size_of(folder))
            if pid:
                break
            time.sleep(0.05)
        seconds = time.perf_counter() - begun
        out.seek(0), err.seek(0)
        result, said = out.read(), err.read()
    child.returncode = os.waitstatus_to_exitcode(status)
    gpu = [json.loads(line[4:]) for line in said.splitlines() if line.startswith("gpu {")]
    return {
        "code": child.returncode, "said": said, "result": json.loads(result) if result.strip() else None, "seconds": seconds,
        "peak": gpu[0] if gpu else usage.ru_maxrss * 1024, "disk": most, "load": [round(load, 1), round(os.getloadavg()[0], 1)],
    }  # fmt: skip


def size_of(folder: Path) -> int:
    """Bytes of a folder that is being written to; files with several names count once."""
    files: dict[int, int] = {}
    for parent, _, names in os.walk(folder):  # skips folders that were removed meanwhile
        for name in names:
            with suppress(FileNotFoundError):
                found = os.stat(os.path.join(parent, name))
                files[found.st_ino] = found.st_size
    return sum(files.values())


def one(case: str, options: argparse.Namespace) -> dict:
    """A case planned, trained and compared."""
    given = arguments(case, options.data, options.device, options.steps)
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch, "run")
        planned = measured(["plan", str(run), *given, "--quiet"], run)
        assert planned["result"], planned["said"]
        left = sorted(path.name for path in Path(scratch).iterdir())
        trained = measured(["train", str(run), *given], run)
        row = compared(case, planned, trained, size_of(run)) | {"left_by_plan": left}
        print(json.dumps(row), flush=True)
        return row


def compared(case: str, planned: dict, trained: dict, finished: int) -> dict:
    plan, result = planned["result"], trained["result"]
    assert result, trained["said"]
    peak = trained["peak"]
    happened = peak["reserved"] + peak["context"] if isinstance(peak, dict) else peak
    return {
        "case": case,
        "seconds": pair(plan["budget"]["seconds"], trained["seconds"]),
        "steps": pair(plan["budget"]["last_step"], result["steps"]),
        "memory": pair(plan["memory"]["here"]["total"], happened),
        "disk_running": pair(plan["disk"]["running"], trained["disk"]),
        "disk_finished": pair(plan["disk"]["finished"], finished),
        "steps_per_epoch": pair(plan["epoch"]["steps"], steps_per_epoch(trained["said"])),
        "parameters": plan["model"]["parameters"],
        "planning_seconds": round(planned["seconds"], 1),
        "load": {"planning": planned["load"], "training": trained["load"]},
        "budget": plan["budget"],
        "plan_of_train": [line for line in trained["said"].splitlines() if line.startswith("plan: ")],
        "gpus": plan["memory"]["gpus"],
    }


def steps_per_epoch(said: str) -> int:
    line = next(line for line in said.splitlines() if "steps per epoch" in line)
    return int(line.partition("; ")[2].split()[0].replace(",", ""))


def pair(planned: float, happened: float) -> dict:
    return {
        "planned": round(planned, 1),
        "happened": round(happened, 1),
        "off_percent": round(100 * (planned / happened - 1), 1),
    }


# --- smaller GPUs ----------------------------------------------------------------------------------------------


def capped(case: str, row: dict, gigabytes: int, options: argparse.Namespace) -> dict:
    """Train a few steps with the memory of a smaller GPU: as planned, and as the plan suggests for that size."""
    gpu = next(one for one in row["gpus"] if one["gigabytes"] == gigabytes)
    settings = {"as planned": []}
    if not gpu["fits"] and gpu["positions_per_microbatch"]:
        settings["as suggested"] = ["--set", f"train.positions_per_microbatch={gpu['positions_per_microbatch']}"]
    found = {"case": case, "gigabytes": gigabytes, "needed": gpu["needed"], "fits": gpu["fits"]}
    for name, more in settings.items():
        with tempfile.TemporaryDirectory() as scratch:
            run, given = Path(scratch, "run"), arguments(case, options.data, options.device)
            done = measured(["train", str(run), *given, *more, "--steps", "30"], run, 0.98 * gigabytes)
        ended = (
            "trained"
            if done["code"] == 0
            else "out of memory"
            if "out of memory" in done["said"]
            else done["said"][-300:]
        )
        found[name] = {"settings": more, "ended": ended, "peak": done["peak"]}
    print(json.dumps(found), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cases", nargs="+", choices=CASES, default=["tatoeba", "cmudict", "german", "minutes", "base"]
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--steps", type=int, default=0, help="train for so many steps instead of those of the case")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--caps", nargs="+", type=int, default=[], help="GB of smaller GPUs to imitate")
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--beside", default="nothing", help="what else the machine did, for the record")
    parser.add_argument("--name", default="", help="write benchmarks/results/NAME.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRANSDUCE_CACHE"] = cache
        rows = [one(case, options) for _ in range(options.repeat) for case in options.cases]
        caps = [capped(row["case"], row, size, options) for row in rows[: len(options.cases)] for size in options.caps]
    if options.name:
        arguments = [word for word in sys.argv[1:] if word not in ("--data", str(options.data))]
        command = f"python benchmarks/plan_accuracy.py {' '.join(arguments)}"
        write_result(options.name, command, ["torch", "numpy"], beside=options.beside, rows=rows, caps=caps)


if __name__ == "__main__":
    main()
