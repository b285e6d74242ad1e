"""Trains the models of cells: on a CPU as many at a time as there are cores, on a GPU one after the other.

A network this small keeps hardly more than one core busy, so several of them with one thread each learn more in the same time.
"""

import heapq
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from transduce.cores import available_cores
from transduce.errors import TrainingError
from transduce.paper.cells import Cell, Finished, Task, run_cell, warm_up

MOST_AT_ONCE = 8  # each takes about half a gigabyte of memory
PROCESSES = partial(ProcessPoolExecutor, mp_context=multiprocessing.get_context("spawn"))

_warm: set[tuple[str, str]] = set()  # what this process need not warm up again


def count_at_once() -> int:
    return 1 if torch.cuda.is_available() else min(available_cores(), MOST_AT_ONCE)


def time_of_all(each: Iterable[float], at_once: int) -> float:
    """How long it takes to do these one after the other in so many places, the longest first."""
    ends = [0.0] * at_once
    for seconds in sorted(each, reverse=True):
        heapq.heapreplace(ends, ends[0] + seconds)
    return max(ends)


def train_side_by_side(cells: Sequence[tuple[Cell, Task]], at_once: int) -> Iterator[tuple[Cell, Task, Finished]]:
    """The finished cells as they end. Those with the longest budgets begin first."""
    threads = 1 if at_once > 1 else 0
    longest_first = sorted(cells, key=lambda pair: -pair[0].seconds)
    with tempfile.TemporaryDirectory() as name, _killed_pool(at_once, threads) as pool:
        running = {
            pool.submit(_train, cell, replace(task, threads=threads), Path(name)): (cell, task)
            for cell, task in longest_first
        }
        try:
            for future in as_completed(running):
                yield *running[future], future.result()
        except BrokenProcessPool:
            raise TrainingError(
                "a training process was killed, perhaps because memory ran out: free some memory and run the command again; "
                "finished models are not trained again"
            ) from None


@contextmanager
def _killed_pool(at_once: int, threads: int) -> Iterator[Executor]:
    """Processes that are killed at the end: on SIGTERM a training would save a checkpoint first, and then the next one would begin."""
    others = multiprocessing.active_children()
    with PROCESSES(at_once, initializer=_begin, initargs=(threads,)) as pool:
        try:
            yield pool
        finally:
            for process in multiprocessing.active_children():
                if process not in others:
                    process.kill()
            pool.shutdown(cancel_futures=True)


def _begin(threads: int) -> None:
    """In a process that trains: nothing runs on when the command has been killed."""
    torch.set_num_threads(threads or available_cores())
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: "multiprocessing.process.BaseProcess") -> None:
    parent.join()
    os._exit(1)


def _train(cell: Cell, task: Task, scratch: Path) -> Finished:
    """Train and score a cell. Imports, data and kernels are prepared before, so that they are in no budget."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        compiled = cell.system if torch.cuda.is_available() else ""
        if (task.name, compiled) not in _warm:
            warm_up(cell, task, Path(folder) / "warm-up")
            _warm.add((task.name, compiled))
        return run_cell(cell, task, Path(folder) / "run")
