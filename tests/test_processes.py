"""Several processes under torchrun train one run: the same weights as one process, and all of them end together."""

import json
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tones import write_corpus

import transduce
from transduce.checkpoint import RunFolder, read_about, steps_saved
from transduce.config import build
from transduce.device import Device
from transduce.errors import SettingError, TrainingError
from transduce.run_lock import alone_in
from transduce.training import Result, SilentReporter, TrainingRequest, layout, rendezvous, train
from transduce.training.joined import Joined
from transduce.training.prepare import Prepared, prepare
from transduce.training.processes import Alone
from transduce.training.rendezvous import Launch, Meeting, OwnError
from transduce.training.report import StepReport, _line
from transduce.training.request import requested_settings
from transduce.training.run import make_trainer
from transduce.training.stopping import StopSignals
from transduce.training.together import (
    _described,
    _received,
    _sharing_samples,
    for_processes,
    training_processes,
    usual_shards,
)
from transduce.training.waiting import DeviceClock, HostClock

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="PyTorch was built without torch.distributed"
)

SMALL = """
model.d_model=32 model.d_ff=64 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1
model.dropout=0.1 train.tokens_per_batch=120 train.positions_per_microbatch=64 train.log_every=3 train.validate_every=4
train.checkpoint_every=3 train.average=2 train.learning_rate=3e-3 train.warmup_steps=5 train.shards=4 train.device=cpu
train.schedule=inverse_sqrt train.ema=0.8
""".split()
SAMPLING = "data.subword_sampling=0.3 data.source_units=bpe data.target_units=bpe data.vocabulary_size=40".split()
SPEECH = """
model.family=speech model.d_model=16 model.d_ff=32 model.convolution=3 data.speeds=0.9,1 train.tokens_per_batch=64
train.positions_per_microbatch=0 train.validate_lines=4 train.threads=1
""".split()
TEXT = [*(one for one in SMALL if "encoder" not in one), "model.family=decoder", "model.context=16"]
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


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tones, each of which stands for a word."""
    folder = tmp_path_factory.mktemp("tones")
    paths = {name: str(write_corpus(folder, name, count, count)) for name, count in (("train", 24), ("valid", 4))}
    os.environ["TRANSDUCE_CACHE"] = str(folder / "cache")
    return paths


def alone(run: Path, pairs: dict[str, str], steps: int = STEPS, *more: str) -> dict[str, str]:
    settings = [*small(pairs), "train.threads=1", *more]
    transduce.train(run, **pairs, settings=settings, steps=steps, quiet=True)  # type: ignore[arg-type]
    return hashes(run)


def small(data: dict[str, str]) -> list[str]:
    return TEXT if "text" in data else SMALL


def hashes(run: Path) -> dict[str, str]:
    return {which: read_about(RunFolder(run).weights(which))["sha256"] for which in ("best", "last")}


def torchrun(
    run: Path,
    pairs: dict[str, str],
    processes: int,
    steps: int,
    *more: str,
    how: tuple[str, ...] = ("--standalone",),
) -> "subprocess.Popen[str]":
    launcher = [sys.executable, "-m", "torch.distributed.run", *how, "--nproc-per-node", str(processes)]
    files = [word for name, path in pairs.items() for word in (f"--{name}", path)]
    settings = ["--steps", str(steps), "--set", *small(pairs), *more]
    command = [*launcher, "-m", "transduce", "train", str(run), *files, *settings]
    STARTED.append(subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    return STARTED[-1]


STARTED: list["subprocess.Popen[str]"] = []


@pytest.fixture(autouse=True)
def _nothing_goes_on() -> Iterator[None]:
    """End what a failed test has left running."""
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=60)


def finished(process: "subprocess.Popen[str]", timeout_s: float = 240) -> str:
    out, printed = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, printed
    assert out == ""
    return printed


@pytest.fixture(scope="module")
def straight(pairs: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The weights of a run that one process trained without interruption."""
    return alone(tmp_path_factory.mktemp("runs") / "straight", pairs)


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_go_on_where_one_was_to_the_same_weights(
    straight: dict[str, str], pairs: dict[str, str], tmp_path: Path, processes: int
) -> None:
    alone(tmp_path / "run", pairs, 4)
    printed = finished(torchrun(tmp_path / "run", pairs, processes, STEPS))
    assert hashes(tmp_path / "run") == straight
    assert printed.count("resuming at step 4") == 1  # one log
    assert f"{processes} processes share each step of 4 shards" in printed


