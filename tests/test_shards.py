"""Shards: a step is the same, bit for bit, however many threads compute it."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import transduce
from tests.tiny import batch_of, make_model
from transduce.checkpoint import RunFolder, read_about
from transduce.config import TrainConfig, build
from transduce.data.batches import Batching
from transduce.data.packing import Pages, Widths
from transduce.data.pages import Paging
from transduce.device import Device, _survives_bf16
from transduce.errors import SettingError
from transduce.training.exchange import Exchange, Single
from transduce.training.optimizer import make_optimizer, optimizer_tensors
from transduce.training.processes import Alone
from transduce.training.shard_settings import SUPPORTS, refuse_unsupported
from transduce.training.sharded_graphs import ShardedGraphedUpdate
from transduce.training.sharded_state import ShardedState
from transduce.training.sharded_update import ShardedUpdate
from transduce.training.shards import ALIGNED, Shard, Share, Slices, TreeSum, shard_seed, tree_sum
from transduce.training.update import PlainUpdate

CPU = Device("cpu", bf16=False)
SHARDS = 4
BATCHING = Batching(tokens_per_batch=40, max_positions=200, seed=1)


# --- the order of addition -----------------------------------------------------------------------------------------


def sums(vectors: list[Tensor], processes: int) -> Tensor:
    """As `processes` would add: each a whole subtree, then their sums."""
    each = len(vectors) // processes
    parts = [tree_sum([v.clone() for v in vectors[n * each : (n + 1) * each]]) for n in range(processes)]
    return tree_sum(parts)


def test_subtrees_add_up_to_the_tree() -> None:
    torch.manual_seed(0)
    vectors = [torch.randn(1000) for _ in range(16)]
    alone = sums(vectors, 1)
    assert all(torch.equal(sums(vectors, processes), alone) for processes in (2, 4, 8, 16))
    assert not torch.equal(sum(vectors[1:], vectors[0]), alone)  # a chain rounds otherwise


def test_a_tree_needs_few_vectors_and_uses_them_again() -> None:
    made: list[Tensor] = []

    def make() -> Tensor:
        made.append(torch.zeros(8))
        return made[-1]

    tree = TreeSum(make)
    for _ in range(2):
        for number in range(64):
            vector = tree.vector()
            vector.fill_(number)
            tree.add(vector)
        assert torch.equal(tree.total(), torch.full((8,), 2016.0))
        tree.clear()
    assert len(made) == 7


@pytest.mark.parametrize("count", [1, 2, 8])
def test_slices_are_aligned_and_hold_every_weight_once(count: int) -> None:
    shapes = (torch.Size([3, 5]), torch.Size([70]), torch.Size([8, 40]), torch.Size([]))
    slices = Slices(shapes, (True, False, True, False), count)
    vector = torch.arange(slices.size, dtype=torch.float64)
    views = slices.views(vector)
    assert [view.shape for view in views] == list(shapes)
    assert all(int(view.reshape(-1)[0]) % ALIGNED == 0 for view in views)
    assert len({float(one) for view in views for one in view.reshape(-1)}) == sum(s.numel() for s in shapes)
    runs = [run for number in range(count) for run in slices.runs(number)]
    assert [run.begin for run in runs[1:]] == [run.end for run in runs[:-1]]
    assert runs[-1].end == slices.size
    decayed = torch.cat([torch.full((run.end - run.begin,), run.decayed) for run in runs])
    for view, expected in zip(slices.views(decayed), slices.decayed, strict=True):
        assert bool((view == expected).all())


@pytest.mark.parametrize("count", [1, 2, 8])
def test_whole_weights_lie_within_one_slice(count: int) -> None:
    shapes = tuple(torch.Size(shape) for shape in ([40, 50], [900], [30, 60], [8, 40], [30, 60], [77], [64, 64]))
    whole = tuple(len(shape) == 2 and number > 0 for number, shape in enumerate(shapes))
    slices = Slices(shapes, (True, False, True, True, True, False, True), count, whole)
    number_of = {weight: number for number in range(count) for weight in slices.whole_weights(number)}
    assert sorted(number_of) == [2, 3, 4, 6]
    vector = torch.arange(slices.size, dtype=torch.float64)
    for weight, view in enumerate(slices.views(vector)):
        if number := number_of.get(weight):
            assert number * slices.length <= int(view.min()) <= int(view.max()) < (number + 1) * slices.length
    runs = [run for number in range(count) for run in slices.runs(number)]
    divided = {element for run in runs for element in range(run.begin, run.end)}
    views = slices.views(vector)
    assert all({int(one) for one in views[weight].reshape(-1)} <= divided for weight in (0, 1, 5))
    assert not any(int(one) in divided for weight in number_of for one in views[weight].reshape(-1))
    assert len({float(one) for view in views for one in view.reshape(-1)}) == sum(s.numel() for s in shapes)


# --- the plan ------------------------------------------------------------------------------------------------------


def test_padded_shards_have_every_pair_once() -> None:
    step = [np.arange(10), np.arange(10, 12)]
    shards = BATCHING.shards(step, 4)
    assert sorted(n for shard in shards for part in shard for n in part) == list(range(12))
    assert len(shards[3]) == 1  # the batch of two rows has nothing left for it


def test_shards_of_pages_have_whole_batches() -> None:
    planner = Paging(tokens_per_batch=4096, max_positions=512, seed=1, width=128, shards_per_step=4)
    draw = np.random.default_rng(0)
    pairs: Any = type("Lengths", (), {})()
    pairs.source_lengths, pairs.target_lengths = (draw.integers(2, 40, 3000).astype(np.int32) for _ in range(2))
    plan = planner.plan(pairs, 0)
    assert [len(step) for step in plan[:-1]] == [8] * (len(plan) - 1)
    assert all(len(shard) == 2 for shard in planner.shards(plan[0], 4))
    page = Pages(np.arange(1), np.ones(1, int), 1, Widths(8, 8))
    assert [len(shard) for shard in planner.shards([page] * 3, 4)] == [1, 1, 1, 0]


def test_a_shard_has_its_own_seed() -> None:
    seeds = {shard_seed(step, shard) for step in range(50) for shard in range(16)}
    assert len(seeds) == 800


# --- the update ----------------------------------------------------------------------------------------------------


def sharded(train: TrainConfig, at_once: int = 1, **model: object) -> ShardedUpdate:
    network, share = make_model(**model), Share(SHARDS, at_once=at_once)
    state = ShardedState(network, train, share, Alone())
    return ShardedUpdate(network, state.sliced, train, CPU, share, Alone())


def take_steps(update: ShardedUpdate | ShardedGraphedUpdate, count: int = 3, rate: float = 1e-2) -> dict[str, Tensor]:
    for number in range(count):
        step = [np.arange(9), np.arange(9, 12)]
        update.begin(number)
        for group in update.shards.work(BATCHING, step, batch_of):
            update.add(group, sum(batch_of(numbers).tokens for numbers in step))
        update.apply(rate)
    return {name: parameter.detach().clone() for name, parameter in update.model.named_parameters()}


TRAIN = TrainConfig(shards=SHARDS, clip_norm=0.1, weight_decay=0.1, optimizer="adamw", epsilon=1e-6)
MUON = replace(TRAIN, optimizer="muon")
both_optimizers = pytest.mark.parametrize("train", [TRAIN, MUON], ids=["adamw", "muon"])


@both_optimizers
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_number_of_threads_changes_no_bit(threads: int, train: TrainConfig) -> None:
    before = torch.get_num_threads()
    expected = take_steps(sharded(train, dropout=0.1))
    torch.set_num_threads(threads)
    try:
        found = take_steps(sharded(train, at_once=threads, dropout=0.1))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


class Hall:
    """Where processes that are threads of this one meet to exchange vectors."""

    def __init__(self, count: int) -> None:
        self.barrier, self.brought = threading.Barrier(count, timeout=60), dict[int, Tensor]()

    def exchanged(self, number: int, vector: Tensor) -> list[Tensor]:
        self.brought[number] = vector.clone()
        self.barrier.wait()
        found = [self.brought[other] for other in range(self.barrier.parties)]
        self.barrier.wait()
        return found


class ThreadProcesses(Alone):
    """One of several processes, each of which is a thread."""

    def __init__(self, number: int, hall: Hall) -> None:
        self.number, self.count, self.hall = number, hall.barrier.parties, hall
        self.exchange = Exchange(self, Single())

    def all_to_all(self, parts: Tensor) -> Tensor:
        return torch.stack([rows[self.number] for rows in self.hall.exchanged(self.number, parts)])

    def gather(self, own: Tensor, out: Tensor) -> None:
        out.copy_(self.whole(own))

    def add_slices(self, vector: Tensor, out: Tensor) -> None:
        out.copy_(self.exchange.added(vector))

    def all_rows(self, rows: Tensor) -> Tensor:
        return torch.cat(self.hall.exchanged(self.number, rows))

    def gather_slices(self, vector: Tensor) -> None:
        self.exchange.gather(vector.view(self.count, -1)[self.number], vector)

    def whole(self, own: Tensor) -> Tensor:
        return torch.cat(self.hall.exchanged(self.number, own))


@dataclass(frozen=True)
class Ended:
    """What one of several processes has in the end."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]


