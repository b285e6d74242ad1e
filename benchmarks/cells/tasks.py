"""The data of benchmarks/rivals.py and benchmarks/variations.py as tasks, and how their outputs are scored."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU

from transduce.metrics import Score, translation_scores
from transduce.paper.cells import Task, TestFiles, words
from transduce.paper.reversal import SETTINGS, symbols_right, write_reversal

Lines = list[str]


def multi30k(data: Path) -> Task:
    """Multi30k En-De as published: tokenised, lower-cased, joint 10k BPE; scored as `multi-bleu` does."""
    folder = data / "multi30k-bpe" / "en-de"
    settings = (
        "data.task=translation data.source_units=word data.target_units=word data.joint=true data.vocabulary_size=12000 "
        "data.normalization=identity data.unknown=unk train.tokens_per_batch=4096 train.schedule=linear train.warmup_steps=200 "
        "train.label_smoothing=0.1 train.clip_norm=1.0 train.r_drop=0 train.ema=0.998 train.steps=0 train.epochs=0 "
        "model.dropout=0.3 search.alpha=1.0 search.length_penalty=power"
    )
    test = TestFiles(folder / "test_2016_flickr.en", folder / "test_2016_flickr.de")
    valid = TestFiles(folder / "valid.en", folder / "valid.de")
    train = [(str(folder / "train.en"), str(folder / "train.de"))]
    return Task(
        "multi30k", train, valid, test, tuple(settings.split()), tokenised_bleu, beam=5, length=words_without_bpe
    )


def europarl(data: Path) -> Task:
    """Europarl De-En, two of the four shards."""
    folder = data / "europarl-de-en"
    settings = (
        "data.joint=true data.vocabulary_size=16000 data.vocabulary_sample=200000 data.max_length=128 "
        "train.tokens_per_batch=25600 train.schedule=linear train.warmup_steps=400 train.label_smoothing=0.1 "
        "train.clip_norm=1.0 train.steps=0 train.epochs=0 model.dropout=0.1 search.alpha=1.0 search.length_penalty=power"
    )
    train = [tuple(str(folder / f"train-{shard}.{side}.xz") for side in ("de", "en")) for shard in (0, 1)]
    valid, test = (TestFiles(folder / f"{split}.de", folder / f"{split}.en") for split in ("valid", "test"))
    return Task("europarl", train, valid, test, tuple(settings.split()), plain_bleu, beam=4, languages=("de", "en"))


def reversal(data: Path) -> Task:
    """Random sequences and the same backwards, written when needed."""
    folder = Path(tempfile.gettempdir()) / "transduce-reversal"
    write_reversal(folder)
    files = {
        split: TestFiles(folder / f"{split}.source", folder / f"{split}.target") for split in ("train", "valid", "test")
    }
    settings = (
        *SETTINGS,
        *"train.tokens_per_batch=4096 train.schedule=linear train.warmup_steps=100 train.clip_norm=1.0".split(),
    )
    train = [(str(files["train"].source), str(files["train"].target))]
    return Task(
        "reversal", train, files["valid"], files["test"], (*settings, "train.steps=0", "train.epochs=0"), symbols
    )


def symbols(outputs: Lines, references: Lines) -> Score:
    return Score("symbols right", symbols_right(outputs, references), "by place", higher_is_better=True)


TASKS = {"multi30k": multi30k, "europarl": europarl, "reversal": reversal}


def without_bpe(lines: Iterable[str]) -> Lines:
    return [line.replace("@@ ", "") for line in lines]


def words_without_bpe(line: str) -> int:
    return words(line.replace("@@ ", ""))


def tokenised_bleu(outputs: Lines, references: Lines) -> Score:
    metric = BLEU(tokenize="none", force=True)
    value = metric.corpus_score(without_bpe(outputs), [without_bpe(references)]).score
    return Score("BLEU", value, str(metric.get_signature()), higher_is_better=True)


def plain_bleu(outputs: Lines, references: Lines) -> Score:
    return translation_scores(outputs, [[reference] for reference in references]).main
