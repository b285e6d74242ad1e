"""The table of commands, and the parser made from it. Imports nothing heavy, so that `transduce --help` answers at once."""

import argparse
import difflib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from transduce import __version__
from transduce.cli.options import Parser
from transduce.cli.parsers import (
    batches,
    comparing,
    completion,
    examining,
    exchanging,
    generating,
    measuring,
    reporting,
    reranking,
    serving,
    settings,
    synthesis,
    tracking,
    training,
    transcribing,
    translating,
)
from transduce.config.other_names import our_name

EXAMPLES = """examples:
  transduce demo
  transduce train runs/en-de --train train.en train.de --valid valid.en valid.de --languages en de
  transduce translate runs/en-de < input.en > output.de
  transduce evaluate runs/en-de test.en test.de
  transduce attention runs/en-de "a sentence" -o attention.png
"""


class Command(NamedTuple):
    """A command. Its options are added by a module of `transduce.cli.parsers`; the module of `transduce.cli` with the same name runs it."""

    name: str
    add_options: Callable[[Parser], None]
    summary: str
    more: str = ""


COMMANDS = (  # in the order of `transduce --help`
    Command("demo", training.demo, "train, score and use a small model on the CMU pronouncing dictionary"),
    Command(
        "paper",
        training.paper,
        "measure small versions of the paper's three tables, and write them to one page",
        training.TABLES,
    ),
    Command("train", training.train, "train a model, or resume a run", training.RESUME),
    Command(
        "doctor",
        examining.doctor,
        "look for problems in training, validation and test data",
        examining.EXIT_STATUS,
    ),
    Command("plan", training.plan, "predict the time, memory and disk of a training run", training.REHEARSAL),
    Command(
        "translate",
        translating.translate,
        "translate the lines of a file or of stdin",
        translating.LINES,
    ),
    Command(
        "transcribe",
        transcribing.transcribe,
        "turn recordings of speech into text",
        transcribing.RECORDINGS,
    ),
    Command(
        "batch",
        batches.batch,
        "translate files of any size in shards, on one or many machines",
        batches.SHARDS,
    ),
    Command("evaluate", measuring.evaluate, "translate a test set and score the translations"),
    Command(
        "compare",
        comparing.compare,
        "compare systems on a test set, and test whether the differences are significant",
        comparing.COMPARED,
    ),
    Command(
        "rerank",
        reranking.rerank,
        "tune the weights for reranking n-best lists",
        reranking.JUDGES,
    ),
    Command(
        "score",
        measuring.score,
        "print the log-probability of given pairs, or how well a language model predicts text",
    ),
    Command("generate", generating.generate, "continue a prompt with a language model", generating.STREAMED),
    Command("attention", measuring.attention, "draw the attention weights for a sentence"),
    Command("export", exchanging.export, "export a model for another runtime", exchanging.EXPORT),
    Command(
        "distill",
        synthesis.distill,
        "train a small, fast model on the translations of a large one",
        synthesis.TEACHER,
    ),
    Command(
        "backtranslate",
        synthesis.backtranslate,
        "translate target-language text to make training pairs",
        synthesis.RERUN,
    ),
    Command(
        "shortlist",
        translating.shortlist,
        "learn which output tokens a sentence is likely to need",
        translating.FASTER,
    ),
    Command(
        "ngram",
        transcribing.ngram,
        "learn an n-gram model of words for a speech model, and tune its weights",
        transcribing.WORDS,
    ),
    Command("average", training.average, "average the weights of several models"),
    Command(
        "import",
        exchanging.import_model,
        "import a Marian model, from Hugging Face or in Marian's own format",
    ),
    Command("runs", tracking.runs, "list the runs under a folder, or compare two of them", tracking.STATES),
    Command(
        "clean",
        tracking.clean,
        "show the disk space of the cache and old checkpoints, and remove what no run needs",
        tracking.ASKS,
    ),
    Command("settings", settings.settings, "list the settings, or explain one"),
    Command("serve", serving.serve, "serve models over HTTP", serving.ROUTES),
    Command("key", serving.key, "create an API key for a server"),
    Command(
        "report",
        reporting.report,
        "print versions and devices for a bug report",
        reporting.NO_PATHS,
    ),
    Command(
        "completion",
        completion.completion,
        "print a script that completes commands and options in a shell",
        completion.INSTALL,
    ),
)


class CommandParser(Parser):
    """The parser of one command, which refuses unknown arguments itself."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        options, unknown = super().parse_known_args(args, namespace)
        # argparse accepts an optional FILE only directly after RUN; in `translate RUN --beam 4 FILE` it is left over.
        if len(unknown) == 1 and not unknown[0].startswith("-") and getattr(options, "file", "") is None:
            options.file = unknown.pop()
        # Likewise the files of `batch RUN --beam 4 FILE...`.
        if getattr(options, "inputs", None) == [] and not any(word.startswith("-") for word in unknown):
            options.inputs, unknown = unknown, []
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(options, unknown)}")
        return options, unknown

    def _meant(self, options: Any, unknown: Sequence[str]) -> str:
        if hasattr(options, "diff") and len(unknown) == 1 and not unknown[0].startswith("-"):  # `runs A B`
            return f"; to compare two runs: --diff {options.folder} {unknown[0]}"
        return self._nearest(unknown)

    def _nearest(self, unknown: Sequence[str]) -> str:
        known = list(self._option_string_actions)
        asked = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        close = [near for word in asked for near in difflib.get_close_matches(word, known, n=1)]
        close = [near for word in asked for near in self._settings_of_other_toolkits(word)] or close
        return f"; did you mean {close[0]}?" if close else ""

    def _settings_of_other_toolkits(self, word: str) -> list[str]:
        """The option for what another toolkit calls so, if this command has one."""
        setting, known = our_name(word).partition(" ")[0], self._option_string_actions
        option = f"--{setting.rpartition('.')[2]}"
        if not setting or (option not in known and "--set" not in known):
            return []
        return [option if option in known else f"--set {setting}=..."]


def make_parser() -> Parser:
    """The parser with every command and option."""
    parser = Parser(
        prog="transduce",
        description="Train Transformers on pairs of sequences, speech or text; use, score, inspect and serve them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"transduce {__version__}")
    parsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=CommandParser)
    for command in COMMANDS:
        summary = command.summary
        description = f"{summary[0].upper()}{summary[1:]}. {command.more}".strip()
        command_parser = parsers.add_parser(command.name, help=summary, description=description)
        command_parser.set_defaults(module=command.add_options.__module__.replace(".parsers.", "."))
        command.add_options(command_parser)
    return parser