def by_processes(train: TrainConfig, count: int, steps: int = 3) -> list[Ended]:
    """The steps, computed by several processes; half-way each loads the state that all have saved."""
    hall = Hall(count)
    models = [make_model(dropout=0.1) for _ in range(count)]

    def run(number: int) -> Ended:
        processes, share = ThreadProcesses(number, hall), Share(SHARDS, number, count)
        state = ShardedState(models[number], train, share, processes)
        update = ShardedUpdate(models[number], state.sliced, train, CPU, share, processes)
        take_steps(update, 1)
        state.restore(state.checkpoint({}))
        weights = take_steps(update, steps)
        return Ended(weights, {name: tensor.clone() for name, tensor in state.checkpoint({}).optimizer.items()})

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


@both_optimizers
def test_the_number_of_processes_changes_no_bit(train: TrainConfig) -> None:
    (alone,) = by_processes(train, 1)
    for count in (2, 4):
        ended = by_processes(train, count)
        assert all(torch.equal(one.weights[name], tensor) for one in ended for name, tensor in alone.weights.items())
        assert all(torch.equal(ended[0].optimizer[name], tensor) for name, tensor in alone.optimizer.items())


@both_optimizers
def test_shards_compute_the_plain_step(train: TrainConfig) -> None:
    update = sharded(train)
    model = make_model()
    plain = PlainUpdate(model, make_optimizer(model, train), train, CPU)
    step = [np.arange(9), np.arange(9, 12)]
    for _ in range(3):
        for numbers in step:
            plain.add(batch_of(numbers), sum(batch_of(n).tokens for n in step))
        plain.apply(1e-2)
    found, measured, expected = take_steps(update), update.measured(), plain.measured()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(found[name], weight.detach(), rtol=1e-3, atol=1e-4)
    assert measured.loss == pytest.approx(expected.loss, rel=1e-4)
    assert measured.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-3)


