"""Optimizers against torch's own or a slow transcription of what was published, and their state: saved and gone on from."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from transduce.config import TrainConfig, TransformerConfig
from transduce.errors import DamagedFile
from transduce.model import Transformer
from transduce.training.muon import COEFFICIENTS, orthogonalised
from transduce.training.optimizer import load_optimizer, make_optimizer, optimizer_tensors

pytestmark = pytest.mark.numerics

KINDS = ["adam", "adamw", "muon"]
TINY = TransformerConfig(
    d_model=8, d_ff=20, num_heads=2, d_v=3, num_encoder_layers=1, num_decoder_layers=2, activation="swiglu"
)
SIZE = 11
RATES = [0.002, 0.004, 0.006, 0.006, 0.006, 0.006]


def make(seed: int = 0, dtype: torch.dtype = torch.float64) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(TINY, SIZE, SIZE).to(dtype)


def settings(kind: str) -> TrainConfig:
    return TrainConfig(optimizer=kind, weight_decay=0.1, schedule="constant")  # type: ignore[arg-type]


def gradients(model: nn.Module, step: int) -> dict[str, Tensor]:
    """Any numbers, different at every step, that depend on the weights."""
    torch.manual_seed(step)
    return {name: torch.randn_like(p) + p.detach() for name, p in model.named_parameters()}


def take_steps(
    model: Transformer, optimizer: torch.optim.Optimizer, first: int, last: int, as_tensor: bool = False
) -> None:
    for step in range(first, last):
        for name, gradient in gradients(model, step).items():
            model.get_parameter(name).grad = gradient
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(RATES[step]) if as_tensor else RATES[step]
        optimizer.step()
        optimizer.zero_grad()


def clones(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def decays(name: str, parameter: Tensor) -> float:
    return 0.1 if parameter.dim() == 2 and "embedding" not in name else 0.0


# --- against what was published --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_adam_is_torchs(kind: str) -> None:
    """Torch's plainest code path, one parameter at a time, with the decay where it belongs."""
    model, other = make(), make()
    take_steps(model, make_optimizer(model, settings(kind)), 0, 6)
    torchs = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
    groups = [{"params": [p], "weight_decay": decays(name, p)} for name, p in other.named_parameters()]
    take_steps(other, torchs(groups, lr=0.0, betas=(0.9, 0.98), eps=1e-9, foreach=False), 0, 6)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, other.get_parameter(name), atol=1e-7, rtol=1e-6)


def test_a_rate_of_zero_moves_nothing() -> None:
    for kind in KINDS:
        model, other = make(), make()
        optimizer = make_optimizer(model, settings(kind))
        for name, gradient in gradients(model, 0).items():
            model.get_parameter(name).grad = gradient
        optimizer.step()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter, other.get_parameter(name))


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 16, 64), (1, 5, 40)])
def test_newton_schulz_keeps_directions_and_evens_out_lengths(shape: tuple[int, int, int]) -> None:
    """U S V^T becomes U S' V^T: the singular values S' near 1, U and V those of the singular value decomposition."""
    torch.manual_seed(1)
    u, _, v = torch.linalg.svd(torch.randn(*shape, dtype=torch.float64), full_matrices=False)
    lengths = torch.logspace(0, -1, shape[1], dtype=torch.float64)
    found = orthogonalised(u * lengths @ v)
    aligned = u.mT @ found @ v.mT  # S', if directions are the same: diagonal
    values = aligned.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(aligned, torch.diag_embed(values), atol=1e-9, rtol=0)
    assert ((values > 0.6) & (values < 1.3)).all()


def test_muon_is_a_slow_loop_over_single_matrices() -> None:
    model, other = make(), make()
    take_steps(model, make_optimizer(model, settings("muon")), 0, 6)
    matrices = {name: p for name, p in other.named_parameters() if p.dim() == 2 and "embedding" not in name}
    rest = [p for name, p in other.named_parameters() if name not in matrices]
    adamw = torch.optim.AdamW(rest, lr=0.0, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, foreach=False)
    momentum = {name: torch.zeros_like(p) for name, p in matrices.items()}
    for step, rate in enumerate(RATES):
        now = gradients(other, step)
        for name, parameter in other.named_parameters():
            parameter.grad = now[name]
        for name, matrix in matrices.items():
            momentum[name] = 0.95 * momentum[name] + 0.05 * now[name]
            nesterov = 0.05 * now[name] + 0.95 * momentum[name]
            parts = [one_by_one(part) for part in nesterov.split(heights(name, matrix))]
            with torch.no_grad():
                matrix.copy_((1 - rate * 0.1) * matrix - rate * torch.cat(parts))
        adamw.param_groups[0]["lr"] = rate
        adamw.step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, other.get_parameter(name), atol=1e-7, rtol=1e-6)


def heights(name: str, matrix: Tensor) -> list[int]:
    """Queries and keys of 2 heads of 4, values of 2 heads of 3; the gate and the value of SwiGLU."""
    return [8, 8, 6] if "stacked" in name else [20, 20] if "inner" in name else [matrix.shape[0]]


def one_by_one(matrix: Tensor) -> Tensor:
    """Five rounds of aX + b(XX^T)X + c(XX^T)^2 X on a matrix as it stands, scaled to Adam's root mean square."""
    a, b, c = COEFFICIENTS
    x = matrix / matrix.norm()
    for _ in range(5):
        square = x @ x.T
        x = a * x + b * square @ x + c * square @ square @ x
    return 0.2 * math.sqrt(max(matrix.shape)) * x