@pytest.mark.slow
def test_the_number_of_processes_may_change_at_every_resume(
    straight: dict[str, str], pairs: dict[str, str], tmp_path: Path
) -> None:
    for processes, steps in ((2, 3), (4, 5), (3, 7), (1, STEPS)):
        printed = finished(torchrun(tmp_path / "run", pairs, processes, steps))
        assert ("2 of 3 processes train and 1 stand by" in printed) == (processes == 3)
    assert hashes(tmp_path / "run") == straight


@pytest.mark.slow
def test_muon_and_sampled_segmentations_have_the_same_weights_on_any_number_of_processes(
    pairs: dict[str, str], tmp_path: Path
) -> None:
    more = ("train.optimizer=muon", *SAMPLING)
    straight = alone(tmp_path / "straight", pairs, 9, *more)
    for processes, steps in ((4, 3), (2, 6), (4, 9)):
        finished(torchrun(tmp_path / "run", pairs, processes, steps, *more))
    # `best` may differ: a shorter budget validates at its end, and what is sampled is new in every run of this test.
    assert hashes(tmp_path / "run")["last"] == straight["last"]


TIMES = {"tokens_per_second", "waiting", "seconds"}


def figures(run: Path) -> list[dict[str, Any]]:
    """What a run has logged of its steps and validations, without times."""
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in line.keys() - TIMES} for line in logged if "loss" in line]


def test_several_processes_go_on_with_recordings_to_the_same_weights(
    recordings: dict[str, str], tmp_path: Path
) -> None:
    """Each epoch plays them at other speeds and behind other masks, which all processes draw alike."""
    straight = alone(tmp_path / "straight", recordings, STEPS, *SPEECH)
    alone(tmp_path / "run", recordings, 4, *SPEECH)
    printed = finished(torchrun(tmp_path / "run", recordings, 2, STEPS, *SPEECH))
    assert "2 processes share each step of 4 shards" in printed
    assert hashes(tmp_path / "run") == straight
    assert figures(tmp_path / "run") == figures(tmp_path / "straight")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["speech", "text"])
def test_other_kinds_of_models_have_the_same_weights_on_any_number_of_processes(
    pairs: dict[str, str], recordings: dict[str, str], tmp_path: Path, kind: str
) -> None:
    data, more = (recordings, SPEECH) if kind == "speech" else ({"text": pairs["train"]}, ["train.threads=1"])
    straight = alone(tmp_path / "straight", data, STEPS, *more)
    for processes, steps in ((4, 3), (2, 7), (1, STEPS)):
        finished(torchrun(tmp_path / "run", data, processes, steps, *more))
    assert hashes(tmp_path / "run")["last"] == straight["last"]


@pytest.mark.slow
def test_two_machines_of_two_processes_add_in_two_levels_to_the_same_weights(
    straight: dict[str, str], pairs: dict[str, str], tmp_path: Path
) -> None:
    how = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", free_address())
    machines = [torchrun(tmp_path / "run", pairs, 2, STEPS, how=how) for _ in range(2)]
    printed = "".join(finished(machine) for machine in machines)
    assert printed.count("4 processes on 2 machines share each step of 4 shards") == 1
    assert hashes(tmp_path / "run") == straight


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return f"localhost:{probe.getsockname()[1]}"


