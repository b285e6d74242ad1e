"""Where computing happens: what `auto` means, and what is refused."""

import subprocess

import pytest
import torch

from transduce.device import choose_device
from transduce.errors import SettingError


def test_auto_is_float32_on_cpus() -> None:
    device = choose_device("cpu", "auto", threads=1)
    assert (device.kind, device.bf16) == ("cpu", False)
    assert device.name == "CPU, 1 threads"
    with device.mixed_precision():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_bf16_that_would_kill_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    died = subprocess.CompletedProcess([], returncode=-4)
    monkeypatch.setattr("transduce.device.subprocess.run", lambda *_, **__: died)
    with pytest.raises(SettingError, match="kills the process on this CPU: use fp32"):
        choose_device("cpu", "bf16")


def test_bf16_that_works_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    lived = subprocess.CompletedProcess([], returncode=0)
    monkeypatch.setattr("transduce.device.subprocess.run", lambda *_, **__: lived)
    assert choose_device("cpu", "bf16").bf16


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(SettingError, match="PyTorch sees no GPU here"):
        choose_device("cuda")
