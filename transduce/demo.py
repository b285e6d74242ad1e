"""The demonstration: English spelling to pronunciation, on the CMU dictionary, in a few minutes on a laptop.

Trains a model, scores it on unseen words, pronounces a few, and draws attention and learning curves. A finished model is not trained again.
"""

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from transduce.explore import draw_attention
from transduce.metrics import PRINTED_METRICS, PRONUNCIATION_METRICS, Scores, score_outputs
from transduce.pronunciations import read_dictionary, split_dictionary, write_splits
from transduce.training import TrainingRequest, train
from transduce.training.report import Terminal
from transduce.translator import LoadOptions, Translator
from transduce.translator.evaluation import TestSet, evaluate

# All settings that are not fitted to the data. Chosen for a few minutes on two cores (docs/log.md).
RECIPE = (
    "model.d_model=128 model.d_ff=256 model.num_encoder_layers=2 model.num_decoder_layers=2 model.dropout=0.0 "
    "train.tokens_per_batch=1024 train.steps=2400 train.learning_rate=3e-3 train.warmup_steps=100 "
    "train.validate_every=600 train.checkpoint_every=600 train.validate_lines=300 train.average=0 search.beam=1"
).split()
SHOWN = ["transduce", "chatbot", "kubernetes", "doomscrolling", "spotify", "blockchain", "photoshopped"]
STRESS = re.compile(r"[012]")


def run_demo(folder: Path) -> None:
    """Run the whole demonstration, as the README describes it."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    begun = time.perf_counter()
    splits = split_dictionary(read_dictionary())
    files = write_splits(splits, folder / "data")
    console.print(f"CMU pronouncing dictionary: {len(splits['train']):,} pronunciations to learn from", markup=False)
    run = folder / "run"
    if not is_finished(run):
        request = TrainingRequest(
            train=files["train"], valid=files["valid"], settings=RECIPE, set_by="the demonstration"
        )
        train(run, request, reporter=Terminal())
    translator = Translator.load(
        run, LoadOptions(engine="torch")
    )  # PyTorch, not a converted model: the scores are of the original weights
    scores = score_demo(translator, splits["test"])
    print(f"\n{scores.text()}")
    known = {word for pairs in splits.values() for word, _ in pairs}
    print(f"\n{pronounce(translator, [word for word in SHOWN if word not in known])}")
    draw_attention(translator.attention("transformers"), folder / "attention.png")
    (folder / "curves.png").write_bytes((run / "curves.png").read_bytes())
    seconds = time.perf_counter() - begun
    (folder / "result.json").write_text(json.dumps({"seconds": round(seconds), **scores.as_dict()}, indent=1) + "\n")
    print(farewell(folder, seconds))


def is_finished(run: Path) -> bool:
    """Whether training has finished; the model card and the curves are written last."""
    return (run / "README.md").exists() and (run / "curves.png").exists()


@dataclass(frozen=True)
class DemoScores:
    """Error rates on held-out words, with the stress marks of the dictionary and without them."""

    words: int
    words_per_second: float
    stressed: Scores
    plain: Scores

    def text(self) -> str:
        return (
            f"{self.words:,} words never seen in training, {self.words_per_second:,.0f} words/s:\n"
            f"  with stress marks     {self.stressed}\n"
            f"  without stress marks  {self.plain}\n"
            f"  {self.stressed.main.signature}"
        )

    def as_dict(self) -> dict[str, object]:
        return {"words": self.words, "stressed": self.stressed.as_dict(), "plain": self.plain.as_dict()}


def score_demo(translator: Translator, pairs: list[tuple[str, str]]) -> DemoScores:
    """Score the model; any pronunciation that the dictionary lists for a word is correct."""
    test = TestSet.of([word for word, _ in pairs], [phonemes for _, phonemes in pairs], merged=True)
    result = evaluate(translator, test)
    plain = score_outputs(
        [STRESS.sub("", output) for output in result.outputs],
        [[STRESS.sub("", reference) for reference in references] for references in test.references],
        PRONUNCIATION_METRICS,
        merged=test.merged,
        printed=PRINTED_METRICS[PRONUNCIATION_METRICS],
    )
    return DemoScores(result.sentences, result.sentences_per_second, result.scores, plain)


def pronounce(translator: Translator, words: list[str]) -> str:
    """Pronounce words that are not in the dictionary."""
    lines = [f"  {word:<14}{phonemes}" for word, phonemes in zip(words, translator.translate(words), strict=True)]
    return "\n".join(["words that are not in the dictionary at all:", *lines])


def farewell(folder: Path, seconds: float) -> str:
    return f"""
{folder}/attention.png  the attention between letters and sounds
{folder}/curves.png     the learning curves
{folder}/run            the model, with its model card ({seconds:.0f} s in total)

To train on your own data:
  transduce train runs/mine --train train.source train.target --valid valid.source valid.target
  transduce translate runs/mine < input > output
  transduce evaluate runs/mine test.source test.target
  transduce attention runs/mine "your sentence" -o attention.png"""