def children(process: "subprocess.Popen[str]") -> list[int]:
    """The workers of torchrun, by the order of their numbers."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    found = [int(pid) for task in tasks for pid in _content(task).split()]
    rank = {pid: _rank(pid) for pid in found}
    return sorted((pid for pid in found if rank[pid] is not None), key=lambda pid: rank[pid] or 0)


def _rank(pid: int) -> int | None:
    variables = _content(Path(f"/proc/{pid}/environ")).split(b"\0")
    return next((int(one[5:]) for one in variables if one.startswith(b"RANK=")), None)


def _content(path: Path) -> bytes:
    """What a file of /proc says; nothing if its process has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def wait_until(is_so: Callable[[], bool], timeout_s: float = 60) -> None:
    until = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


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
def test_a_machine_may_join_and_leave_a_run(
    pairs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that joins is told of no earlier restart, and the others do not count this one."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")  # otherwise torchrun itself does not let it join
    run = tmp_path / "run"
    conf = "last_call_timeout=1,keep_alive_interval=2,keep_alive_max_attempt=5"
    how = ("--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", free_address(), "--rdzv-conf", conf)
    how = (*how, "--max-restarts", "3")
    first = torchrun(run, pairs, 2, 100_000, "train.checkpoint_every=50", how=how)
    wait_for_step(run, 50)
    before = children(first)
    second = torchrun(run, pairs, 2, 100_000, "train.checkpoint_every=50", how=how)
    wait_until(lambda: len(children(second)) == 2 and goes_on(run), 180)
    assert not set(children(first)) & set(before)
    for pid in [second.pid, *children(second)]:
        os.kill(pid, signal.SIGKILL)
    shared = children(first)
    wait_until(lambda: bool(children(first)) and not set(children(first)) & set(shared) and goes_on(run), 180)
    first.send_signal(signal.SIGTERM)
    _, printed = first.communicate(timeout=120)
    assert "4 processes on 2 machines share each step of 4 shards" in printed + second.communicate()[1]
    last = steps_saved(RunFolder(run))[-1]
    assert read_about(RunFolder(run).weights("last"))["sha256"] == alone(tmp_path / "alone", pairs, last)["last"]


def goes_on(run: Path) -> bool:
    """Whether the run has logged steps within the last second."""
    return time.time() - (run / "metrics.jsonl").stat().st_mtime < 1


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_process_that_hangs_is_named_and_nothing_is_lost(
    straight: dict[str, str], pairs: dict[str, str], tmp_path: Path, stopped: int
) -> None:
    run = tmp_path / "run"
    process = torchrun(run, pairs, 2, 100_000, "train.process_timeout=10", "train.checkpoint_every=2")
    wait_for_step(run, 2)
    pid = children(process)[stopped]
    os.kill(pid, signal.SIGSTOP)
    _, printed = process.communicate(timeout=240)
    assert f"process {stopped} (host " in printed
    assert f"pid {pid}) did not answer within 10 seconds (train.process_timeout)" in printed
    assert alone(run, pairs, steps_saved(RunFolder(run))[-1] + 1)


@pytest.mark.slow
def test_a_mistake_is_one_line_of_one_process(pairs: dict[str, str], tmp_path: Path) -> None:
    process = torchrun(tmp_path / "run", {**pairs, "train": "nowhere.tsv"}, 2, 3)
    _, printed = process.communicate(timeout=120)
    assert printed.count("transduce: nowhere.tsv: ") == 1
    assert "Traceback" not in printed.split("torch/distributed", maxsplit=1)[0]


# --- without processes -----------------------------------------------------------------------------------------------


def test_processes_that_do_not_divide_the_shards_stand_by() -> None:
    assert [training_processes(count, 8) for count in (1, 2, 3, 5, 7, 8, 9, 100)] == [1, 2, 2, 4, 4, 8, 8, 8]
    assert training_processes(4, 1) == 1


def test_a_new_run_has_as_many_shards_as_processes() -> None:
    cpu, gpu = Device("cpu", bf16=False), Device("cuda", bf16=True)
    assert [usual_shards(count, gpu) for count in (2, 3, 8)] == [2, 2, 8]
    assert [usual_shards(count, cpu) for count in (2, 8)] == [4, 8]
    given = requested_settings(TrainingRequest(settings=["train.shards=2", "train.device=cpu"]))
    assert for_processes(given, 8) == given
    assert for_processes(given, 12, on_gpus=True).gpus == 8
    usual = requested_settings(TrainingRequest(settings=["train.device=cpu"]))
    assert build(*for_processes(usual, 2).layers).train.shards == 4


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
    assert Launch.of_environment() == Launch(3, 4, 1, 1)


def test_a_machine_without_the_run_folder_has_the_result_too(
    pairs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    result = Result("run", 9, 1.0, "best", "BLEU", 30.0, "", 30)
    monkeypatch.setattr("transduce.training.together.train_together", lambda *_: result)
    request = TrainingRequest(train=pairs["train"], valid=pairs["valid"], settings=SMALL)
    assert train(tmp_path / "elsewhere", request) == result


# --- how processes meet ----------------------------------------------------------------------------------------------


def meet(store: Any, launch: Launch, said: list[str]) -> Meeting:
    return Meeting(launch, said.append, store)


def all_meet(store: Any, count: int, said: list[str]) -> list[Meeting]:
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(lambda number: meet(store, Launch(number, count), said), range(count)))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "SAY_AFTER_S", 0.02)
    monkeypatch.setattr(rendezvous, "POLL_S", 0.01)


