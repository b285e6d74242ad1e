"""Several processes under torchrun train one run: the same weights as one process, and all of them end together."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import transduce
from transduce.checkpoint import RunFolder, read_about, steps_saved
from transduce.config import build
from transduce.device import Device
from transduce.errors import SettingError
from transduce.training import TrainingRequest
from transduce.training.rendezvous import Launch
from transduce.training.report import StepReport, _line
from transduce.training.request import requested_settings
from transduce.training.stopping import StopSignals
from transduce.training.together import training_processes, usual_shards, with_shards

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="PyTorch was built without torch.distributed"
)

SMALL = """
model.d_model=32 model.d_ff=64 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1
model.dropout=0.1 train.tokens_per_batch=120 train.positions_per_microbatch=64 train.log_every=3 train.validate_every=4
train.checkpoint_every=3 train.average=2 train.learning_rate=3e-3 train.warmup_steps=5 train.shards=4 train.device=cpu
train.schedule=inverse_sqrt train.ema=0.8
""".split()
STEPS = 9


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Letters to be said backwards."""
    folder, draw, paths = tmp_path_factory.mktemp("reversal"), random.Random(0), {}
    for name, count in (("train", 400), ("valid", 30)):
        words = [[draw.choice("abcdef") for _ in range(draw.randint(2, 6))] for _ in range(count)]
        paths[name] = str(folder / f"{name}.tsv")
        Path(paths[name]).write_text("".join(f"{' '.join(w)}\t{' '.join(reversed(w))}\n" for w in words))
    os.environ["TRANSDUCE_CACHE"] = str(folder / "cache")
    return paths


def alone(run: Path, pairs: dict[str, str], steps: int = STEPS) -> dict[str, str]:
    data = {"train": [(pairs["train"],)], "valid": [(pairs["valid"],)]}
    transduce.train(run, **data, settings=[*SMALL, "train.threads=1"], steps=steps, quiet=True)  # type: ignore[arg-type]
    return hashes(run)


def hashes(run: Path) -> dict[str, str]:
    return {which: read_about(RunFolder(run).weights(which))["sha256"] for which in ("best", "last")}


