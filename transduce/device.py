"""The device that tensors are on, and the precision of its matrix products.

Knows nothing of models or data.
"""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from transduce.cores import available_cores, fix_workspace, thread_refusal
from transduce.errors import SettingError

T = TypeVar("T")

CAPTURING = threading.Lock()


@dataclass(frozen=True)
class Device:
    """A device, and whether its matrix products run in bfloat16."""

    kind: str  # "cpu" or "cuda"
    bf16: bool

    @property
    def torch(self) -> torch.device:
        return torch.device(self.kind)

    @property
    def name(self) -> str:
        """A readable name."""
        if self.kind == "cuda":
            return torch.cuda.get_device_name()
        threads = torch.get_num_threads()
        return f"CPU, {threads} thread{'s' * (threads > 1)}"

    def mixed_precision(self) -> contextlib.AbstractContextManager[object]:
        """Inside this context, matrix products run in bfloat16 if `bf16` is set; weights stay in float32."""
        return torch.autocast(self.kind, torch.bfloat16, enabled=self.bf16)


def _survives_bf16() -> bool:
    """Try bfloat16 in another process: a virtual machine may advertise instructions that it does not have."""
    product = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(a, a)"
    return subprocess.run([sys.executable, "-P", "-c", product], capture_output=True, check=False).returncode == 0


def choose_device(kind: str = "auto", precision: str = "auto", threads: int = 0) -> Device:
    """The device for these settings; `auto` chooses the GPU if there is one, and bf16 if the GPU supports it.

    On CPUs, `auto` is float32: on the CPUs we measured, bf16 was slower or an illegal instruction (docs/log.md).
    """
    if refused := thread_refusal(threads):
        raise SettingError(refused)
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda" and not torch.cuda.is_available():
        raise SettingError("device = cuda: PyTorch finds no GPU on this machine: use cpu or auto")
    if kind == "cpu" and precision == "bf16" and not _survives_bf16():
        raise SettingError("train.precision = bf16: PyTorch's bfloat16 crashes on this CPU: use fp32")
    torch.set_num_threads(threads or available_cores())
    if kind == "cuda":
        fix_workspace()  # here too, because not every program that trains comes through `transduce.api`
        torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN plans attention for each new shape, which takes 0.2 s
        torch.backends.cudnn.deterministic = True  # convolutions, so that a run repeats the same bits
    bf16 = precision == "bf16" or (precision == "auto" and kind == "cuda" and torch.cuda.is_bf16_supported())
    return Device(kind, bf16)


def captured(work: Callable[[], T], warm: bool = True, pool: Any = None) -> Callable[[], T]:
    """Capture `work` in a CUDA graph; calling the result replays it and returns the same tensors with new values.

    `warm` runs `work` once before the capture, so that its kernels are compiled and its libraries initialised. Graphs
    with the same `pool` share memory. A lock allows one capture at a time: PyTorch captures on a single stream, and a
    capture waits until the device is idle.
    """
    with CAPTURING:
        return _capture(work, warm, pool)


def _capture(work: Callable[[], T], warm: bool, pool: Any) -> Callable[[], T]:
    if warm:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work()
        torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(
        graph, pool=pool, capture_error_mode="thread_local"
    ):  # other threads may keep using the device
        result = work()

    def replay() -> T:
        graph.replay()
        return result

    return replay