@pytest.mark.usefixtures("impatient")
def test_every_start_has_a_name_of_its_own_in_the_store_that_torchrun_keeps() -> None:
    """Also if machines come and go, which changes no count of restarts."""
    store = torch.distributed.HashStore()
    for count in (2, 4, 2):
        meetings = all_meet(store, count, [])
        assert not meetings[0].store.check(["prepared"])  # nothing of an earlier start
        meetings[0].tell("prepared", {"by": 0})
        assert all(meeting.hear("prepared", "") == {"by": 0} for meeting in meetings)


@pytest.mark.usefixtures("impatient")
def test_a_process_that_waits_says_once_what_it_waits_for() -> None:
    host, store, said = socket.gethostname(), torch.distributed.HashStore(), list[str]()
    awaited = [
        f"process 1 on {host} waits for process 0 to start",
        f"process 1 on {host} waits for process 0 to prepare the data",
        f"process 0 on {host} waits for process 1 to open the data",
    ]
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(meet, store, Launch(1, 2, 1, 2), said)
        wait_until(lambda: awaited[0] in said)
        first = meet(store, Launch(0, 2, 0, 2), said)
        second = late.result()
        heard = threads.submit(second.hear, "prepared", "process 0 to prepare the data")
        wait_until(lambda: awaited[1] in said)
        time.sleep(0.1)
        first.tell("prepared", 7)
        assert heard.result() == 7
        ready = threads.submit(first.wait_for_all, 2)
        wait_until(lambda: awaited[2] in said)
        second.wait_for_all(2)
        ready.result()
    busy = f"process 0 on {host} waits for process 1 to start"  # where the other thread gets no core for a moment
    assert [line for line in said if line != busy] == awaited
    assert said.count(busy) <= 1


def test_one_process_of_each_machine_says_what_it_waits_for() -> None:
    machines = [Launch(number, 8, number % 4, 4) for number in range(8)]
    assert [launch.number for launch in machines if launch.speaks] == [0, 1, 4]


@pytest.mark.usefixtures("impatient")
def test_processes_that_never_start_are_not_waited_for_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "STORE_TIMEOUT", timedelta(seconds=0.1))
    with pytest.raises(TrainingError, match="waited 0 seconds for process 1 to start; start all processes again"):
        meet(torch.distributed.HashStore(), Launch(0, 2), [])


def test_process_0_waits_for_the_lock_of_an_earlier_start(tmp_path: Path) -> None:
    folder, said = RunFolder(tmp_path / "run"), list[str]()

    def held() -> None:
        with alone_in(folder, 30.0, said.append):
            said.append("held")

    with ThreadPoolExecutor(1) as threads:
        with alone_in(folder):
            second = threads.submit(held)
            wait_until(lambda: len(said) == 1)
        second.result()
    assert said == [f"waiting up to 30 seconds for another process to stop training {folder.path}", "held"]


