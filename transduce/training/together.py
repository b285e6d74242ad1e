"""A run that several processes train together: who prepares the data, who trains and who stands by.

Process 0 holds the lock of the run folder, prepares the data and writes every file. The other processes of its machine open the
same prepared data; on every other machine, one process prepares them again from the same files and vocabularies, and their
hashes must agree. Only process 0 prints.
"""

import base64
import socket
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from transduce.checkpoint import RunFolder
from transduce.config import build, from_toml, to_toml
from transduce.data import cache
from transduce.device import Device, choose_device
from transduce.errors import TransduceError
from transduce.run_lock import alone_in
from transduce.text import Vocabularies, Vocabulary
from transduce.training.feed import TrainingData
from transduce.training.joined import Joined, Lost
from transduce.training.prepare import Inspect, Prepared, no_findings, prepare, prepare_elsewhere
from transduce.training.processes import Processes
from transduce.training.rendezvous import Launch, Meeting, OwnError
from transduce.training.report import Reporter, SilentReporter
from transduce.training.request import RequestedSettings
from transduce.training.result import Result
from transduce.training.shared_samples import SharedSamples
from transduce.training.stopping import Stopped
from transduce.training.stores import open_store, path_of, training_pairs, validation_pairs
from transduce.translator.evaluation import TestSet

LOCK_TIMEOUT_S = 60.0  # for processes of an earlier start to end, if torchrun itself was killed

# Trains what was prepared, with other processes and this many threads.
Train = Callable[[Prepared, Processes, Reporter, int], Result]


def train_together(
    folder: RunFolder,
    requested: RequestedSettings,
    reporter: Reporter,
    begun: float,
    launch: Launch,
    train: Train,
    inspect: Inspect = no_findings,
) -> Result:
    """Train a run as one of several processes; all of them return the same result."""
    claim_gpu(launch)
    meeting = Meeting(launch, reporter.say)
    if launch.number == 0:
        with alone_in(folder, LOCK_TIMEOUT_S, reporter.say):
            return _lead(meeting, folder, requested, reporter, begun, train, inspect)
    try:
        return _follow(meeting, train)
    except Stopped as stopped:
        raise SystemExit(128 + stopped.signal_number) from None
    except OwnError:
        raise
    except TransduceError as error:  # process 0 reports it too, unless it is the one that is missing
        if isinstance(error, Lost) and error.reported_by == launch.number:
            raise
        raise SystemExit(2) from None


def claim_gpu(launch: Launch) -> None:
    """Use the GPU with this process's number on its machine; processes share GPUs if there are fewer of them."""
    if torch.cuda.is_available():
        torch.cuda.set_device(launch.local_number % torch.cuda.device_count())


def training_processes(count: int, shards: int) -> int:
    """How many of `count` processes can share a step of so many shards: the largest power of two."""
    return min(shards, 1 << (count.bit_length() - 1))


def usual_shards(count: int, device: Device) -> int:
    """The shards of a new run: as many as processes, and on CPUs at least 4, so that their number can change later."""
    processes = training_processes(count, count)
    return max(4, processes) if device.kind == "cpu" else processes


def for_processes(requested: RequestedSettings, count: int, on_gpus: bool = False) -> RequestedSettings:
    """The request for a new run of `count` processes: shards for them, unless their number was given, and how many GPUs they have."""
    train = requested.config.train
    device = choose_device(train.device, train.precision, train.threads)
    if on_gpus or device.kind == "cuda":
        requested = replace(requested, gpus=training_processes(count, count))
    if any("shards" in layer.get("train", {}) for layer in requested.layers):
        return requested
    shards = usual_shards(count, device)
    return replace(
        requested,
        layers=(*requested.layers, {"train": {"shards": shards}}),
        origins=(*requested.origins, "the number of processes"),
        config=replace(requested.config, train=replace(train, shards=shards)),
    )


def _lead(
    meeting: Meeting,
    folder: RunFolder,
    requested: RequestedSettings,
    reporter: Reporter,
    begun: float,
    train: Train,
    inspect: Inspect,
) -> Result:
    launch = meeting.launch
    try:
        new = not folder.config.exists()
        wanted = for_processes(requested, launch.count) if new else requested
        prepared = prepare(folder, wanted, reporter.say, begun, inspect, reporter.features)
    except BaseException as error:
        meeting.tell("prepared", {"error": type(error).__name__})
        raise
    meeting.tell("prepared", _described(prepared))
    shards = prepared.training_data.config.train.shards
    active = training_processes(launch.count, shards)
    reporter.say(_announcement(launch, active, shards))
    result = _train(meeting, _sharing_samples(meeting, prepared), reporter, train, active)
    meeting.tell("finished", asdict(result))
    return result


