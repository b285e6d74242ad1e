"""Runs a batch: makes the manifest or checks it against the folder, and hands the shards that are left to workers."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from transduce.batch_translation.folder import BatchFolder
from transduce.batch_translation.formats import Range
from transduce.batch_translation.kinds import find_inputs, format_of
from transduce.batch_translation.local import run_here, run_processes, visible_gpus
from transduce.batch_translation.manifest import BatchRequest, Manifest, make_manifest
from transduce.batch_translation.progress import Progress
from transduce.batch_translation.schedule import Failure, Schedule
from transduce.batch_translation.worker import Worker
from transduce.cores import thread_refusal
from transduce.errors import DataError, MissingExtra, RunError, SettingError
from transduce.translator import Translator

MOST_WORKERS = 1_024


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where a batch runs: on how many workers, and which part of it."""

    on: Literal["local", "ray"] = "local"
    workers: int = 0  # 0: a process per GPU, or this process; on Ray, as many as the cluster has room for
    task: int = 0  # of an array of tasks that share the shards
    tasks: int = 1
    prepare_only: bool = False  # write the manifest, and translate nothing

    def __post_init__(self) -> None:
        if not 0 <= self.workers <= MOST_WORKERS:
            raise SettingError(f"workers = {self.workers}: must be from 0 to {MOST_WORKERS}")
        if self.tasks < 1 or not 0 <= self.task < self.tasks:
            raise SettingError(
                f"--shard {self.task} --shards {self.tasks}: tasks are numbered from 0, as with sbatch --array=0-{max(0, self.tasks - 1)}"
            )
        if self.on == "ray" and self.tasks > 1:
            raise SettingError("--on ray shares out all shards by itself: leave out --shard and --shards")
        if self.on == "ray" and find_spec("ray") is None:
            raise MissingExtra("ray", "ray")

    def mine(self, manifest: Manifest) -> list[int]:
        """The shards of this task: every n-th one."""
        return list(range(self.task, len(manifest.shards), self.tasks))


@dataclass(frozen=True)
class BatchResult:
    """What a command has done, and what is left."""

    output: str
    shards: int  # of this task
    finished: int
    lines: int  # of the finished shards
    translated: int  # by this command
    seconds: float
    failures: list[Failure]
    counts: dict[str, int]  # what people should know about the lines that this command translated


def prepare(request: BatchRequest, output: str | Path) -> Manifest:
    """Write the manifest of a new folder, or check that an existing folder holds the same work."""
    folder = BatchFolder(Path(output))
    known = folder.read_manifest()
    if known is None:
        check_inputs(request)
    manifest = make_manifest(request, known)
    if known and (difference := manifest.difference(known)):
        raise RunError(f"{output}: was begun with {difference}; give another folder, or delete this one")
    if manifest != known:
        folder.write_manifest(manifest)
    return manifest


def check_inputs(request: BatchRequest) -> None:
    """Refuse at once, before anything is hashed and written, what would fail in every attempt: the first row is looked at."""
    translator = Translator.load(request.run, request.options)  # without its weights
    paths = find_inputs(request.inputs)
    form = format_of(paths, request.columns, request.into)
    for path in paths:
        form.check(path)
        first = Range(path, 0, 1, None)
        try:
            translator.forms.learned([text for rows in form.read(first) for text in rows.texts])
        except DataError as error:
            raise DataError(f"{form.place(first, 0)}: {error}") from None


def translate_corpus(
    request: BatchRequest, output: str | Path, where: Where | None = None, translator: Translator | None = None
) -> BatchResult:
    """Translate the shards of a corpus that are not finished; `translator` serves a batch in this process."""
    where = where or Where()
    if refused := thread_refusal(request.options.threads):
        raise SettingError(refused)
    manifest, folder = prepare(request, output), BatchFolder(Path(output))
    mine, finished = where.mine(manifest), set(folder.finished())
    progress = Progress(manifest, mine, finished, request.options.say)
    schedule = Schedule(folder, [number for number in mine if number not in finished], progress.finished_elsewhere)
    if finished and schedule.waiting and not where.prepare_only:
        progress.say(f"{output}: {progress.done:,} of {len(mine):,} shards are finished; translating the others")
    if schedule.waiting and not where.prepare_only:
        _run(request, folder, where, schedule, progress, translator)
    return _result(folder, manifest, mine, schedule, progress)


def _run(
    request: BatchRequest,
    folder: BatchFolder,
    where: Where,
    schedule: Schedule,
    progress: Progress,
    translator: Translator | None,
) -> None:
    threads, device = request.options.threads, request.options.device
    if where.on == "ray":
        from transduce.batch_translation.on_ray import run_on_ray

        run_on_ray(folder.path, where.workers, threads, device, schedule, progress)
        return
    gpus = visible_gpus(device) if translator is None else []
    workers = where.workers or (len(gpus) if len(gpus) > 1 else 0)
    if workers:
        run_processes(folder.path, min(workers, len(schedule.waiting)), threads, gpus, schedule, progress)
    elif translator is not None:
        run_here(Worker(folder, folder.manifest(), translator), schedule, progress)
    else:
        run_here(Worker.open(folder.path, threads, request.options.say), schedule, progress)


def _result(
    folder: BatchFolder, manifest: Manifest, mine: list[int], schedule: Schedule, progress: Progress
) -> BatchResult:
    finished = [number for number in mine if number in folder.finished()]
    return BatchResult(
        output=str(folder.path),
        shards=len(mine),
        finished=len(finished),
        lines=sum(manifest.shards[number].rows for number in finished),
        translated=progress.rows_written,
        seconds=progress.seconds,
        failures=[failure for failure in schedule.set_aside if failure.shard not in finished],
        counts=progress.counts,
    )
