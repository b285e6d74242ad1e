"""What must hold of a model, whatever its family: step by step as all at once, alone as in company, and nothing seen too early."""

import pytest
import torch

from tests.families import MODELS, PACKED, PAD, RUNS, SIZE, SOURCES, TARGETS, logits, make, shifted
from transduce.config import FAMILIES
from transduce.model import IGNORED, Model, Tokens, kept_activations, training_flops

pytestmark = pytest.mark.numerics

OTHERS = {"transformer", "decoder", "speech"}  # whose runs have tests of their own


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return make(MODELS[request.param])


def test_every_family_is_tested() -> None:
    assert {config.family for config in MODELS.values()} == FAMILIES.keys() - {"decoder", "speech"}
    assert RUNS.keys() == FAMILIES.keys() - OTHERS


@torch.no_grad()
def test_step_by_step_is_all_at_once(model: Model) -> None:
    at_once, inputs = logits(model, SOURCES, TARGETS), shifted(TARGETS)
    state = model.begin(model.encode(Tokens.padded(SOURCES, PAD)))
    for position in range(inputs.width):
        real = inputs.real[:, position]
        stepped = model.step(inputs.ids[:, position], state)
        torch.testing.assert_close(stepped[real], at_once[real, position], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_state_keeps_the_rows_that_are_selected(model: Model) -> None:
    state = model.begin(model.encode(Tokens.padded(SOURCES, PAD)))
    first = model.step(torch.full((3,), PAD), state)
    rows = torch.tensor([2, 2, 0])
    again = model.step(torch.tensor([5, 6, 7]), state.select(rows))
    other = model.begin(model.encode(Tokens.padded([SOURCES[row] for row in rows], PAD)))
    torch.testing.assert_close(model.step(torch.full((3,), PAD), other), first[rows], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model.step(torch.tensor([5, 6, 7]), other), again, atol=1e-5, rtol=1e-5)


def test_a_sentence_alone_is_the_sentence_in_a_batch(model: Model) -> None:
    together = logits(model, SOURCES, TARGETS)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        alone = logits(model, [source], [target])[0]
        torch.testing.assert_close(alone, together[row, : len(target)], atol=1e-5, rtol=1e-5)


def test_later_targets_change_nothing_earlier(model: Model) -> None:
    one, other = (logits(model, SOURCES[:1], [[7, 8, last, 3, 0]]) for last in (4, 5))
    assert torch.equal(one[:, :3], other[:, :3])
    assert (one[:, 3] - other[:, 3]).abs().max() > 1e-5


def test_every_source_token_matters(model: Model) -> None:
    """To some position of a target that is as long as the source."""
    target = [[7, 8, 9, 0]]
    for position in range(3):
        changed = [2 if at == position else token for at, token in enumerate(SOURCES[0])]
        assert (logits(model, [changed], target) - logits(model, SOURCES[:1], target)).abs().max() > 1e-5


@pytest.mark.parametrize("name", PACKED)
@torch.no_grad()
def test_packing_is_invisible(name: str) -> None:
    """Families that share rows on GPUs compute every sentence as if it were alone, whatever its neighbours are."""
    model = make(MODELS[name])
    inputs = [[PAD, *target[:-1]] for target in TARGETS]
    packed = model.decode(Tokens.packed([inputs], PAD), model.encode(Tokens.packed([SOURCES], PAD)))[0]
    for source, target, begin in zip(SOURCES, inputs, (0, 3, 8), strict=True):
        alone = model.decode(Tokens.padded([target], PAD), model.encode(Tokens.padded([source], PAD)))[0]
        torch.testing.assert_close(packed[begin : begin + len(target)], alone, atol=1e-4, rtol=1e-4)


def test_every_family_that_packs_is_tested_with_packed_rows() -> None:
    assert {name for name in MODELS if make(MODELS[name]).page_width} == set(PACKED)


def test_every_weight_gets_a_gradient(model: Model) -> None:
    labels = Tokens.padded(TARGETS, IGNORED).ids
    model.train()
    model.loss(Tokens.padded(SOURCES, PAD), shifted(TARGETS), labels, 0.1).minimised.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.zero_grad()
    model.eval()


def test_matrices_are_those_inside_the_layers(model: Model) -> None:
    matrices = model.matrices()
    assert matrices
    assert all(sum(heights) == matrix.shape[0] for matrix, heights in matrices.items())
    tables = (model.output_embedding.weight, model.source_embedding.weight, model.target_embedding.weight)  # type: ignore[union-attr]
    assert not any(matrix is table for matrix in matrices for table in tables)
    positions = [parameter for name, parameter in model.named_parameters() if "positions" in name]
    assert not any(matrix is table for matrix in matrices for table in positions)


def test_twice_the_tokens_cost_twice_as_much(model: Model) -> None:
    config = model.config
    once, twice = (training_flops(config, SIZE - 1, n * 50, n * 60, 10.0) for n in (1, 2))
    assert twice == pytest.approx(2 * once)
    assert once > 0
    assert kept_activations(config, 20, 20, True) >= kept_activations(config, 20, 20, False) > 0