def test_dropout_differs_between_shards_and_steps() -> None:
    same, other = (sharded(TRAIN, dropout=0.5) for _ in range(2))
    other.seed = 7
    losses = []
    for update in (same, other):
        for group in update.shards.work(BATCHING, [np.tile(np.arange(2), 4)], batch_of):
            update.add(group, 1)
        losses += [float(loss[0]) for loss in update.added]
    assert len(set(losses)) == len(losses)


def test_what_is_not_a_number_is_not_applied() -> None:
    update = sharded(TRAIN)
    before = take_steps(update, 1)
    update.measured()
    update.begin(1)
    for group in update.shards.work(BATCHING, [np.arange(8)], batch_of):
        update.add(group, 10)
    update.tree.total()[0] = float("nan")
    update.apply(1e-2)
    assert not update.measured().finite
    assert all(torch.equal(weight, before[name]) for name, weight in update.model.named_parameters())


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_checkpoint_does_not_depend_on_the_number_of_shards(optimizer: Any) -> None:
    """Its names and shapes are those of a run with one shard."""
    train, model = TrainConfig(shards=SHARDS, ema=0.9, optimizer=optimizer), make_model()
    state = ShardedState(model, train, Share(SHARDS), Alone())
    plain = make_model()
    expected = optimizer_tensors(make_optimizer(plain, train), plain)
    saved = state.checkpoint({}).optimizer
    assert {name: one.shape for name, one in saved.items()} == {name: one.shape for name, one in expected.items()}


# --- graphs of a GPU -------------------------------------------------------------------------------------------------

GPU = Device("cuda", bf16=True)
STEADY = TrainConfig(shards=SHARDS, clip_norm=0.1, epsilon=1.0)  # so that what is zero but for rounding stays so


def graphed(train: TrainConfig, device: Device, **model: object) -> ShardedGraphedUpdate:
    network, share = make_model(**model).to(device.torch), Share(SHARDS)
    state = ShardedState(network, train, share, Alone())
    return ShardedGraphedUpdate(network, state.sliced, train, device, share, Alone())


