"""Options that several commands share. Imports nothing heavy."""

import argparse
import difflib
import re
from typing import NoReturn

from transduce.metrics import METRICS

SYNONYMS = {"gpu": ["cuda"], "cuda:0": ["cuda"]}  # what people write for a choice


class Parser(argparse.ArgumentParser):
    """argparse's, with errors of one line instead of the whole usage above them."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {_with_suggestion(message)} (see `{self.prog} --help`)\n")


def _with_suggestion(message: str) -> str:
    """The message of a choice that does not exist names the nearest one instead of all where there are many."""
    choice = re.fullmatch(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL)
    if not choice:
        return message
    argument, given, known = choice[1], choice[2], [name.strip(" '") for name in choice[3].split(",")]
    missing = f"there is no command {given!r}" if argument == "COMMAND" else f"{argument}: there is no {given!r}"
    if close := SYNONYMS.get(given.lower()) or difflib.get_close_matches(given, known, n=1):
        return f"{missing}; did you mean {close[0]}?"
    return f"{missing}; choose from {', '.join(known)}"


DEVICE = "device to compute on (default: auto, a GPU if there is one)"
THREADS = "number of CPU threads (default: one for each core)"
AUTO_ENGINE = "engine: ct2 (CTranslate2) is faster on CPUs; auto uses it where it is installed and supports the request"
SEED = "seed for sampling; another seed gives other samples (default: 1)"
FILES = (
    "two aligned text files, or one .tsv or .jsonl file; files may be compressed (.gz, .xz, .bz2), pipes, or - for stdin; "
    "repeat the option for several corpora"
)
SHORTLIST = "consider only the output tokens listed by `transduce shortlist`, which is faster (ct2 engine only)"
OF_NGRAM = "; with --ngram: the weight of the n-gram model (default: as tuned)"
JSON_RESULT = "print the result as JSON on stdout"


def add_settings(parser: Parser) -> None:
    """`--set`."""
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        metavar="section.key=value",
        default=[],
        dest="settings",
        help="set any setting by name, such as model.d_model=256; `transduce settings` lists and explains them",
    )


def add_columns(parser: Parser) -> None:
    """The columns of tables."""
    parser.add_argument(
        "--columns",
        metavar="source=1,features=2,target=3",
        default="",
        help="columns of TSV files, by number or by name in a header line; or keys of JSONL files (default: recognised from "
        "the data, or those of the model)",
    )
    parser.add_argument(
        "--skip-blank-lines", action="store_true", help="skip and count blank lines in TSV and JSONL files"
    )


def add_ensemble(parser: Parser) -> None:
    """Models that translate together."""
    parser.add_argument(
        "--ensemble",
        nargs="+",
        default=[],
        metavar="RUN",
        help="further models with the same vocabularies; predictions are averaged",
    )


def minutes_given(text: str) -> float:
    """The number of minutes that an option gives."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of minutes, such as 5") from None


def add_budget(
    parser: Parser,
    minutes: str = "wall-clock time of the run from start to model card, in total over all commands that resumed it; a model that "
    "fits this time is chosen",
) -> None:
    """How long to train."""
    budget = parser.add_argument_group(
        "budget",
        "how long to train; training ends at the first limit reached, and 0 is no limit (default: chosen for the data)",
    )
    budget.add_argument("--minutes", type=minutes_given, metavar="MINUTES", help=minutes)
    budget.add_argument("--steps", type=int, help="optimizer steps")
    budget.add_argument("--epochs", type=float, help="passes over the training data")


def add_machine(parser: Parser) -> None:
    """Where to train, and the seed: short forms of settings, which are set only if the option is given."""
    add = parser.add_argument
    add("--device", choices=["auto", "cpu", "cuda"], help=DEVICE)
    add("--threads", type=int, metavar="N", help=THREADS)
    add(
        "--seed",
        type=int,
        metavar="N",
        help="seed of everything random: weights, order of the data, dropout (default: 1)",
    )