def test_muon_takes_the_matrices_of_the_layers_only() -> None:
    model = make()
    found = model.matrices()
    names = {name for name, p in model.named_parameters() if p in found}
    assert names == {n for n, p in model.named_parameters() if p.dim() == 2 and n.startswith(("encoder.", "decoder."))}
    assert len(names) == 4 + 2 * 6  # stacked, output, inner, outer; a decoder layer has a second attention
    assert all(sum(found[model.get_parameter(name)]) == model.get_parameter(name).shape[0] for name in names)


def test_an_update_of_muon_is_as_large_as_one_of_adam() -> None:
    """Root mean square about 0.2 of the learning rate, whatever the shape, so that one rate serves both."""
    model = make()
    optimizer = make_optimizer(model, TrainConfig(optimizer="muon", schedule="constant"))
    before = clones(dict(model.named_parameters()))
    take_steps(model, optimizer, 0, 1)
    for name, parameter in model.named_parameters():
        if parameter in model.matrices():
            moved = (parameter - before[name]).square().mean().sqrt() / RATES[0]
            assert 0.12 < moved < 0.26, name


# --- what every optimizer must do ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_save_load_and_go_on_is_never_having_stopped(kind: str) -> None:
    straight, stopped, resumed = (make(dtype=torch.float32) for _ in range(3))
    whole = make_optimizer(straight, settings(kind))
    take_steps(straight, whole, 0, 6)
    first = make_optimizer(stopped, settings(kind))
    take_steps(stopped, first, 0, 3)
    saved = clones(optimizer_tensors(first, stopped))
    second = make_optimizer(resumed, settings(kind))
    with torch.no_grad():
        for name, parameter in stopped.named_parameters():
            resumed.get_parameter(name).copy_(parameter)
    load_optimizer(second, resumed, saved)
    take_steps(resumed, second, 3, 6)
    for name, parameter in straight.named_parameters():
        assert torch.equal(parameter, resumed.get_parameter(name)), name
    for name, tensor in optimizer_tensors(whole, straight).items():
        assert torch.equal(tensor, optimizer_tensors(second, resumed)[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_the_rate_may_be_a_tensor(kind: str) -> None:
    one, other = make(dtype=torch.float32), make(dtype=torch.float32)
    take_steps(one, make_optimizer(one, settings(kind)), 0, 4)
    take_steps(other, make_optimizer(other, settings(kind)), 0, 4, as_tensor=True)
    for name, parameter in one.named_parameters():
        torch.testing.assert_close(parameter, other.get_parameter(name), atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_asks_the_host_for_nothing(kind: str) -> None:
    """On tensors without values, where reading one is an error: what waits for the device cannot be captured."""
    with FakeTensorMode():
        model = Transformer(TINY, SIZE, SIZE)
        optimizer = make_optimizer(model, settings(kind))
        with pytest.raises(DataDependentOutputException):
            float(next(model.parameters()).sum())
        take_steps(model, optimizer, 0, 2, as_tensor=True)
        take_steps(model, optimizer, 2, 3)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_captured_step_is_an_ordinary_one(kind: str) -> None:
    model, other = make(dtype=torch.float32).cuda(), make(dtype=torch.float32).cuda()
    ordinary, captured = (make_optimizer(m, settings(kind)) for m in (model, other))
    rate = torch.zeros((), device="cuda")
    for parameter in other.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for group in captured.param_groups:
        group["lr"] = rate
    before = clones({**dict(other.named_parameters()), **optimizer_tensors(captured, other)})
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())  # also for the copies, which a busy GPU may not have made yet
    with torch.cuda.stream(side):
        captured.step()  # kernels and workspaces are made before the capture, and undone
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.step()
    with torch.no_grad():
        for name, tensor in {**dict(other.named_parameters()), **optimizer_tensors(captured, other)}.items():
            tensor.copy_(before[name])
    for step in range(6):
        now = gradients(other, step)
        for name, parameter in other.named_parameters():
            assert parameter.grad is not None
            parameter.grad.copy_(now[name])
        rate.fill_(RATES[step])
        graph.replay()
        take_steps(model, ordinary, step, step + 1)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, other.get_parameter(name), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_state_stays_where_it_was_allocated(kind: str) -> None:
    """Before the first step, and in place from then on, loading included: a captured graph holds these addresses."""
    model = make()
    optimizer = make_optimizer(model, settings(kind))
    before = {name: tensor.data_ptr() for name, tensor in optimizer_tensors(optimizer, model).items()}
    take_steps(model, optimizer, 0, 2)
    load_optimizer(optimizer, model, clones(optimizer_tensors(optimizer, model)))
    assert before == {name: tensor.data_ptr() for name, tensor in optimizer_tensors(optimizer, model).items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_lacks_something_is_damaged(kind: str) -> None:
    model = make()
    optimizer = make_optimizer(model, settings(kind))
    tensors = clones(optimizer_tensors(optimizer, model))
    gone = sorted(tensors)[0]
    del tensors[gone]
    with pytest.raises(DamagedFile, match=f"the optimizer's state lacks {gone}"):
        load_optimizer(optimizer, model, tensors)


@pytest.mark.parametrize("kind", KINDS)
def test_the_pad_row_stays_zero(kind: str) -> None:
    """Its gradient is zero, and no optimizer makes something of that."""
    model = make()
    optimizer = make_optimizer(model, settings(kind))
    for name, gradient in gradients(model, 0).items():
        gradient[-1] = 0 if "embedding" in name else gradient[-1]
        model.get_parameter(name).grad = gradient
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    optimizer.step()
    assert not model.get_parameter("source_embedding.weight")[-1].any()