@pytest.fixture
def _without_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run what would be captured, so that the steps of a GPU can be followed on a CPU."""
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(ShardedGraphedUpdate, "_capture", lambda self, run, warm: run)
    if not _survives_bf16():
        pytest.skip("PyTorch's bfloat16 crashes on this CPU")


@pytest.mark.usefixtures("_without_graphs")
def test_the_graphs_compute_the_step_of_shards() -> None:
    update, plain = graphed(STEADY, CPU), sharded(STEADY)
    found = take_steps(update, rate=1.0)
    for name, weight in take_steps(plain, rate=1.0).items():
        torch.testing.assert_close(found[name], weight, rtol=0.05, atol=0.002)  # gradients in bfloat16
    measured, expected = update.measured(), plain.measured()
    assert measured.loss == pytest.approx(expected.loss, rel=0.02)
    assert measured.gradient_norm == pytest.approx(expected.gradient_norm, rel=0.05)
    for master, worker in zip(update.masters, update.workers, strict=True):
        assert torch.equal(master.bfloat16(), worker)


@pytest.mark.usefixtures("_without_graphs")
def test_the_gradient_of_one_batch_can_be_sent_as_bfloat16() -> None:
    update = graphed(STEADY, CPU)
    one, other = batch_of(np.arange(5)), batch_of(np.arange(5, 9))
    update.add([Shard(0, [one])], 16)
    assert torch.equal(update.gradient.bfloat16().float(), update.gradient)
    update.add([Shard(1, [one, other])], 16)  # the sum of two batches is not bfloat16
    assert not torch.equal(update.gradient.bfloat16().float(), update.gradient)


@both_optimizers
@pytest.mark.usefixtures("_without_graphs")
def test_dropout_of_graphs_is_that_of_the_shard(train: TrainConfig) -> None:
    once, again = (take_steps(graphed(train, CPU, dropout=0.3)) for _ in range(2))
    assert all(torch.equal(again[name], weight) for name, weight in once.items())
    before = dict(make_model().named_parameters())
    assert not any(torch.equal(before[name], weight) for name, weight in once.items() if weight.dim() == 2)


@both_optimizers
@pytest.mark.gpu
def test_captured_shards_are_the_same_twice(train: TrainConfig) -> None:
    once, again = (take_steps(graphed(train, GPU, dropout=0.1), 5) for _ in range(2))
    assert all(torch.equal(again[name], weight) for name, weight in once.items())


@pytest.mark.gpu
def test_captured_shards_are_near_the_plain_ones() -> None:
    plain, near = take_steps(sharded(STEADY), rate=1.0), take_steps(graphed(STEADY, GPU), rate=1.0)
    for name, weight in plain.items():
        torch.testing.assert_close(near[name].cpu(), weight, rtol=0.05, atol=0.002)


# --- whole runs ----------------------------------------------------------------------------------------------------


SMALL = """
model.d_model=32 model.d_ff=64 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1
model.dropout=0.1 train.tokens_per_batch=120 train.positions_per_microbatch=64 train.log_every=3 train.validate_every=4
train.checkpoint_every=3 train.average=2 train.learning_rate=3e-3 train.warmup_steps=5 train.shards=4 train.device=cpu
train.schedule=inverse_sqrt
""".split()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Letters to be said backwards."""
    folder, draw, paths = tmp_path_factory.mktemp("reversal"), random.Random(0), {}
    for name, count in (("train", 400), ("valid", 30)):
        words = [[draw.choice("abcdef") for _ in range(draw.randint(2, 6))] for _ in range(count)]
        paths[name] = str(folder / f"{name}.tsv")
        Path(paths[name]).write_text("".join(f"{' '.join(w)}\t{' '.join(reversed(w))}\n" for w in words))
    return paths


Trained = Callable[..., dict[str, str]]


@pytest.fixture
def train_run(pairs: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Trained:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))

    def train(run: str, *settings: str, steps: int = 9) -> dict[str, str]:
        data = {"train": [(pairs["train"],)], "valid": [(pairs["valid"],)]}
        transduce.train(tmp_path / run, **data, settings=[*SMALL, *settings], steps=steps, quiet=True)  # type: ignore[arg-type]
        return {which: read_about(RunFolder(tmp_path / run).weights(which))["sha256"] for which in ("best", "last")}

    return train


def test_a_run_resumes_on_another_number_of_threads_to_the_same_weights(train_run: Trained) -> None:
    more = ("train.ema=0.8", "train.layout=pages")
    straight = train_run("straight", *more, "train.threads=1")
    train_run("resumed", *more, "train.threads=2", steps=5)
    train_run("resumed", *more, "train.threads=1", steps=7)
    assert train_run("resumed", *more, "train.threads=2") == straight


# --- what cannot be combined with shards -----------------------------------------------------------------------------


def test_shards_must_be_a_power_of_two() -> None:
    with pytest.raises(SettingError, match=r"train\.shards = 6: must be a power of two, such as 4"):
        refuse_unsupported(build({"train": {"shards": 6}}))


def test_what_shards_do_not_know_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """They know every choice of today, so one of them is taken away here."""
    monkeypatch.setitem(SUPPORTS.values, "optimizer", ("adam",))
    with pytest.raises(SettingError, match=r'train\.optimizer = "muon": not supported together with train\.shards = 4'):
        refuse_unsupported(build({"train": {"shards": 4, "optimizer": "muon"}}))
    refuse_unsupported(build({"train": {"optimizer": "muon"}}))


def test_a_new_setting_of_training_is_refused_until_it_is_declared() -> None:
    undeclared = {one.name for one in TrainConfig.__dataclass_fields__.values()} - set(SUPPORTS.values)
    assert undeclared == set()