def test_a_group_of_one_exchanges_with_itself() -> None:
    joined = Joined(torch.distributed.HashStore(), Launch(), 1, "gloo", 30.0)
    try:
        vector, out = torch.arange(128.0), torch.zeros(128)
        joined.add_slices(vector.clone(), out)
        assert torch.equal(out, vector)
        joined.add_slices(vector.bfloat16(), out)
        assert torch.equal(out, vector)
        joined.gather_slices(out)
        assert torch.equal(joined.whole(out), vector)
        rows = torch.rand(4, 3, dtype=torch.float64)
        assert torch.equal(joined.all_rows(rows), rows)
        tensors = {"a": torch.rand(2, 3), "b": torch.tensor(7)}
        assert all(torch.equal(tensors[name], one) for name, one in joined.spread(tensors).items())
        assert joined.share_out(4, lambda block: {"line": f"\u00e9{block}"}) == [
            {"line": f"\u00e9{n}"} for n in range(4)
        ]
        assert joined.first(lambda: [1, None, math.inf]) == [1, None, math.inf]
        with pytest.raises(ZeroDivisionError):
            joined.first(lambda: 1 // 0)
        assert joined.agreed_signal(None, "") is None
        assert joined.agreed_signal(15, "") == 15
        with pytest.raises(TrainingError, match=r"process 0 \(host .*\) failed: out of memory"):
            joined.agreed_signal(None, "out of memory")
        assert joined.waited > 0
    finally:
        joined.close()


def test_signals_that_a_launcher_repeats_do_not_end_the_saving() -> None:
    with StopSignals(once=False) as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == signal.SIGTERM


def test_the_speed_line_says_what_each_process_does() -> None:
    report = StepReport(5, 10, 0, 1.5, 8_000.0, "", processes=4, waiting=0.1)
    assert _line(report).endswith("8,000 tokens/s (4 processes, 2,000 each, 10% waiting)")
    some = replace(report, processes=2, standing_by=1)
    assert _line(some).endswith("8,000 tokens/s (2 processes and 1 standing by, 4,000 each, 10% waiting)")
    assert _line(replace(report, processes=1)).endswith("8,000 tokens/s")


def test_waiting_is_measured_by_the_clock_of_the_host_if_it_takes_part() -> None:
    clock = HostClock()
    for vectors in (True, False):
        with clock.measured(vectors):
            time.sleep(0.01)
    assert clock.seconds >= 0.02


class FakeEvent:
    """A mark that the device passes when the test says so, 5 ms after the one before."""

    passed, made = False, 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        FakeEvent.made += 1
        self.number, self.recorded = FakeEvent.made, False

    def record(self) -> None:
        self.recorded = True

    def query(self) -> bool:
        return self.recorded and FakeEvent.passed

    def elapsed_time(self, end: "FakeEvent") -> float:
        return 5.0 * (end.number - self.number)


def test_waiting_of_a_gpu_is_read_when_it_has_passed_both_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    clock = DeviceClock()
    for vectors in (True, True, False):  # decisions are made while the GPU computes
        with clock.measured(vectors):
            pass
    assert clock.seconds == 0.0
    monkeypatch.setattr(FakeEvent, "passed", True)
    assert clock.seconds == pytest.approx(0.01)
    assert not clock.marks


@pytest.mark.gpu
def test_waiting_of_a_gpu_is_measured_without_waiting_for_it() -> None:
    clock, begun = DeviceClock(), time.perf_counter()
    with clock.measured(vectors=True):
        torch.cuda._sleep(2_000_000_000)  # about a second
    assert clock.seconds == 0.0
    assert time.perf_counter() - begun < 0.5
    torch.cuda.synchronize()
    assert clock.seconds == pytest.approx(time.perf_counter() - begun, rel=0.3)


class Told:
    """A meeting of one process with itself."""

    def __init__(self, launch: Launch) -> None:
        self.launch, self.topics = launch, dict[str, Any]()

    def tell(self, topic: str, value: Any) -> None:
        self.topics[topic] = json.loads(json.dumps(value))

    def hear(self, topic: str, waiting_for: str) -> Any:
        return self.topics[topic]


@pytest.fixture
def prepared(pairs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "one"))
    request = TrainingRequest(train=[(pairs["train"],)], valid=[(pairs["valid"],)], settings=SMALL)
    return prepare(RunFolder(tmp_path / "run"), requested_settings(request), lambda text: None)


def test_another_process_of_the_machine_opens_the_same_data(prepared: Prepared) -> None:
    received = _received(Told(Launch(1, 2, 1, 2)), json.loads(json.dumps(_described(prepared))))  # type: ignore[arg-type]
    ours, theirs = prepared.training_data, received.training_data
    assert theirs.config == ours.config
    assert theirs.valid_texts == ours.valid_texts
    assert theirs.vocabularies.source.digest == ours.vocabularies.source.digest
    assert theirs.train.path == ours.train.path  # type: ignore[attr-defined]


def test_another_machine_prepares_the_same_data_or_refuses(
    prepared: Prepared, pairs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = json.loads(json.dumps(_described(prepared)))
    shutil.rmtree(tmp_path / "one")
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "two"))
    meeting: Any = Told(Launch(2, 4, 0, 2))
    train = _received(meeting, described).training_data.train
    assert train.path.parent == tmp_path / "two"  # type: ignore[attr-defined]
    assert len(train.source_lengths) == len(prepared.training_data.train.source_lengths)
    meeting.launch = Launch(3, 4, 1, 2)  # waits for the other one of its machine
    assert _received(meeting, described).training_data.train.path == train.path  # type: ignore[attr-defined]
    described["stores"] = [path + "0" for path in described["stores"]]
    meeting.launch = Launch(2, 4, 0, 2)
    with pytest.raises(OwnError, match="the training data on this machine differs from that of process 0"):
        _received(meeting, described)


