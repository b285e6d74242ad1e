"""How the processes of a run find each other, before they are connected: their numbers, and a store of texts.

torchrun, srun and Kubernetes' PyTorchJob describe each process by environment variables (RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR and so on). The store is the one that torchrun already keeps. Knows no data and no training.
"""

import json
import os
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from transduce.cores import available_cores
from transduce.errors import SettingError

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

POLL_S = 0.2
STORE_TIMEOUT = timedelta(minutes=5)  # until all processes have started


@dataclass(frozen=True)
class Launch:
    """One process among those that were started together."""

    number: int = 0
    count: int = 1
    local_number: int = 0  # on its machine
    local_count: int = 1
    attempt: str = ""  # differs after every restart

    @staticmethod
    def of_environment() -> "Launch":
        """As torchrun or a similar launcher describes this process; otherwise a process by itself."""
        found = {name: os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
        if not found["WORLD_SIZE"].isdigit() or int(found["WORLD_SIZE"]) < 2:
            return Launch()
        for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
            if not os.environ.get(name):
                raise SettingError(
                    f"WORLD_SIZE is {found['WORLD_SIZE']}, but {name} is not set: start several processes with torchrun, "
                    "or unset WORLD_SIZE"
                )
        return Launch(
            number=int(found["RANK"]),
            count=int(found["WORLD_SIZE"]),
            local_number=int(found["LOCAL_RANK"] or 0),
            local_count=int(found["LOCAL_WORLD_SIZE"] or 1),
            attempt=f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}-{found['WORLD_SIZE']}",
        )

    @property
    def threads(self) -> int:
        """CPU threads of this process: the cores of the machine divided among its processes."""
        return max(1, available_cores() // self.local_count)


class Meeting:
    """A store of texts that all processes can reach."""

    def __init__(self, launch: Launch) -> None:
        from torch.distributed.distributed_c10d import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        self.launch = launch
        store, _, _ = next(rendezvous("env://", timeout=STORE_TIMEOUT))
        # torchrun keeps its store over restarts, and what an earlier attempt left there would mislead the next one.
        self.store: Store = PrefixStore(f"transduce-{launch.attempt}", store)

    def tell(self, topic: str, value: Any) -> None:
        self.store.set(topic, json.dumps(value))

    def is_told(self, topic: str) -> bool:
        return bool(self.store.check([topic]))

    def hear(self, topic: str) -> Any:
        """Wait for a value, however long it takes: torchrun ends this process if the other one fails."""
        while not self.is_told(topic):
            time.sleep(POLL_S)
        return json.loads(self.store.get(topic))
