"""Where computing happens: what `auto` means, and what is refused."""

import os
import subprocess

import pytest
import torch

from transduce.cores import REPEATABLE, thread_refusal
from transduce.device import choose_device
from transduce.errors import SettingError
from transduce.translator import LoadOptions


def test_auto_is_float32_on_cpus() -> None:
    device = choose_device("cpu", "auto", threads=1)
    assert (device.kind, device.bf16) == ("cpu", False)
    assert device.name == "CPU, 1 thread"
    with device.mixed_precision():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_bf16_that_would_kill_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    died = subprocess.CompletedProcess([], returncode=-4)
    monkeypatch.setattr("transduce.device.subprocess.run", lambda *_, **__: died)
    with pytest.raises(SettingError, match="crashes on this CPU: use fp32"):
        choose_device("cpu", "bf16")


def test_bf16_that_works_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    lived = subprocess.CompletedProcess([], returncode=0)
    monkeypatch.setattr("transduce.device.subprocess.run", lambda *_, **__: lived)
    assert choose_device("cpu", "bf16").bf16


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(SettingError, match="PyTorch finds no GPU on this machine"):
        choose_device("cuda")


def test_cublas_has_a_fixed_workspace_whoever_chooses_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program such as benchmarks/records.py trains without `transduce.api`."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", lambda enabled: None)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", torch.backends.cudnn.deterministic)
    ((name, value),) = REPEATABLE.items()
    monkeypatch.setenv(name, "before")  # so that the variable is restored after this test
    monkeypatch.delenv(name)
    choose_device("cuda", "fp32", torch.get_num_threads())
    assert os.environ[name] == value
    monkeypatch.setenv(name, ":16:8")
    choose_device("cuda", "fp32", torch.get_num_threads())
    assert os.environ[name] == ":16:8"


@pytest.mark.parametrize(("cores", "most"), [(1, 64), (2, 64), (32, 128), (500, 1_024)])
def test_more_threads_than_make_sense_are_refused(cores: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.cores.available_cores", lambda: cores)
    assert thread_refusal(0) == thread_refusal(most) == ""
    assert (
        thread_refusal(most + 1) == f"threads = {most + 1}: must be at most {most} (this process can use {cores} cores)"
    )
    with pytest.raises(SettingError, match="must be at most"):
        LoadOptions(threads=most + 1)
    with pytest.raises(SettingError, match="must be at most"):
        choose_device("cpu", threads=most + 1)


def test_several_threads_are_plural(monkeypatch: pytest.MonkeyPatch) -> None:
    device = choose_device("cpu", threads=1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert device.name == "CPU, 2 threads"
