"""How the processes of a run find each other, before they are connected: their numbers, and a store of texts.

torchrun, srun and Kubernetes' PyTorchJob describe each process by environment variables (RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR and so on). The store is the one that torchrun already keeps. A process that waits for another one says so. Knows no
data and no training.
"""

import json
import math
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from transduce.cores import available_cores
from transduce.errors import SettingError, TrainingError

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

Say = Callable[[str], None]

POLL_S = 0.2
SAY_AFTER_S = 5.0  # shorter waits are not worth a line
STORE_TIMEOUT = timedelta(minutes=5)  # until all processes have started


class OwnError(TrainingError):
    """An error that no other process learns of, so that this one reports it."""


@dataclass(frozen=True)
class Launch:
    """One process among those that were started together."""

    number: int = 0
    count: int = 1
    local_number: int = 0  # on its machine
    local_count: int = 1

    @staticmethod
    def of_environment() -> "Launch":
        """As torchrun or a similar launcher describes this process; otherwise a process by itself."""
        if (count := started_together()) < 2:
            return Launch()
        found = {name: os.environ.get(name, "") for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
        for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
            if not os.environ.get(name):
                raise SettingError(
                    f"WORLD_SIZE is {count}, but {name} is not set: start several processes with torchrun, "
                    "or unset WORLD_SIZE"
                )
        return Launch(
            number=int(found["RANK"]),
            count=count,
            local_number=int(found["LOCAL_RANK"] or 0),
            local_count=int(found["LOCAL_WORLD_SIZE"] or 1),
        )

    @property
    def threads(self) -> int:
        """CPU threads of this process: the cores of the machine divided among its processes."""
        return max(1, available_cores() // self.local_count)

    @property
    def speaks(self) -> bool:
        """Whether this process says what it waits for: process 0, and the first one that waits on each machine."""
        return self.number <= 1 or self.local_number == 0


def started_together() -> int:
    """How many processes a launcher has started, of which this is one; 1 without a launcher."""
    count = os.environ.get("WORLD_SIZE", "")
    return int(count) if count.isdecimal() else 1


class Meeting:
    """A store of texts that all processes can reach."""

    def __init__(self, launch: Launch, say: Say, store: "Store | None" = None) -> None:
        from torch.distributed.distributed_c10d import PrefixStore

        self.launch, self.say = launch, say
        store = _environments_store() if store is None else store
        self.store: Store = PrefixStore(f"transduce-{self._start(store)}", store)

    def tell(self, topic: str, value: Any) -> None:
        self.store.set(topic, json.dumps(value))

    def hear(self, topic: str, waiting_for: str) -> Any:
        """Wait for a value, however long it takes: torchrun ends this process if the other one fails."""
        self._wait(lambda: bool(self.store.check([topic])), waiting_for)
        return json.loads(self.store.get(topic))

    def wait_for_all(self, count: int) -> None:
        """Wait until the first `count` processes have called this; some may still be preparing data."""
        self.tell(f"ready-{self.launch.number}", socket.gethostname())
        for number in range(count):
            self.hear(f"ready-{number}", f"process {number} to open the data")

    def _wait(self, is_over: Callable[[], bool], waiting_for: str, timeout_s: float = math.inf) -> None:
        begun, said = time.monotonic(), not self.launch.speaks
        while not is_over():
            waited = time.monotonic() - begun
            if waited > SAY_AFTER_S and not said:
                self.say(f"process {self.launch.number} on {socket.gethostname()} waits for {waiting_for}")
                said = True
            if waited > timeout_s:
                raise TrainingError(f"waited {timeout_s:.0f} seconds for {waiting_for}; start all processes again")
            time.sleep(POLL_S)

    # --- one name for each start -------------------------------------------------------------------------------------

    def _start(self, store: "Store") -> str:
        """A name for this start of all processes, which no earlier one has used.

        torchrun keeps its store when it starts processes again (unless TORCH_DISABLE_SHARE_RDZV_TCP_STORE is set), and what they left
        there would mislead the next ones. TORCHELASTIC_RESTART_COUNT is no name: it does not change if machines come or go, and a
        new machine begins with 0. So process 0 invents a name, which counts when every process finds its own random answer in
        what process 0 returns.
        """
        limit = STORE_TIMEOUT.total_seconds()
        return self._call(store, limit) if self.launch.number == 0 else self._answer(store, limit)

    def _call(self, store: "Store", limit: float) -> str:
        name, answers = uuid4().hex, [""]
        store.set("transduce-start", name)
        for number in range(1, self.launch.count):
            key = f"transduce-{name}-{number}"
            self._wait(lambda key=key: bool(store.check([key])), f"process {number} to start", limit)  # type: ignore[misc]
            answers.append(store.get(key).decode())
        store.set(f"transduce-{name}-all", json.dumps(answers))
        return name

    def _answer(self, store: "Store", limit: float) -> str:
        name, answer = "", uuid4().hex

        def is_confirmed() -> bool:
            nonlocal name
            if not store.check(["transduce-start"]):
                return False
            name = store.get("transduce-start").decode()
            store.set(f"transduce-{name}-{self.launch.number}", answer)
            confirmed = f"transduce-{name}-all"
            return bool(store.check([confirmed])) and answer in json.loads(store.get(confirmed))

        self._wait(is_confirmed, "process 0 to start", limit)
        return name


def _environments_store() -> "Store":
    """The store at MASTER_ADDR and MASTER_PORT, which torchrun or process 0 serves."""
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", timeout=STORE_TIMEOUT))
    return store
