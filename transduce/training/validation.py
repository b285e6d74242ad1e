"""How good the weights are at this moment: loss, perplexity, the task's metric, and a few translations to read."""

import math
import time
from dataclasses import dataclass

import torch

from transduce.config import TrainConfig
from transduce.data.batches import Pairs, in_order, make_batch
from transduce.metrics import Scores
from transduce.text import Vocabulary
from transduce.training.loss import batch_loss
from transduce.translator import Translator
from transduce.translator.evaluation import TestSet, score_texts

PLACES = 8_192  # of a padded validation batch
TIMES, MORE = 2, 10  # an output may have so many times the tokens of its longest reference, and so many more
LOSS_PAIRS = 4  # pairs for the loss, for each line that a budget in minutes lets a validation translate
FEW_LINES = 200  # of which a score says less than the loss does
EQUAL = 1e-6  # of a score: no metric is that fine


@dataclass(frozen=True)
class Sample:
    """One line, what the model makes of it and what it should be."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class Validation:
    """The measurements of one moment."""

    loss: float  # cross-entropy per target token, without smoothing
    scores: Scores
    samples: list[Sample]
    outputs_at_limit: int = 0  # outputs that reached the length limit, and were probably cut there
    lines: int = 0  # that were translated, greedily
    by_loss: bool = False  # whether the loss decides which weights are better, and not the main score

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 100.0))

    @property
    def rank(self) -> float:
        """Higher is better. By the main score, and among equals by the loss; or by the loss alone."""
        if self.by_loss:
            return -self.loss
        score = self.scores.main.value if self.scores.main.higher_is_better else -self.scores.main.value
        return score - EQUAL * min(self.loss, 100.0)

    @property
    def deciding(self) -> str:
        """The figure that `rank` goes by, as it is shown."""
        return f"loss {self.loss:.4f}" if self.by_loss else str(self.scores.main)


def main_metric(train: TrainConfig) -> str:
    """The metric that `train.best_metric` puts before those of the task; "" where it names none."""
    return "" if train.best_metric in ("auto", "loss") else train.best_metric


def ranks_by_loss(train: TrainConfig, lines: int, all_lines: int) -> bool:
    """Whether the loss decides: where it was chosen, or where too few lines are translated to tell two models apart."""
    few = lines < min(FEW_LINES, all_lines)
    return train.best_metric == "loss" or (train.best_metric == "auto" and few)


def time_validation(translator: Translator, pairs: Pairs, texts: TestSet) -> float:
    """Seconds that validating these lines takes with a model that has learned when to stop."""
    begun = time.perf_counter()
    limits = reference_lengths(texts, translator.vocabularies.target)
    request = translator.request(beam=1, figures="none")
    outputs = [translation.text for translation in translator.stream(texts.sources, request, at_most=limits)]
    score_texts(outputs, texts, translator.config, ter=False, main=main_metric(translator.config.train))
    cross_entropy(translator, pairs, LOSS_PAIRS * len(texts.sources))
    return time.perf_counter() - begun


def validate(translator: Translator, pairs: Pairs, texts: TestSet, limit: int = 0, samples: int = 3) -> Validation:
    """Loss over the validation pairs, at most `limit` of them if given; the metric over the translated `texts`, greedily."""
    request, limits = translator.request(beam=1, figures="none"), output_limits(texts, translator.vocabularies.target)
    translations = list(translator.stream(texts.sources, request, at_most=limits))
    outputs = [translation.text for translation in translations]
    shown = [Sample(s, o, r[0]) for s, o, r in zip(texts.sources, outputs, texts.references, strict=True)]
    return Validation(
        loss=cross_entropy(translator, pairs, limit),
        scores=score_texts(outputs, texts, translator.config, ter=False, main=main_metric(translator.config.train)),
        samples=shown[:: max(1, len(shown) // samples)][:samples],
        outputs_at_limit=sum(translation.outputs_at_limit for translation in translations),
        lines=len(outputs),
    )


def output_limits(texts: TestSet, vocabulary: Vocabulary) -> list[int]:
    """The most tokens each output may have: a model that has not yet learned to stop would write up to the search's own
    limit on every line, and take many times as long."""
    return [TIMES * length + MORE for length in reference_lengths(texts, vocabulary)]


def reference_lengths(texts: TestSet, vocabulary: Vocabulary) -> list[int]:
    """The tokens of the longest reference of each line."""
    references = [reference for accepted in texts.references for reference in accepted]
    lengths = iter([len(ids) for ids in vocabulary.encode(references)])
    return [max(next(lengths) for _ in accepted) for accepted in texts.references]


@torch.inference_mode()
def cross_entropy(translator: Translator, pairs: Pairs, limit: int = 0) -> float:
    """Per target token, the model as it translates: no dropout, no smoothing. At most `limit` pairs, spread evenly."""
    translator.model.eval()
    vocabularies, device = translator.vocabularies, translator.device
    total, tokens = 0.0, 0
    for numbers in in_order(pairs, PLACES, limit):
        batch = make_batch(pairs, numbers, vocabularies.source.pad, vocabularies.target.pad)
        with device.mixed_precision():
            total += float(batch_loss(translator.model, batch.to(device.torch), smoothing=0.0).minimised)
        tokens += batch.tokens
    return total / tokens
