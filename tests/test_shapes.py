"""The checks of shapes that other tests run under find a wrong shape."""

import pytest
import torch
from jaxtyping import TypeCheckError
from shapes import ALL, FIRST, SHARE, begin_test

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


def test_first_calls_are_all_checked_and_then_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALL, raising=False)
    begin_test()
    assert found(FIRST) == FIRST
    assert 0.5 * SHARE < found(1_000) / 1_000 < 2 * SHARE


def test_the_full_suite_checks_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALL, "1")
    assert found(FIRST + 100) == FIRST + 100
