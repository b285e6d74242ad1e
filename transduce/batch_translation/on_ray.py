"""Workers on a Ray cluster: an actor for each GPU, or for a few cores. Actors that die are replaced.

Every node must see the run folder, the inputs and the output folder under the same paths, as on a shared disk. Actors
send back counts, and no text: each writes the file of its shard itself. Needs the package ray.
"""

import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transduce.batch_translation.progress import Progress
from transduce.batch_translation.schedule import LOSSES, Schedule
from transduce.batch_translation.worker import ShardError, ShardReport, Worker, would_repeat
from transduce.errors import DataError, RunError, TransduceError

CORES_PER_ACTOR = 4


class RayWorker:
    """The actor: a worker whose answers are dictionaries."""

    def __init__(self, folder: str, threads: int) -> None:
        from transduce.cores import tune_idle_threads

        tune_idle_threads()
        self.folder, self.threads = folder, threads
        self.worker: Worker | None = None

    def translate(self, number: int) -> dict[str, Any]:
        """Translate a shard. The model is loaded for the first one, so that its errors are answers as well."""
        try:
            if self.worker is None:
                self.worker = Worker.open(self.folder, self.threads, lambda text: print(text, file=sys.stderr))
            return {"report": asdict(self.worker.translate(number))}
        except DataError as error:
            return {"failed": str(error), "is_final": would_repeat(error)}
        except TransduceError as error:
            return {"fatal": str(error)}
        except (ShardError, MemoryError, RuntimeError, OSError) as error:
            return {"failed": str(error) or type(error).__name__}


class Actors:
    """Starts actors, each with its share of the cluster."""

    def __init__(self, folder: Path, workers: int, threads: int, device: str) -> None:
        import ray

        resources = ray.cluster_resources()
        self.gpus = 0 if device == "cpu" else int(resources.get("GPU", 0))
        cores = int(resources.get("CPU", 1))
        self.threads = threads or (1 if self.gpus else max(1, min(CORES_PER_ACTOR, cores // max(1, workers))))
        self.count = workers or self.gpus or max(1, cores // self.threads)
        self.folder = str(folder.absolute())

    def start(self) -> Any:
        import ray

        share = {"num_cpus": self.threads, **({"num_gpus": 1} if self.gpus else {})}
        return ray.remote(RayWorker).options(**share).remote(self.folder, self.threads)


def run_on_ray(folder: Path, workers: int, threads: int, device: str, schedule: Schedule, progress: Progress) -> None:
    """Translate all shards on the cluster that RAY_ADDRESS names, or on one that is started here."""
    import ray

    mine = not ray.is_initialized()
    if mine:
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    try:
        actors = Actors(folder, workers, threads, device)
        progress.say(f"Ray: {actors.count} actors with {actors.threads} cores{' and a GPU' * bool(actors.gpus)} each")
        if actors.threads > (largest := _largest_node()):
            progress.say(
                f"no node of the cluster has {actors.threads} cores (the largest has {largest}): waiting for one"
            )
        Dispatch(actors, schedule, progress).run()
    finally:
        if mine:
            ray.shutdown()


def _largest_node() -> int:
    import ray

    return max((int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]), default=0)


class Dispatch:
    """Keeps every actor busy with one shard at a time."""

    def __init__(self, actors: Actors, schedule: Schedule, progress: Progress) -> None:
        self.actors, self.schedule, self.progress = actors, schedule, progress
        self.flying: dict[Any, tuple[int, Any]] = {}  # the future of a shard: its number and its actor
        self.losses = 0  # in a row, of actors that have not finished a shard

    def run(self) -> None:
        import ray

        for _ in range(self.actors.count):
            if not self._send(None):
                break
        while self.flying:
            [future], _ = ray.wait(list(self.flying), num_returns=1)
            number, actor = self.flying.pop(future)
            self._send(self._receive(future, number, actor))

    def _send(self, actor: Any) -> bool:
        """Give the next shard to this actor, or to a new one."""
        number = self.schedule.take()
        if number is None:
            return False
        actor = actor or self.actors.start()
        self.flying[actor.translate.remote(number)] = number, actor
        return True

    def _receive(self, future: Any, number: int, actor: Any) -> Any:
        """Take the answer of an actor. Returns the actor, or None if it must be replaced."""
        import ray

        try:
            answer = ray.get(future)
        except ray.exceptions.RayError as error:
            self._lost(number, error)
            ray.kill(actor)
            return None
        if "fatal" in answer:
            raise RunError(answer["fatal"])
        if "report" in answer:
            self.losses, report = 0, ShardReport(**answer["report"])
            self.progress.advanced(report.rows)
            self.progress.finished(report)
        else:
            reason, is_final = answer["failed"], answer.get("is_final", False)
            self.progress.failed(number, reason, self.schedule.failed(number, reason, is_final=is_final))
        return actor

    def _lost(self, number: int, error: Exception) -> None:
        self.losses += 1
        place = self.progress.manifest.place(number)
        reason = f"{place}: the actor was lost at or after this line ({type(error).__name__})"
        if self.losses >= LOSSES * self.actors.count:
            raise RunError(f"every Ray actor died before it finished a shard: {str(error).splitlines()[0]}")
        self.progress.failed(number, reason, self.schedule.failed(number, reason, worker_lost=True))
