"""Assembles what trains a model: this process's share of a step, the training state and the kind of update.

They depend on the number of shards, the device, the precision, the layout of batches and the model.
"""

import torch

from transduce.config import TrainConfig
from transduce.device import Device
from transduce.model import Model, has_running_statistics
from transduce.training.layout import CAPTURED, BatchLayout
from transduce.training.processes import Processes
from transduce.training.sharded_graphs import ShardedGraphedUpdate
from transduce.training.sharded_state import ShardedState
from transduce.training.sharded_update import ShardedUpdate
from transduce.training.shards import Share
from transduce.training.state import TrainingState
from transduce.training.update import GraphedUpdate, PlainUpdate, TwinUpdate, Update


def make_share(shards: int, device: Device, processes: Processes) -> Share | None:
    """This process's part of every step; None if a step is not cut into shards."""
    if shards == 1:
        return None
    at_once = min(torch.get_num_threads(), shards // processes.count) if device.kind == "cpu" else 1
    return Share(shards, processes.number, processes.count, at_once)


def make_state(model: Model, train: TrainConfig, share: Share | None, processes: Processes) -> TrainingState:
    if share is None:
        return TrainingState.of(model, train)
    return ShardedState(model, train, share, processes)


def make_update(
    model: Model, state: TrainingState, train: TrainConfig, device: Device, layout: BatchLayout, processes: Processes
) -> Update:
    """The fastest kind of update that the device, the model and the layout allow."""
    in_bf16 = device.kind == "cuda" and device.bf16 and not has_running_statistics(model)
    graphed = in_bf16 and layout.progress.layout in CAPTURED
    if isinstance(state, ShardedState) and layout.share is not None:
        shared = model, state.sliced, train, device, layout.share, processes
        if not graphed:
            return ShardedUpdate(*shared)
        return ShardedGraphedUpdate(*shared, one_batch=getattr(layout.planner, "batches_per_shard", 0) == 1)
    twin = in_bf16 and model.page_width is None
    kind = GraphedUpdate if graphed else TwinUpdate if twin else PlainUpdate
    return kind(model, state.optimizer, train, device)
