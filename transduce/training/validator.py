"""The validator of a run: validates its model on as many lines as the budget allows, and says what decides the rank.

Knows the run's data and its clock; which weights are in the model, and what follows from the result, is the loop's matter.
"""

import time
from dataclasses import replace

from transduce.training.clock import Clock
from transduce.training.feed import TrainingData
from transduce.training.processes import Processes
from transduce.training.ranking import decider
from transduce.training.validation import LOSS_PAIRS, ValidationResult, describe_validation, validate
from transduce.translator import Translator
from transduce.translator.evaluation import TestSet


class Validator:
    """Validates the current weights of the model."""

    def __init__(self, translator: Translator, data: TrainingData, clock: Clock, processes: Processes) -> None:
        self.translator, self.data, self.clock, self.processes = translator, data, clock, processes

    def validate(self, lines: int = 0) -> ValidationResult:
        """The results on so many lines; 0: on all, or on as many as a budget in minutes allows."""
        begun, train = time.perf_counter(), self.data.config.train
        texts, limit = self._lines(lines)
        valid, processes = self.data.valid, self.processes
        validation = validate(self.translator, valid, texts, limit, blocks=train.shards, processes=processes)
        self.clock.validated(time.perf_counter() - begun)
        if validation.decider == "loss":  # a language model has no other metric
            return validation
        by = decider(train, len(texts.sources), len(self.data.valid_texts.sources))
        return replace(validation, decider=by)

    def describe(self) -> str:
        """How many lines a validation scores, and which figure chooses the best weights."""
        return describe_validation(self.data, *self._lines())

    def _lines(self, lines: int = 0) -> tuple[TestSet, int]:
        """The lines that a validation translates, and the limit of pairs for its loss; 0: all of them."""
        plan = self.clock.plan
        if plan is None:
            return self.data.valid_texts, 0
        lines = lines or plan.lines
        return self.data.valid_texts.first(lines), LOSS_PAIRS * lines
