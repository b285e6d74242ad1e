"""What is made from trained models: averages, shortlists of output tokens, n-gram models of words."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from transduce.api.options import Weights, reporter
from transduce.cores import tune_idle_threads
from transduce.data import Files, groups_of, without_pipes
from transduce.translator import LoadOptions

if TYPE_CHECKING:
    from transduce.derived.word_models import WordModel


def average(runs: Sequence[str | Path], folder: str | Path, *, weights: Weights = "auto") -> Path:
    """Write a new model folder with the mean of the weights of several models of one shape and vocabulary.

    Example:
        >>> transduce.average(["runs/a", "runs/b"], "runs/mean")
        PosixPath('runs/mean')
    """
    tune_idle_threads()
    from transduce.derived.averaging import average as write_average

    return write_average(runs, folder, weights)


def shortlist(run: str | Path, train: Files | None = None, *, threads: int = 0, quiet: bool = False) -> Path:
    """Write a lexical shortlist for a model, with which `load(run, shortlist=True)` translates faster on CPUs.

    Args:
        run: A run folder.
        train: Pairs to learn the shortlist from; by default the training data of the run.
        threads: CPU threads; 0 means one for each core.
        quiet: Print nothing.

    Returns:
        The file that was written, `RUN/shortlist.txt`.

    Example:
        >>> transduce.shortlist("runs/en-de")
        PosixPath('runs/en-de/shortlist.txt')
    """
    tune_idle_threads()
    from transduce.derived.shortlisting import make_shortlist

    say = reporter(quiet)
    with TemporaryDirectory() as scratch:
        pairs = without_pipes(groups_of(train), Path(scratch))
        return make_shortlist(run, pairs, options=LoadOptions(engine="torch", threads=threads, say=say), say=say)


def ngram(
    run: str | Path,
    texts: Sequence[str | Path] = (),
    *,
    order: int = 3,
    lexicon: str | Path = "",
    arpa: str | Path = "",
    valid: Files | None = None,
    tune: bool = True,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int = 0,
    quiet: bool = False,
) -> "WordModel":
    """Give a speech model an n-gram model of words, with which `load(run, ngram=True)` writes fewer wrong words.

    Args:
        run: The run folder of a speech model.
        texts: Plain text or manifests to learn from; by default the transcripts that the run was trained on.
        order: The longest n-grams.
        lexicon: A file with the words that may be written, one per line; by default any word.
        arpa: A finished n-gram model to use instead of learning one.
        valid: Manifests to tune the weights on; by default the validation data of the run.
        tune: Whether to tune the weights.
        device: Where they are tuned; "auto" is a GPU if there is one.
        threads: CPU threads; 0 means one for each core.
        quiet: Print nothing.

    Returns:
        The file that was written, the weights, and the word error rate that they reached.

    Example:
        >>> transduce.ngram("runs/iban", lexicon="lexicon.txt").weights
        WordWeights(lm_weight=0.6, word_bonus=1.0, ctc_weight=0.4, prefixes=60)
    """
    tune_idle_threads()
    from transduce.derived.word_models import make_word_model

    options = LoadOptions(engine="torch", device=device, threads=threads, say=reporter(quiet))
    return make_word_model(
        run, [str(text) for text in texts], order=order, lexicon=lexicon, arpa=arpa, valid=groups_of(valid), tuned=tune,
        options=options, say=options.say,
    )  # fmt: skip
