"""The training state: parameters, buffers, optimizer and moving average are saved and restored together."""

from pathlib import Path

import pytest
import torch
from torch import nn

from transduce.checkpoint import Tensors, average, read_tensors, write_tensors
from transduce.derived.averaging import _mean
from transduce.training.state import TrainingState

pytestmark = pytest.mark.numerics


class Normalised(nn.Module):
    """A small network with a BatchNorm, whose running statistics are buffers and no parameters."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


def make(decay: float = 0.0) -> TrainingState:
    model = Normalised()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for parameter in model.parameters():
        optimizer.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
    return TrainingState(model, optimizer, decay)


def take_steps(state: TrainingState, first: int, last: int) -> None:
    model = state.model.train()
    assert isinstance(model, Normalised)
    for step in range(first, last):
        torch.manual_seed(step)
        model.norm(model.linear(torch.randn(8, 3))).square().sum().backward()
        state.optimizer.step()
        state.optimizer.zero_grad()
        state.update_average()


def clones(tensors: Tensors) -> Tensors:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def same(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("decay", [0.0, 0.9], ids=["plain", "moving average"])
def test_a_restored_state_continues_as_if_it_had_never_stopped(decay: float) -> None:
    whole, before, after = make(decay), make(decay), make(decay)
    take_steps(whole, 0, 6)
    take_steps(before, 0, 3)
    saved = before.checkpoint({})
    assert {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"} < saved.weights.keys()
    assert "scratch" not in saved.weights
    after.restore(saved)
    take_steps(after, 3, 6)
    assert same(after.trained, whole.trained)
    assert same(after.kept, whole.kept)
    assert float(after.trained["norm.running_mean"].abs().sum()) > 0
    assert int(after.kept["norm.num_batches_tracked"]) == 6


def test_a_state_survives_files(tmp_path: Path) -> None:
    state = make(0.9)
    take_steps(state, 0, 2)
    write_tensors(tmp_path / "weights.safetensors", state.kept)
    assert same(read_tensors(tmp_path / "weights.safetensors"), state.kept)


def test_the_moving_average_averages_numbers_and_copies_counters() -> None:
    state = make(0.75)
    take_steps(state, 0, 1)
    first = clones(state.trained)
    take_steps(state, 1, 2)
    mean = first["norm.running_var"].lerp(state.trained["norm.running_var"], 0.25)
    torch.testing.assert_close(state.kept["norm.running_var"], mean)
    assert state.kept["norm.num_batches_tracked"].dtype == torch.int64
    assert int(state.kept["norm.num_batches_tracked"]) == 2


def test_averages_of_files_and_models_copy_counters(tmp_path: Path) -> None:
    files, tensors, state = [], [], make()
    for step in range(2):
        take_steps(state, step, step + 1)
        tensors.append(clones(state.trained))
        files.append(tmp_path / f"{step}.safetensors")
        write_tensors(files[-1], tensors[-1])
    of_files, of_models = average(files), _mean(tensors)
    mean = (tensors[0]["norm.running_var"] + tensors[1]["norm.running_var"]) / 2
    torch.testing.assert_close(of_files["norm.running_var"], mean)
    torch.testing.assert_close(of_models["norm.running_var"], mean)
    assert of_files["norm.num_batches_tracked"].dtype == of_models["norm.num_batches_tracked"].dtype == torch.int64
    assert int(of_files["norm.num_batches_tracked"]) == 2


def test_without_a_moving_average_the_trained_weights_are_kept() -> None:
    state = make()
    take_steps(state, 0, 1)
    assert same(state.kept, state.trained)
    assert not any(name.startswith("trained.") for name in state.checkpoint({}).optimizer)


def test_the_model_has_its_own_weights_again_whatever_happens() -> None:
    state = make(0.9)
    take_steps(state, 0, 3)
    own = clones(state.trained)

    def fail() -> None:
        with state.holding_kept():
            assert same(state.trained, state.average)
            assert not same(state.trained, own)
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fail()
    assert same(state.trained, own)
