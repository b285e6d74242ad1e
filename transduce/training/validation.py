"""Validation of the current weights: loss, perplexity, the metrics of the task, and a few sample translations."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from transduce.config import Config, TrainConfig
from transduce.data import TextWindows
from transduce.data.batches import Ids, Pairs, in_order, make_batch
from transduce.metrics import Score, Scores
from transduce.text import Vocabulary
from transduce.training.feed import TrainingData
from transduce.training.loss import batch_loss
from transduce.training.processes import Alone, Processes
from transduce.training.ranking import Decider, decider, described, is_better, lacks_points, rank
from transduce.translator import Translator
from transduce.translator.evaluation import TestSet, score_texts

POSITIONS = 8_192  # in a padded validation batch
TIMES, MORE = 2, 10  # an output may have 2 times as many tokens as its longest reference, plus 10
LOSS_PAIRS = 4  # with a budget in minutes: pairs used for the loss per line that a validation translates


@dataclass(frozen=True)
class SampleOutput:
    """A source line with its output and its reference."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class ValidationResult:
    """The results of one validation."""

    loss: float  # cross-entropy per target token, without smoothing
    scores: Scores
    samples: list[SampleOutput]
    outputs_at_limit: int = 0  # outputs that reached the length limit, and were probably cut there
    lines: int = 0  # translated lines, with greedy search
    all_lines: int = 0  # of the validation data
    counts: Mapping[str, list[int]] = field(default_factory=dict)  # by what the model counts, such as tokens of experts
    of_recordings: bool = False  # whether the sources of samples name recordings
    with_features: bool = False  # whether the sources of samples end in features, as in `gehen ;V;PST`
    decider: Decider = "metric"  # of which weights are better

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 100.0))

    @property
    def rank(self) -> float:
        """Higher is better."""
        return rank(self.decider, self.scores.main, self.loss)

    def is_better_than(self, best_rank: float) -> bool:
        return is_better(self.decider, self.scores.main, self.loss, best_rank)

    @property
    def lacks_points(self) -> bool:
        """Whether the loss decides the rank because the main score is too near its worst value."""
        return lacks_points(self.decider, self.scores.main)

    @property
    def by_loss(self) -> bool:
        """Whether the loss, not the main score, decides the rank."""
        return self.decider == "loss" or self.lacks_points

    @property
    def deciding(self) -> str:
        """The figure that decides the rank, as it is printed."""
        return f"loss {self.loss:.4f}" if self.by_loss else str(self.scores.main)

    @property
    def decided_by(self) -> str:
        """The name of that figure."""
        return "loss" if self.by_loss else self.scores.main.name


def main_metric(train: TrainConfig) -> str:
    """The metric that `train.best_metric` names; "" for `auto` and `loss`."""
    return "" if train.best_metric in ("auto", "loss") else train.best_metric


def perfect_score(config: Config, texts: TestSet) -> Score:
    """The main score of outputs that equal their references: it has the name and the direction of the metric."""
    few = texts.first(1)
    outputs = [references[0] for references in few.references]
    return score_texts(outputs, few, config, ter=False, main=main_metric(config.train)).main


def share_measured(windows: TextWindows, limit: int) -> float:
    """The share of the windows of a text that a validation with this limit predicts."""
    return min(1.0, limit / len(windows.target_lengths)) if limit else 1.0


def describe_validation(data: TrainingData, texts: TestSet, limit: int) -> str:
    """How many lines a validation scores, why not all, and which figure chooses the best weights."""
    train, whole = data.config.train, data.valid_texts
    to_keep = f"to keep to {train.minutes:g} minute{'s' * (train.minutes != 1)}"
    if isinstance(data.valid, TextWindows):
        windows = len(data.valid.target_lengths)
        predicted = _part(round(windows * share_measured(data.valid, limit)), windows, "windows of the text", to_keep)
        return f"each validation predicts {predicted}; the best weights are chosen by loss"
    lines = len(texts.sources)
    why = to_keep if lines < len(whole.sources) else "as train.validate_lines says"
    chosen = described(decider(train, lines, len(whole.sources)), perfect_score(data.config, texts))
    scored = _part(lines, texts.all_lines, "lines", why)
    return f"each validation scores {scored}; the best weights are chosen by {chosen}"


def _part(count: int, whole: int, what: str, why: str) -> str:
    return f"all {whole:,} {what}" if count >= whole else f"{count:,} of {whole:,} {what}, {why}"


def time_validation(translator: Translator, pairs: Pairs, texts: TestSet, loss_pairs: int) -> float:
    """Seconds to validate these lines, and the loss of so many pairs, with a model that has learned when to stop."""
    begun = time.perf_counter()
    if texts.sources:
        limits = reference_lengths(texts, translator.vocabularies.target)
        request = translator.request(beam=1, log_probs="none")
        outputs = [translation.text for translation in translator.stream(texts.sources, request, at_most=limits)]
        score_texts(outputs, texts, translator.config, ter=False, main=main_metric(translator.config.train))
    cross_entropy(translator, pairs, loss_pairs)
    return time.perf_counter() - begun