def add_verbosity(parser: Parser) -> None:
    """How much to print while training."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--quiet", action="store_true", help="print only errors")
    either.add_argument(
        "--verbose", action="store_true", help="print several sample outputs with references at every validation"
    )


def add_metrics(parser: Parser, about: str, default: str) -> None:
    parser.add_argument(
        "--metrics",
        nargs="+",
        type=str.lower,
        choices=METRICS,
        metavar="NAME",
        default=[],
        help=f"{about}: {', '.join(METRICS)} (default: {default})",
    )


def add_model(parser: Parser) -> None:
    """A model, and how to load it."""
    parser.add_argument("run", help="run folder of the model")
    add_target_language(parser)
    add_loading(parser)


def add_target_language(parser: Parser, of: str = "models") -> None:
    """The target language of models that have several."""
    parser.add_argument(
        "--to",
        metavar="LANGUAGE",
        default="",
        help=f"target language, for {of} that translate into several (default: the tag of each line, such as >>de<<)",
    )


def add_loading(parser: Parser) -> None:
    """Which weights to load, and where."""
    add_weights(parser)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help=DEVICE)
    parser.add_argument("--threads", type=int, default=0, help=THREADS)


def add_weights(parser: Parser, of: str = "weights of the run to use") -> None:
    """Which weights of a run."""
    parser.add_argument(
        "--weights",
        choices=["auto", "best", "last", "averaged"],
        default="auto",
        help=f"{of} (default: auto, whichever of best and averaged scored better in validation)",
    )


def add_engine(parser: Parser, help: str = AUTO_ENGINE, *others: str) -> None:
    """Which engine translates."""
    parser.add_argument("--engine", choices=["auto", "torch", "ct2", *others], default="auto", help=help)
    parser.add_argument(
        "--quantization",
        choices=["int8", "bfloat16", "float32"],
        help="number format of the weights in the ct2 engine (default: int8)",
    )


def add_workers(parser: Parser | argparse._ArgumentGroup) -> None:
    """On how many processes or machines to translate."""
    parser.add_argument(
        "--workers",
        type=int,
        default=0,
        metavar="N",
        help="number of worker processes, or of Ray actors; the cores are divided between them (default: one for each GPU; "
        "without several GPUs, this process)",
    )
    parser.add_argument(
        "--on",
        choices=["local", "ray"],
        default="local",
        help="ray: the Ray cluster at RAY_ADDRESS, or Ray on this machine",
    )


def add_search(parser: Parser) -> None:
    """How to search."""
    parser.add_argument("--beam", type=int, help="beam size; 1 is greedy search (default: the model's setting)")
    parser.add_argument("--alpha", type=float, help="strength of the length penalty (default: the model's setting)")
    parser.add_argument(
        "--length-penalty",
        choices=["paper", "power"],
        help="divide scores by ((5 + n) / 6)^alpha (paper) or n^alpha (power), where n is the length",
    )
    parser.add_argument(
        "--max-extra",
        type=int,
        metavar="N",
        help="limit outputs to N tokens more than the input (default: the model's setting)",
    )


def add_ngram(parser: Parser) -> None:
    """The n-gram model of a speech model."""
    add = parser.add_argument
    add(
        "--ngram",
        action="store_true",
        help="speech: search with the n-gram model and lexicon that `transduce ngram` made for the run; the decoder rescores "
        "the texts of the beam",
    )
    for option, of_what in (
        ("--word-bonus", "added for each word"),
        ("--ctc-weight", "weight of CTC, from 0 to 1; the decoder has the rest, and is not used with 1"),
    ):
        add(option, type=float, metavar="X", help=f"with --ngram: {of_what} (default: as tuned)")


def add_language_model(parser: Parser, more: str = "") -> None:
    """A language model that takes part in the search, and its weight."""
    parser.add_argument(
        "--lm",
        metavar="RUN",
        default="",
        help="language model for shallow fusion (torch engine only); train it with "
        "`train --text FILE --vocabulary` and the run folder of this model",
    )
    parser.add_argument(
        "--lm-weight",
        type=float,
        metavar="W",
        help=f"with --lm: scores are log p of this model + W * log p of the language model (default: 0.2){more}",
    )


def add_rerank(parser: Parser) -> None:
    """Reranking by the weights of a file."""
    parser.add_argument(
        "--rerank",
        metavar="FILE",
        default="",
        help="order n-best lists by several models, with the weights in this file, which `transduce rerank` wrote",
    )


def add_sampling(parser: Parser) -> None:
    """How to sample."""
    add = parser.add_argument
    add("--sample", action="store_true", help="sample outputs instead of searching; --top-p 0.9 avoids improbable ones")
    add(
        "--temperature",
        type=float,
        metavar="T",
        help="sampling temperature: lower is more predictable, higher more varied (default: 1)",
    )
    add("--top-k", type=int, metavar="K", help="sample from the K most probable tokens (default: all)")
    add(
        "--top-p",
        type=float,
        metavar="P",
        help="sample from the most probable tokens whose probabilities sum to P (default: 1, all)",
    )
    add("--seed", type=int, metavar="N", help=SEED)