def _follow(meeting: Meeting, train: Train) -> Result:
    described = meeting.hear("prepared", "process 0 to prepare the data")
    if "error" in described:
        raise SystemExit(2)
    shards = described["shards"]
    active = training_processes(meeting.launch.count, shards)
    if meeting.launch.number >= active:  # stands by until the others have finished
        return Result(**meeting.hear("finished", "the processes that train: it stands by until the run ends"))
    return _train(meeting, _sharing_samples(meeting, _received(meeting, described)), SilentReporter(), train, active)


def _train(meeting: Meeting, prepared: Prepared, reporter: Reporter, train: Train, active: int) -> Result:
    launch, config = meeting.launch, prepared.training_data.config.train
    device = choose_device(config.device, config.precision, config.threads)
    backend = "nccl" if device.kind == "cuda" and launch.local_count <= torch.cuda.device_count() else "gloo"
    meeting.wait_for_all(active)
    processes = Joined(meeting.store, launch, active, backend, config.process_timeout)
    result = train(prepared, processes, reporter, launch.threads)
    processes.close()
    return result


def _announcement(launch: Launch, active: int, shards: int) -> str:
    machines = -(-active // launch.local_count)
    where = f" on {machines} machines" if machines > 1 else ""
    if active == launch.count:
        return f"{active} processes{where} share each step of {shards} shards (train.shards)"
    return (
        f"{active} of {launch.count} processes train{where} and {launch.count - active} stand by: a power of two of "
        f"processes, up to train.shards = {shards}, can share a step"
    )


# --- prepared data ---------------------------------------------------------------------------------------------------


def _described(prepared: Prepared) -> dict[str, Any]:
    """What other processes need to open the same data."""
    data = prepared.training_data
    both, stores = data.vocabularies, [path_of(pairs) for pairs in (data.train, data.valid)]
    return {
        "shards": data.config.train.shards,
        "config": to_toml(data.config),
        "vocabularies": [base64.b64encode(one.model).decode() for one in (both.source, both.target)],
        "stores": [str(path) for path in stores],
        "manifests": [cache.manifest(path) for path in stores],
        "texts": asdict(data.valid_texts),
    }


def _received(meeting: Meeting, described: dict[str, Any]) -> Prepared:
    """The same data, from the cache of this machine."""
    config = build(from_toml(described["config"], "the settings of process 0"))
    both = Vocabularies(*(Vocabulary(base64.b64decode(model)) for model in described["vocabularies"]))
    train, valid = (Path(path) for path in described["stores"])
    if not (train.is_dir() and valid.is_dir()):
        train, valid = _prepared_here(meeting, lambda: prepare_elsewhere(config, both, (train.name, valid.name)))
    _check_same((train, valid), described["manifests"])
    texts = TestSet(**described["texts"])
    stores = open_store(config.data, train), open_store(config.data, valid)
    pairs = training_pairs(config, stores[0]), validation_pairs(config, stores[1])
    return Prepared(TrainingData(config, both, *pairs, texts), None, [])


def _check_same(stores: tuple[Path, Path], manifests: list[str]) -> None:
    """Refuse other data under the same name: that of recordings knows their sizes, but not what is heard in them."""
    for path, manifest in zip(stores, manifests, strict=True):
        if cache.manifest(path) != manifest:
            raise OwnError(
                f"{socket.gethostname()}: {path} differs from what process 0 has prepared: give all machines the same files and "
                "delete this folder, or set data.cache to a folder that all machines share"
            )


def _prepared_here(meeting: Meeting, build_stores: Callable[[], tuple[Path, Path]]) -> tuple[Path, Path]:
    """The stores that one process of this machine builds while its other processes wait."""
    host = socket.gethostname()
    topic, launch = f"prepared on {host}", meeting.launch
    if launch.local_number == 0:
        try:
            meeting.tell(topic, [str(path) for path in build_stores()])
        except TransduceError as error:
            raise OwnError(str(error)) from None
    train, valid = meeting.hear(topic, f"process {launch.number - launch.local_number} to prepare the data on {host}")
    return Path(train), Path(valid)


def _sharing_samples(meeting: Meeting, prepared: Prepared) -> Prepared:
    """The same data; if segmentations are sampled, all processes get those that process 0 samples."""
    data = prepared.training_data
    if not data.config.data.subword_sampling:
        return prepared
    shared = SharedSamples(path_of(data.train), meeting)
    return replace(prepared, training_data=replace(data, train=shared))
