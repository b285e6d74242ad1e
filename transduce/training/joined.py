"""Several processes that train one run together, connected by torch.distributed.

Gradients and weights travel by NCCL or gloo; decisions (stop signals, failures, what process 0 read from the disk) travel by
gloo groups of their own, so that a GPU is never read for them. Values travel as JSON and tensors, never as pickles. An
exchange that fails names the process that did not answer. Knows vectors and texts, but no model, data or run folder.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from transduce import errors
from transduce.checkpoint import Tensors
from transduce.errors import TrainingError, TransduceError
from transduce.training.exchange import Exchange, Group, Single, processes_per_machine
from transduce.training.processes import computed_alike
from transduce.training.rendezvous import Launch
from transduce.training.waiting import DeviceClock, HostClock

T = TypeVar("T")

# Torch 2.13 renamed it; before, the new name did not exist.
gather_all = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
INTACT = "The last checkpoint is intact: rerun the same command to resume"
PATIENCE = 10  # times the time-out: how long processes wait for one that reads or writes files
ROLL_CALL_S = 2.0  # how long the others have to say that they are alive, after an exchange has failed


class Lost(TrainingError):
    """A process does not answer; one of the others reports it."""

    def __init__(self, message: str, reported_by: int) -> None:
        super().__init__(message)
        self.reported_by = reported_by


@dataclass(frozen=True)
class Where:
    """Where a process runs, for messages."""

    host: str
    pid: int

    @staticmethod
    def here() -> "Where":
        return Where(socket.gethostname(), os.getpid())

    def __str__(self) -> str:
        return f"host {self.host}, pid {self.pid}"


class Connected:
    """A group of torch.distributed, for vectors."""

    def __init__(self, group: "dist.ProcessGroup | None", count: int) -> None:
        self.group, self.count = group, count

    def all_to_all(self, parts: Tensor) -> Tensor:
        received = torch.empty_like(parts)
        sent, into = parts, received
        if parts.dtype == torch.bfloat16:  # gloo knows bytes, but not bfloat16
            sent, into = parts.view(torch.uint8), received.view(torch.uint8)
        dist.all_to_all_single(into, sent, group=self.group)
        return received

    def gather(self, own: Tensor, out: Tensor) -> None:
        gather_all(out, own, group=self.group)


class Joined:
    """One of the first `count` processes that were started, which train a run together."""

    def __init__(self, store: Store, launch: Launch, count: int, backend: str, timeout_s: float) -> None:
        self.store, self.number, self.count, self.timeout_s = store, launch.number, count, timeout_s
        self.standing_by, self.places = max(0, launch.count - count), [Where.here()] * count
        self.clock: HostClock | DeviceClock = HostClock() if backend == "gloo" else DeviceClock()
        limit = timedelta(seconds=timeout_s)
        with self._answered():
            dist.init_process_group(
                backend, store=PrefixStore("group", store), rank=self.number, world_size=count, timeout=limit
            )
            self.small = dist.new_group(backend="gloo", timeout=limit)
            self.patient = dist.new_group(backend="gloo", timeout=PATIENCE * limit)
        self.staged = backend == "gloo"  # it exchanges tensors in the memory of the host
        self.places = [Where(*place) for place in self._all_texts([self.places[0].host, self.places[0].pid])]
        placed = [(number, size) for number, size in self._all_texts([launch.local_number, launch.local_count])]
        with self._answered():
            self.exchange = self._make_exchange(processes_per_machine(placed), limit)

    def _make_exchange(self, per_machine: int, limit: timedelta) -> Exchange:
        """Connect the processes of each machine, and those with the same number on all machines."""
        if per_machine in (1, self.count):
            return Exchange(Connected(None, self.count), Single())
        machines = [range(first, first + per_machine) for first in range(0, self.count, per_machine)]
        peers = [range(number, self.count, per_machine) for number in range(per_machine)]
        return Exchange(self._member_of(machines, limit), self._member_of(peers, limit))

    def _member_of(self, groups: list[range], limit: timedelta) -> Group:
        """Make these groups, which all processes must do in the same order; the one that this process belongs to."""
        made = [(numbers, dist.new_group(list(numbers), timeout=limit)) for numbers in groups]
        return next(Connected(group, len(numbers)) for numbers, group in made if self.number in numbers)

    @property
    def waited(self) -> float:
        return self.clock.seconds

    def close(self) -> None:
        """Leave the group, after everybody has finished."""
        dist.destroy_process_group()

    # --- decisions -------------------------------------------------------------------------------------------------

    def first(self, work: Callable[[], T]) -> T:
        outcome: dict[str, Any] = {}
        error: Exception | None = None
        if self.number == 0:
            try:
                outcome = {"value": work()}
            except Exception as problem:  # reported to the others before it is raised here
                outcome, error = {"error": type(problem).__name__, "message": str(problem)}, problem
        outcome = json.loads(self._text_of_first(json.dumps(outcome)))
        if error is not None:
            raise error
        if "error" in outcome:
            kind = getattr(errors, outcome["error"], TrainingError)
            raise (kind if issubclass(kind, TransduceError) else TrainingError)(outcome["message"])
        value: T = outcome["value"]
        return value

    def share_out(self, blocks: int, work: Callable[[int], T]) -> list[T]:
        each = blocks // self.count
        own = computed_alike(range(self.number * each, (self.number + 1) * each), blocks, work)
        return [result for results in self._all_texts(own) for result in results]

    def agreed_signal(self, received: int | None, failure: str) -> int | None:
        flags = torch.tensor([received or 0, bool(failure)])
        with self._answered():
            dist.all_reduce(flags, dist.ReduceOp.MAX, group=self.small)
        signal, failed = flags.tolist()
        if failed:
            failures = self._all_texts(failure)
            number = next(number for number, text in enumerate(failures) if text)
            raise TrainingError(f"process {number} ({self.places[number]}) failed: {failures[number]}")
        return signal or None

    def _text_of_first(self, text: str) -> str:
        content = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        size = torch.tensor([len(content)])
        with self._answered():
            dist.broadcast(size, 0, group=self.patient)
            if self.number:
                content = torch.empty(int(size), dtype=torch.uint8)
            dist.broadcast(content, 0, group=self.patient)
        return content.numpy().tobytes().decode()

    def _all_texts(self, value: Any) -> list[Any]:
        """The values of all processes, in order."""
        content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        with self._answered():
            sizes = torch.empty(self.count, dtype=torch.int64)
            gather_all(sizes, torch.tensor([len(content)]), group=self.patient)
            padded = torch.zeros(int(sizes.max()), dtype=torch.uint8)
            padded[: len(content)] = content
            everything = torch.empty(self.count * len(padded), dtype=torch.uint8)
            gather_all(everything, padded, group=self.patient)
        parts = everything.view(self.count, -1).numpy()
        return [json.loads(part[:size].tobytes()) for part, size in zip(parts, sizes.tolist(), strict=True)]

    # --- vectors ---------------------------------------------------------------------------------------------------

    def add_slices(self, vector: Tensor, out: Tensor) -> None:
        with self._answered(vectors=True):
            out.copy_(self.exchange.added(self._staged(vector)))

    def all_rows(self, rows: Tensor) -> Tensor:
        sent = self._staged(rows.contiguous())
        received = sent.new_empty((self.count * len(rows), *rows.shape[1:]))
        with self._answered(vectors=True):  # NCCL cannot send what is in the memory of the host
            gather_all(received, sent, group=self.small if sent.device.type == "cpu" else None)
        return received.to(rows.device)

    def gather_slices(self, vector: Tensor) -> None:
        own, whole = vector.view(self.count, -1)[self.number], vector  # NCCL gathers in place
        if self.staged:
            own, whole = own.cpu().clone(), torch.empty(vector.shape, dtype=vector.dtype)
        with self._answered(vectors=True):
            self.exchange.gather(own, whole)
        if self.staged:
            vector.copy_(whole)

    def whole(self, own: Tensor) -> Tensor:
        sent = own.cpu()
        received = torch.empty(self.count * len(sent), dtype=sent.dtype)
        with self._answered():
            gather_all(received, sent, group=self.patient)
        return received

    def spread(self, tensors: Tensors) -> Tensors:
        kinds = self.first(lambda: {n: [str(t.dtype).removeprefix("torch."), *t.shape] for n, t in tensors.items()})
        result: Tensors = {}
        for name, (kind, *shape) in kinds.items():
            mine = (
                tensors[name].cpu().contiguous() if self.number == 0 else torch.empty(shape, dtype=getattr(torch, kind))
            )
            with self._answered():
                dist.broadcast(mine, 0, group=self.patient)
            result[name] = mine
        return result

    def _staged(self, tensor: Tensor) -> Tensor:
        return tensor.cpu() if self.staged else tensor

    # --- who does not answer -----------------------------------------------------------------------------------------

    @contextmanager
    def _answered(self, vectors: bool = False) -> Iterator[None]:
        """Measure how long an exchange takes; if it fails, name the process that is missing."""
        begun = time.perf_counter()
        try:
            with self.clock.measured(vectors):
                yield
        except RuntimeError as error:
            raise self._loss(time.perf_counter() - begun, error) from None

    def _loss(self, seconds: float, error: RuntimeError) -> Lost:
        missing = self._missing()
        present = [number for number in range(self.count) if number not in missing]
        if not missing:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            return Lost(f"the connection between the processes broke ({reason}). {INTACT}", 0)
        names = " and ".join(f"process {number} ({self.places[number]})" for number in missing)
        happened = "no longer answers"
        if seconds > 0.9 * self.timeout_s:
            happened = f"did not answer within {self.timeout_s:g} seconds (train.process_timeout)"
        return Lost(f"{names} {happened}. {INTACT}", min(present, default=self.number))

    def _missing(self) -> list[int]:
        """The processes that do not answer a roll call over the store."""
        try:
            self.store.set(f"alive-{self.number}", "")
            until = time.monotonic() + ROLL_CALL_S
            missing = list(range(self.count))
            while missing and time.monotonic() < until:
                missing = [number for number in missing if not self.store.check([f"alive-{number}"])]
                time.sleep(0.1)
            return missing
        except RuntimeError:  # the store is gone, and with it the process that holds it
            return []