def validate(
    translator: Translator,
    pairs: Pairs,
    texts: TestSet,
    limit: int = 0,
    samples: int = 3,
    *,
    blocks: int = 1,
    processes: Processes = Alone(),  # noqa: B008 - it has no state
) -> ValidationResult:
    """Measure the loss on the pairs (at most `limit`, if given) and the metrics on `texts`, with greedy search.

    The lines and batches are cut into blocks, which are shared out among the processes; their number does not change the result.
    A language model has no lines to translate: its loss is also given in bits per byte.
    """
    if isinstance(pairs, TextWindows):
        loss = cross_entropy(translator, pairs, limit, blocks=blocks, processes=processes)
        lines = pairs.store.report.pairs
        measured = math.ceil(lines * share_measured(pairs, limit))
        scores = _bits_per_byte(pairs, loss)
        return ValidationResult(loss, scores, [], lines=measured, all_lines=lines, decider="loss")
    outputs, at_limit = _translate(translator, texts, blocks, processes)
    shown = [SampleOutput(s, o, r[0]) for s, o, r in zip(texts.sources, outputs, texts.references, strict=True)]
    with translator.model.counting() as counts:
        loss = cross_entropy(translator, pairs, limit, blocks=blocks, processes=processes)
    return ValidationResult(
        loss=loss,
        scores=score_texts(outputs, texts, translator.config, ter=False, main=main_metric(translator.config.train)),
        samples=shown[:: max(1, len(shown) // samples)][:samples],
        outputs_at_limit=at_limit,
        lines=len(outputs),
        all_lines=texts.all_lines,
        of_recordings=translator.reads_speech,
        with_features=translator.reads_features,
        counts=counts,
    )


def _bits_per_byte(windows: TextWindows, loss: float) -> Scores:
    """The loss as a figure that does not depend on the vocabulary."""
    report = windows.store.report
    value = loss / math.log(2) * report.target_tokens / report.target_bytes
    signature = f"context:{windows.context}|stride:{windows.context}|documents:{windows.documents}"
    return Scores((Score("bits per byte", value, signature, higher_is_better=False),))


def _translate(translator: Translator, texts: TestSet, blocks: int, processes: Processes) -> tuple[list[str], int]:
    """The outputs, and how many of them reached the length limit."""
    request, limits = translator.request(beam=1, log_probs="none"), output_limits(texts, translator.vocabularies.target)
    parts = np.array_split(np.arange(len(limits)), blocks)

    def translate(block: int) -> list[tuple[str, int]]:
        lines = slice(int(parts[block][0]), int(parts[block][-1]) + 1) if len(parts[block]) else slice(0)
        found = translator.stream(texts.sources[lines], request, at_most=limits[lines])
        return [(translation.text, translation.outputs_at_limit) for translation in found]

    found = [one for block in processes.share_out(blocks, translate) for one in block]
    return [text for text, _ in found], sum(at_limit for _, at_limit in found)


def output_limits(texts: TestSet, vocabulary: Vocabulary) -> list[int]:
    """The most tokens that each output may have.

    A model that has not learned to stop would reach the limit of the search on every line and take many times as long.
    """
    return [TIMES * length + MORE for length in reference_lengths(texts, vocabulary)]


def reference_lengths(texts: TestSet, vocabulary: Vocabulary) -> list[int]:
    """The length in tokens of the longest reference of each line."""
    references = [reference for accepted in texts.references for reference in accepted]
    lengths = iter([len(ids) for ids in vocabulary.encode(references)])
    return [max(next(lengths) for _ in accepted) for accepted in texts.references]


def cross_entropy(
    translator: Translator,
    pairs: Pairs,
    limit: int = 0,
    *,
    blocks: int = 1,
    processes: Processes = Alone(),  # noqa: B008 - it has no state
) -> float:
    """Cross-entropy per target token without dropout and smoothing, on at most `limit` evenly spaced pairs."""
    translator.model.eval()
    batches = list(in_order(pairs, POSITIONS, limit))

    def measure(block: int) -> list[tuple[float, int]]:
        return [_loss(translator, pairs, numbers) for numbers in batches[block::blocks]]

    measured = processes.share_out(blocks, measure)
    total, all_tokens = 0.0, 0
    for number in range(len(batches)):  # always in this order: `sum` of floats is not the same in every Python
        loss, tokens = measured[number % blocks][number // blocks]
        total, all_tokens = total + loss, all_tokens + tokens
    return total / all_tokens


@torch.inference_mode()
def _loss(translator: Translator, pairs: Pairs, numbers: Ids) -> tuple[float, int]:
    """The loss of a batch summed over its target tokens, and their number."""
    vocabularies, device = translator.vocabularies, translator.device
    batch = make_batch(pairs, numbers, vocabularies.source.pad, vocabularies.target.pad)
    with device.mixed_precision():
        loss = batch_loss(translator.model, batch.to(device.torch), smoothing=0.0).minimised
    return float(loss), batch.tokens
