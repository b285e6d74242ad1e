"""Which groups of tests were skipped, and what would run them. Every run of pytest ends with this list.

The environment variable TRANSDUCE_REQUIRE names groups that must run: the run fails if any of their tests is skipped.
CI sets it (.ci/run).
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

REQUIRE = "TRANSDUCE_REQUIRE"


@dataclass(frozen=True)
class Group:
    """Tests that need the same thing. The reason they are skipped for tells which group they belong to."""

    name: str
    reason: str  # a regular expression
    remedy: str


GROUPS = [
    Group("browser", "chromium|playwright", "apt-get install chromium; pip install playwright"),
    Group("data", "TRANSDUCE_DATA", "set TRANSDUCE_DATA to the folder of public corpora"),
    Group("ct2", r"ctranslate2|ct2_engine|\[ct2\]", "pip install 'transduce[ct2]'"),
    Group("hf", r"transformers|\[hf\]", "pip install 'transduce[hf]'"),
    Group("onnx", "onnx", "pip install 'transduce[onnx]'"),
    Group("parquet", "pyarrow|pandas", "pip install 'transduce[dev]'"),
    Group("ray", r"'ray'", "pip install 'transduce[ray]'"),
    Group("server", "fastapi|httpx|granian|prometheus|libretranslatepy|schemathesis", "pip install 'transduce[dev]'"),
    Group("notebook", "nbclient|nbformat|ipykernel", "pip install 'transduce[dev]'"),
    Group("speech", "soundfile|jiwer", "pip install 'transduce[dev]'"),
    Group("detect", "lingua", "pip install 'transduce[detect]'"),
    Group("triton", "triton", "pip install triton, on Linux"),
    Group("gpu", "needs a GPU|marked gpu", "on a machine with a CUDA device: pytest -m gpu"),
    Group(
        "deploy",
        "nginx|shellcheck|docker-compose|kubernetes_validate",
        "apt-get install nginx docker-compose; pip install 'transduce[dev]'",
    ),
    Group("slow", "marked slow", "make test-full"),
    Group("system", "this system|Linux|root|there is a GPU", "another operating system, user or machine"),
]
OTHER = Group("other", "", "see the reasons: pytest -rs")
NAMES = [group.name for group in GROUPS]


def group_of(reason: str) -> Group:
    return next((group for group in GROUPS if re.search(group.reason, reason)), OTHER)


def required(text: str) -> set[str]:
    """Parse the value of TRANSDUCE_REQUIRE, and refuse unknown names."""
    names = {name.strip() for name in text.split(",") if name.strip()}
    if unknown := names - set(NAMES):
        raise ValueError(f"{REQUIRE}: no group {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    return names


@dataclass(frozen=True)
class Skips:
    """How many tests of each group were skipped."""

    counts: Counter[str]

    @staticmethod
    def of(reasons: Iterable[str]) -> "Skips":
        return Skips(Counter(group_of(reason).name for reason in reasons))

    def lines(self) -> list[str]:
        """One line for each group that was skipped."""
        found = [(group, self.counts[group.name]) for group in [*GROUPS, OTHER] if self.counts[group.name]]
        return [f"{group.name}: {n} test{'s' * (n > 1)} skipped. To run: {group.remedy}" for group, n in found]

    def missing(self, names: set[str]) -> list[str]:
        """The groups among `names` of which at least one test was skipped."""
        return [name for name in NAMES if name in names and self.counts[name]]
