"""The same run gives the same weights on a GPU too, whatever the family: nothing may add up in the order of the hardware."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import transduce
from transduce.checkpoint import RunFolder, read_about
from transduce.config import TrainConfig, TransformerConfig
from transduce.data.batches import Batch
from transduce.device import choose_device
from transduce.model import Tokens, make_model
from transduce.model.deterministic_attention import _Deterministic, deterministic_algorithms, deterministic_attention
from transduce.training.optimizer import make_optimizer
from transduce.training.update import GraphedUpdate

SETTINGS = {
    "train.steps": 8, "train.tokens_per_batch": 8_000, "train.validate_lines": 4, "train.validate_every": 8, "train.checkpoint_every": 8,
    "train.average": 0, "model.dropout": 0.1, "data.vocabulary_size": 300, "data.joint": True,
}  # fmt: skip
MODELS = [
    {"model.positions": "rotary"},
    {"model.window": 3},
    {"model.attention": "additive"},
    *({"model.family": family} for family in ("ff", "seq2seq", "rnn", "gnmt", "bytenet", "convs2s", "moe")),
]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random words: a text, and the same with each line backwards."""
    folder, draw = tmp_path_factory.mktemp("lines"), np.random.default_rng(1)
    words = ["".join(draw.choice(list("abcdefghij"), draw.integers(2, 6))) for _ in range(400)]
    rows = [list(draw.choice(words, draw.integers(4, 30))) for _ in range(2_000)]
    for name, order in (("source", 1), ("target", -1)):
        (folder / name).write_text("".join(" ".join(row[::order]) + "\n" for row in rows), encoding="utf-8")
    return folder


def weights(run: Path) -> str:
    return read_about(RunFolder(run).weights("last"))["sha256"]


@pytest.mark.gpu
@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(*model.values()))
def test_a_run_on_a_gpu_repeats_the_same_weights(model: dict[str, str | int], lines: Path, tmp_path: Path) -> None:
    files = str(lines / "source"), str(lines / "target")
    for name in ("one", "other"):
        transduce.train(tmp_path / name, train=files, settings=SETTINGS | model, quiet=True)
    assert weights(tmp_path / "one") == weights(tmp_path / "other")


@pytest.mark.gpu
@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_a_language_model_on_a_gpu_repeats_the_same_weights(positions: str, lines: Path, tmp_path: Path) -> None:
    settings = SETTINGS | {"model.context": 512, "model.positions": positions}
    for name in ("one", "other"):
        transduce.train(tmp_path / name, text=str(lines / "source"), settings=settings, quiet=True)
    assert weights(tmp_path / "one") == weights(tmp_path / "other")


@pytest.mark.gpu
@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_replays_of_a_captured_step_repeat_the_same_gradient(positions: str) -> None:
    """Of 70 rows and 4 heads: more tiles than a GPU has processors, so programs of attention have a second one."""
    config, train = TransformerConfig(d_model=256, num_heads=4, norm="pre", positions=positions), TrainConfig()
    model = make_model(config, 90, 90).to("cuda")
    column = torch.arange(128).repeat(70, 1).int()
    tokens = Tokens(torch.randint(89, column.shape).int(), column % 16, column // 16 + 1)
    batch = Batch(tokens, tokens, tokens.ids).pinned()
    update = GraphedUpdate(model, make_optimizer(model, train), train, choose_device("cuda"))
    gradients = []
    for _ in range(100):
        update.begin(1)
        update.add(batch, column.numel())
        update.forget()
        gradients.append(update.gradient.clone())
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


@pytest.mark.numerics
def test_deterministic_attention_has_the_results_and_gradients_of_attention() -> None:
    inputs = [torch.randn(2, 3, 5, 8, requires_grad=True) for _ in range(3)]
    mask = torch.rand(2, 1, 5, 5) < 0.7
    mask[..., 0] = True
    plain = scaled_dot_product_attention(*inputs, mask, scale=0.3)
    ours = _Deterministic.apply(lambda *given: deterministic_attention(*given, mask, scale=0.3), *inputs)
    torch.testing.assert_close(ours, plain)
    factors = torch.randn_like(plain)
    for one, other in zip(*(torch.autograd.grad(out, inputs, factors) for out in (ours, plain)), strict=True):
        torch.testing.assert_close(one, other)


def test_deterministic_algorithms_are_chosen_inside_only() -> None:
    assert not torch.are_deterministic_algorithms_enabled()
    with deterministic_algorithms():
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
