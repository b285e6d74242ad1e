"""The checks of shapes that other tests run under find a wrong shape."""

import pytest
import shapes
import torch
from jaxtyping import TypeCheckError

from transduce.model.mingru import scan


def found(calls: int) -> int:
    """How many of these calls with a wrong shape are found."""
    wrong, right, count = torch.ones(1, 2, 3), torch.ones(1, 1, 3), 0
    for _ in range(calls):
        try:
            scan(wrong, right)
        except TypeCheckError:
            count += 1
        except RuntimeError:  # sizes that PyTorch cannot multiply
            pass
    return count


@pytest.fixture(autouse=True)
def _few_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "FIRST", 20)
    monkeypatch.delenv(shapes.ALL, raising=False)
    shapes.begin_test()


def test_first_calls_are_all_checked_and_then_some() -> None:
    assert found(20) == 20
    assert 0.3 * shapes.SHARE < found(400) / 400 < 4 * shapes.SHARE  # a call is asked about more than once


def test_the_full_suite_checks_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shapes.ALL, "1")
    assert found(50) == 50
