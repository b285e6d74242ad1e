"""Checks of the shapes that the model's annotations name, in the calls that tests make.

In models as small as those of tests, a check takes as long as what it checks. So every call is checked until a test has made
some, and then a tenth of them, drawn at random: the later steps of a training repeat the shapes of the first. `make test-full`
checks every call.
"""

import os
import random
from pathlib import Path

import jaxtyping

MODEL = Path(__file__).parents[1] / "transduce" / "model"
ALL = "TRANSDUCE_CHECK_ALL_SHAPES"  # in the environment, as `make test-full` sets it
FIRST = 1_500  # calls of a test that are checked: some twenty forward passes
SHARE = 0.1  # of the calls after them


class Sampled(type(jaxtyping.config)):  # type: ignore[misc]
    """The settings of jaxtyping, which it reads in every call: whether to check this one."""

    off = False
    calls = 0
    draw = random.Random(1)

    @property
    def jaxtyping_disable(self) -> bool:
        self.calls += 1
        return self.off or (self.calls > FIRST and ALL not in os.environ and self.draw.random() >= SHARE)

    @jaxtyping_disable.setter
    def jaxtyping_disable(self, value: bool) -> None:
        self.off = value


def check_shapes() -> None:
    """Have modules of the model that are imported from now on check their shapes."""
    jaxtyping.config.__class__ = Sampled
    names = [path.stem for path in MODEL.glob("[a-z]*.py")] + ["convolutional"]
    jaxtyping.install_import_hook([f"transduce.model.{name}" for name in names], "beartype.beartype")


def begin_test() -> None:
    """Check every call again, until there were `FIRST`."""
    jaxtyping.config.calls = 0  # type: ignore[attr-defined]
