"""What a user asks to compare: systems, a test set, metrics, and the test of significance."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from transduce.comparison.significance import SAMPLES, Test
from transduce.comparison.systems import Search
from transduce.errors import SettingError
from transduce.languages import wrong_code
from transduce.metrics import check_tokenizer
from transduce.translator import LoadOptions
from transduce.translator.engines import Say, say_to_stderr

LEAST_SAMPLES = 100


@dataclass(frozen=True, kw_only=True)
class CompareRequest:
    """What to compare, on which test set, and how."""

    systems: Sequence[str]  # run folders, files of outputs, or NAME=RUN,RUN,...; the baseline first
    source: str | Path
    references: Sequence[str | Path] = ()
    labels: str | Path = ""  # a file with a label for each line
    language: str = ""  # of the outputs; by default that of the first run
    tokenize: str = ""  # BLEU's tokenizer; by default that of the language
    metrics: Sequence[str] = ()  # by default those of the task
    test: Test = "bootstrap"
    samples: int | None = None  # None: sacreBLEU's default
    merge: Literal["auto", "separate", "merged"] = "auto"
    columns: Sequence[str] = ()  # of a table
    search: Search = field(default_factory=Search)
    options: LoadOptions = field(default_factory=LoadOptions)
    say: Say = say_to_stderr

    def __post_init__(self) -> None:
        if self.test not in SAMPLES:
            raise SettingError(f"test = {self.test}: choose {' or '.join(SAMPLES)}")
        if self.language and (problem := wrong_code(self.language)):
            raise SettingError(problem)
        if self.tokenize:
            check_tokenizer(self.tokenize)
        if self.samples is not None and self.samples < LEAST_SAMPLES:
            raise SettingError(f"samples = {self.samples}: must be at least {LEAST_SAMPLES}")

    @property
    def number_of_samples(self) -> int:
        return SAMPLES[self.test] if self.samples is None else self.samples
