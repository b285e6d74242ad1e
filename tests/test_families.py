"""What must hold of a model, whatever its family: step by step as all at once, alone as in company, and nothing seen too early."""

import pytest
import torch

from tests.families import MODELS, PACKED, RUNS, make
from transduce.config import FAMILIES
from transduce.model import Model, check_family, kept_activations, training_flops
from transduce.model.checks import CHECKS, SIZE, SOURCES, Check, failures, logits, repeatable, shapes

pytestmark = pytest.mark.numerics

OTHERS = {"transformer", "decoder", "speech"}  # whose runs have tests of their own


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return make(MODELS[request.param])


def test_every_family_is_tested() -> None:
    assert {config.family for config in MODELS.values()} == FAMILIES.keys() - {"decoder", "speech"}
    assert RUNS.keys() == FAMILIES.keys() - OTHERS


@pytest.mark.parametrize("check", [shapes, repeatable, *CHECKS], ids=lambda check: check.__name__)
def test_a_family_passes_the_checks(model: Model, check: Check) -> None:
    assert failures(check, model) == []


@pytest.mark.parametrize("name", RUNS)
def test_a_family_is_checked_from_its_settings(name: str) -> None:
    assert check_family(MODELS[name]) == []


@torch.no_grad()
def test_later_targets_change_no_bit_of_what_is_earlier(model: Model) -> None:
    """Stricter than `check_family`, which allows other people's families some rounding."""
    one, other = (logits(model, SOURCES[:1], [[7, 8, last, 3, 0]]) for last in (4, 5))
    assert torch.equal(one[:, :3], other[:, :3])


def test_every_family_that_packs_is_tested_with_packed_rows() -> None:
    assert {name for name in MODELS if make(MODELS[name]).page_width} == set(PACKED)


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