def tones(data: dict[str, str], run: Path) -> Prepared:
    request = TrainingRequest(train=[(data["train"],)], valid=[(data["valid"],)], settings=[*SMALL, *SPEECH])
    return prepare(RunFolder(run), requested_settings(request), lambda text: None)


def test_recordings_are_the_same_on_every_machine_or_refused(
    recordings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of their store does not tell whether what they sound like is the same."""
    folder = Path(shutil.copytree(Path(recordings["train"]).parent, tmp_path / "tones"))
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "one"))
    prepared = tones({name: str(folder / f"{name}.tsv") for name in recordings}, tmp_path / "run")
    described, meeting = json.loads(json.dumps(_described(prepared))), Told(Launch(1, 4, 1, 2))
    ours, theirs = prepared.training_data, _received(meeting, described).training_data  # type: ignore[arg-type]
    assert theirs.valid_texts == ours.valid_texts
    for epoch in range(2):
        np.testing.assert_array_equal(theirs.pairs(epoch).source(3), ours.pairs(epoch).source(3))
    (tmp_path / "one").rename(tmp_path / "moved")
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "two"))
    meeting.launch = Launch(2, 4, 0, 2)
    elsewhere = _received(meeting, described).training_data.train  # type: ignore[arg-type]
    assert elsewhere.path.parent == tmp_path / "two"  # type: ignore[attr-defined]
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "three"))
    sound = (folder / "train3.wav").read_bytes()
    (folder / "train3.wav").write_bytes(sound[:1_000] + bytes(1_000) + sound[2_000:])
    with pytest.raises(OwnError, match=r"differs from what process 0 has prepared: .* or set data\.cache"):
        _received(meeting, described)  # type: ignore[arg-type]


def test_every_shard_has_recordings_of_every_batch(
    recordings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where a recording is as long as a batch of a run without shards."""
    monkeypatch.setitem(layout.POSITIONS, "cpu", 40)
    trainer = make_trainer(RunFolder(tmp_path / "run"), tones(recordings, tmp_path / "run"), SilentReporter())
    data, planner = trainer.training_data.first_epoch, trainer.layout.planner
    assert trainer.layout.positions("cpu") == 4 * data.source_lengths.max()
    batches = [batch for step in trainer.layout.windows.plan(planner, data, 0, 0) for batch in step]
    full = [batch for batch in batches if len(batch) >= 4]
    assert len(batches) - len(full) == 1  # what is left over in the end
    assert [len(shard) for shard in planner.shards(full, 4)] == [len(full)] * 4


def test_sampled_segmentations_are_those_of_process_0(
    pairs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    request = TrainingRequest(
        train=[(pairs["train"],)], valid=[(pairs["valid"],)], settings=[*SMALL, *SAMPLING, "data.concatenate=0"]
    )
    prepared = prepare(RunFolder(tmp_path / "run"), requested_settings(request), lambda text: None)
    meeting: Any = Told(Launch(0, 2))
    sampled = [_sharing_samples(meeting, prepared).training_data.pairs(epoch) for epoch in range(2)]
    meeting.launch = Launch(1, 2)
    others = _sharing_samples(meeting, prepared).training_data
    assert [others.pairs(epoch).path for epoch in range(2)] == [one.path for one in sampled]  # type: ignore[attr-defined]
    assert not np.array_equal(sampled[0].source_lengths, sampled[1].source_lengths)
    shutil.rmtree(sampled[1].path)  # type: ignore[attr-defined]
    with pytest.raises(
        OwnError, match=r"missing, or not what process 0 sampled \(data\.subword_sampling\): set data\.cache"
    ):
        others.pairs(1)


class OtherFails(Alone):
    """A process whose companion has failed."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def agreed_signal(self, received: int | None, failure: str) -> int | None:
        self.told.append(failure)
        raise TrainingError("process 1 (host b, pid 7) failed: out of memory")


def test_a_failure_is_told_to_the_others_and_raised_here(prepared: Prepared, tmp_path: Path) -> None:
    processes = OtherFails()
    trainer = make_trainer(RunFolder(tmp_path / "run"), prepared, SilentReporter(), None, processes)

    def fail() -> None:
        raise MemoryError("no memory left")

    with pytest.raises(MemoryError):
        trainer._agreed(fail, StopSignals())
    assert processes.told == ["no memory left"]
    with pytest.raises(TrainingError, match="process 1"):
        trainer._agreed(lambda: None, StopSignals())
