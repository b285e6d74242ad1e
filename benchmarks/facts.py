"""What every result file says of itself: command, date, commit, versions, hardware."""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from transduce.cores import available_cores

HERE = Path(__file__).parent
RESULTS = HERE / "results"
CORES = available_cores()


def default_data() -> Path:
    """Where corpora lie unless `--data` says otherwise."""
    return Path(os.environ.get("TRANSDUCE_DATA", HERE.parent.parent / "shared" / "data"))


def write_result(name: str, command: str, packages: list[str], **content: Any) -> Path:
    """`results/NAME.json`, with the facts before the figures."""
    record = {
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
        "versions": {"python": platform.python_version()} | {p: importlib.metadata.version(p) for p in packages},
        "hardware": {"cpu": _cpu(), "cores": CORES} | _gpu(),
        **content,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def _commit() -> str:
    """With `-dirty` if there are other files than that, results aside; without a repository, what $TRANSDUCE_COMMIT says."""
    head = _git("rev-parse", "HEAD")
    if not head:
        return os.environ.get("TRANSDUCE_COMMIT", "")
    return head + ("-dirty" if _git("status", "--porcelain", "--", ":/", ":!results") else "")


def _git(*arguments: str) -> str:
    """What git prints; nothing outside of a repository, or if git is not installed."""
    if not shutil.which("git"):
        return ""
    done = subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().split("\n") if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor()


def _gpu() -> dict[str, str]:
    import torch

    return {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