def torchrun(run: Path, pairs: dict[str, str], processes: int, steps: int, *more: str) -> "subprocess.Popen[str]":
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    files = ["--train", pairs["train"], "--valid", pairs["valid"], "--steps", str(steps)]
    command = [*launcher, "-m", "transduce", "train", str(run), *files, "--set", *SMALL, *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finished(process: "subprocess.Popen[str]", timeout_s: float = 240) -> str:
    out, printed = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, printed
    assert out == ""
    return printed


@pytest.fixture(scope="module")
def straight(pairs: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The weights of a run that one process trained without interruption."""
    return alone(tmp_path_factory.mktemp("runs") / "straight", pairs)


def test_four_processes_go_on_where_one_was_to_the_same_weights(
    straight: dict[str, str], pairs: dict[str, str], tmp_path: Path
) -> None:
    alone(tmp_path / "run", pairs, 4)
    printed = finished(torchrun(tmp_path / "run", pairs, 4, STEPS))
    assert hashes(tmp_path / "run") == straight
    assert printed.count("resuming at step 4") == 1  # one log
    assert "4 processes share each step of 4 shards" in printed


@pytest.mark.slow
def test_the_number_of_processes_may_change_at_every_resume(
    straight: dict[str, str], pairs: dict[str, str], tmp_path: Path
) -> None:
    for processes, steps in ((2, 3), (4, 5), (3, 7), (1, STEPS)):
        printed = finished(torchrun(tmp_path / "run", pairs, processes, steps))
        assert ("2 of 3 processes train and 1 stand by" in printed) == (processes == 3)
    assert hashes(tmp_path / "run") == straight


def children(process: "subprocess.Popen[str]") -> list[int]:
    """The workers of torchrun, by the order of their numbers."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    found = [int(pid) for task in tasks for pid in task.read_text().split()]
    rank = {pid: _rank(pid) for pid in found}
    return sorted((pid for pid in found if rank[pid] is not None), key=lambda pid: rank[pid] or 0)


def _rank(pid: int) -> int | None:
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next((int(one[5:]) for one in variables if one.startswith(b"RANK=")), None)


def wait_for_step(run: Path, step: int, timeout_s: float = 120) -> None:
    until = time.monotonic() + timeout_s
    while not any(saved >= step for saved in steps_saved(RunFolder(run))):
        assert time.monotonic() < until
        time.sleep(0.05)


needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the system has no /proc")


@pytest.mark.slow
@needs_proc
def test_a_signal_to_one_process_stops_all_after_the_same_step(pairs: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = torchrun(run, pairs, 2, 100_000)
    wait_for_step(run, 3)
    os.kill(children(process)[1], signal.SIGTERM)
    _, printed = process.communicate(timeout=120)
    assert printed.count("and saved a checkpoint; rerun the same command to resume") == 1
    last = steps_saved(RunFolder(run))[-1]
    stopped = read_about(RunFolder(run).weights("last"))["sha256"]
    assert stopped == alone(tmp_path / "alone", pairs, last)["last"]


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_process_that_hangs_is_named_and_nothing_is_lost(
    straight: dict[str, str], pairs: dict[str, str], tmp_path: Path, stopped: int
) -> None:
    run = tmp_path / "run"
    process = torchrun(run, pairs, 2, 100_000, "train.process_timeout=3", "train.checkpoint_every=2")
    wait_for_step(run, 2)
    pid = children(process)[stopped]
    os.kill(pid, signal.SIGSTOP)
    _, printed = process.communicate(timeout=240)
    assert f"process {stopped} (host " in printed
    assert f"pid {pid}) did not answer within 3 seconds (train.process_timeout)" in printed
    assert alone(run, pairs, steps_saved(RunFolder(run))[-1] + 1)


# --- without processes -----------------------------------------------------------------------------------------------


def test_processes_that_do_not_divide_the_shards_stand_by() -> None:
    assert [training_processes(count, 8) for count in (1, 2, 3, 5, 7, 8, 9, 100)] == [1, 2, 2, 4, 4, 8, 8, 8]
    assert training_processes(4, 1) == 1


def test_a_new_run_has_as_many_shards_as_processes() -> None:
    cpu, gpu = Device("cpu", bf16=False), Device("cuda", bf16=True)
    assert [usual_shards(Launch(0, count), gpu) for count in (2, 3, 8)] == [2, 2, 8]
    assert [usual_shards(Launch(0, count), cpu) for count in (2, 8)] == [4, 8]
    given = requested_settings(TrainingRequest(settings=["train.shards=2", "train.device=cpu"]))
    assert with_shards(given, Launch(0, 8)) is given
    usual = requested_settings(TrainingRequest(settings=["train.device=cpu"]))
    assert build(*with_shards(usual, Launch(0, 2)).layers).train.shards == 4


def test_a_process_knows_itself_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert Launch.of_environment() == Launch()
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(
        SettingError, match="WORLD_SIZE is 4, but RANK is not set: start several processes with torchrun"
    ):
        Launch.of_environment()
    for name, value in {"RANK": "3", "MASTER_ADDR": "x", "MASTER_PORT": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert Launch.of_environment() == Launch(3, 4, 1, 1, "2-4")


def test_signals_that_a_launcher_repeats_do_not_end_the_saving() -> None:
    with StopSignals(once=False) as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == signal.SIGTERM


def test_the_speed_line_says_what_each_process_does() -> None:
    report = StepReport(5, 10, 0, 1.5, 8_000.0, "", processes=4, waiting=0.1)
    assert _line(report).endswith("8,000 tokens/s (4 processes, 2,000 each, 10% waiting)")
