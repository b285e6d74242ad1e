"""The parser of the command line: every command and option. Imports nothing heavy: `transduce --help` must answer at once."""

import argparse
import difflib
from collections.abc import Sequence
from typing import Any

from transduce import __version__
from transduce.config import PRESETS
from transduce.metrics import METRICS

FILES = (
    "two aligned text files, or one .tsv or .jsonl file; each may be .gz, .xz or .bz2, a pipe, or - for stdin; "
    "may be repeated"
)
LINES = (
    "Translate the lines of a file, or of stdin, to stdout. A line is one sentence to the model: split texts into sentences first, "
    "or send them to `transduce serve`, which does."
)
EXAMPLES = """examples:
  transduce demo
  transduce train runs/en-de --train train.en train.de --valid valid.en valid.de --languages en de
  transduce translate runs/en-de < input.en > output.de
  transduce evaluate runs/en-de test.en test.de
  transduce attention runs/en-de "a sentence" -o attention.png
"""


class Verb(argparse.ArgumentParser):
    """A verb's own arguments: what it does not know is its own error, with its own usage."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        options, unknown = super().parse_known_args(args, namespace)
        # argparse takes an optional FILE only directly after RUN: `translate RUN --beam 4 FILE` leaves it over.
        if len(unknown) == 1 and not unknown[0].startswith("-") and getattr(options, "file", "") is None:
            options.file = unknown.pop()
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest(unknown)}")
        return options, unknown

    def _nearest(self, unknown: Sequence[str]) -> str:
        known = list(self._option_string_actions)
        asked = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        close = [near for word in asked for near in difflib.get_close_matches(word, known, n=1)]
        return f"; did you mean {close[0]}?" if close else ""


def make_parser() -> argparse.ArgumentParser:
    """Every verb and option."""
    parser = argparse.ArgumentParser(
        prog="transduce",
        description="Pairs of sequences in; a trained Transformer, its score, its attention and a translator out.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"transduce {__version__}")
    verbs = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Verb)
    _demo(verbs.add_parser("demo", help="train on built-in data, score, translate, draw attention"))
    _train(verbs.add_parser("train", help="train a model, or resume a run"))
    _translate(verbs.add_parser("translate", help="translate lines of a file or of stdin", description=LINES))
    _evaluate(verbs.add_parser("evaluate", help="score a model on a test set"))
    _score(verbs.add_parser("score", help="log-probability of given pairs"))
    _attention(verbs.add_parser("attention", help="draw what attends to what"))
    _export(verbs.add_parser("export", help="write a model for another runtime, verified on real sentences"))
    _distill(verbs.add_parser("distill", help="train a small, fast model on what a large one makes of the sources"))
    _backtranslate(verbs.add_parser("backtranslate", help="make sources for lines of the target language"))
    _shortlist(verbs.add_parser("shortlist", help="learn which output tokens a sentence can need: faster on CPUs"))
    _average(verbs.add_parser("average", help="one model of several: the mean of their weights"))
    _import(verbs.add_parser("import", help="take in a model of Hugging Face's Marian, or of Marian itself"))
    _list_settings(verbs.add_parser("settings", help="list the settings, or explain one"))
    _serve(verbs.add_parser("serve", help="answer over HTTP: LibreTranslate's API, our own, and a web page"))
    _key(verbs.add_parser("key", help="make an API key for a server"))
    return parser


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default="demo", help="where the run goes (default: demo)")


def _train(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("run", help="the run folder; one that exists is resumed")
    add("--train", nargs="+", action="append", metavar="FILE", default=[], help=f"training data: {FILES}")
    add("--valid", nargs="+", action="append", metavar="FILE", default=[], help="validation data, likewise")
    add("--languages", nargs=2, metavar=("SOURCE", "TARGET"), default=[], help="what they are, e.g. en de")
    _columns(parser)
    add("--from", dest="start_from", metavar="MODEL", default="", help="start from another run's weights")
    add("--preset", choices=sorted(PRESETS), default="", help="a named recipe (default: fitted to the data)")
    add("--config", metavar="FILE.toml", default="", help="settings from a file")
    _budget(parser)
    _settings(parser)
    _loudness(parser)
    add("--json", action="store_true", help="print the result as JSON on stdout")


def _settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        metavar="section.key=value",
        default=[],
        dest="settings",
        help="any other setting, e.g. model.d_model=256; `transduce settings` lists them with their meaning",
    )


def _columns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--columns",
        metavar="source=1,features=2,target=3",
        default="",
        help="what the columns of TSV files are, by number or by the names of a header line; or the keys of JSONL files "
        "(default: as the data look, or as the model learned them)",
    )
    parser.add_argument(
        "--skip-blank-lines", action="store_true", help="leave blank lines of TSV and JSONL files out, and count them"
    )


def _budget(
    parser: argparse.ArgumentParser,
    covered: str = "of the whole command, earlier commands of the run included; the model is fitted to them",
) -> None:
    budget = parser.add_argument_group(
        "budget", "how long to train: whichever ends first (default: fitted to the data)"
    )
    budget.add_argument("--minutes", type=float, help=covered)
    budget.add_argument("--steps", type=int, help="optimizer steps")
    budget.add_argument("--epochs", type=float, help="passes over the training data")


def _loudness(parser: argparse.ArgumentParser) -> None:
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--quiet", action="store_true", help="print nothing but errors")
    either.add_argument(
        "--verbose", action="store_true", help="print several sample outputs with their references at every validation"
    )


def _model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder")
    _loading(parser)


def _loading(parser: argparse.ArgumentParser) -> None:
    _weights(parser)
    parser.add_argument(
        "--device", choices=["auto", "cpu", "cuda"], default="auto", help="(default: auto, cuda where there is a GPU)"
    )
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: one per core)")


def _weights(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--weights",
        choices=["auto", "best", "last", "averaged"],
        default="auto",
        help="which of the run's weights (default: auto, the better validated of best and averaged)",
    )


def _engine(parser: argparse.ArgumentParser, auto: str, *others: str) -> None:
    parser.add_argument("--engine", choices=["auto", "torch", "ct2", *others], default="auto", help=auto)
    parser.add_argument(
        "--quantization", choices=["int8", "bfloat16", "float32"], help="of the ct2 engine (default: int8)"
    )


def _search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--beam", type=int, help="width of the beam; 1 is greedy (default: the model's setting)")
    parser.add_argument("--alpha", type=float, help="strength of the length penalty")
    parser.add_argument("--length-penalty", choices=["paper", "power"], help="((5 + n) / 6)^alpha, or n^alpha")
    parser.add_argument("--max-extra", type=int, metavar="N", help="output limit: input length + N tokens")


def _translate(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _engine(parser, "auto: CTranslate2 (ct2) on CPUs wherever it can, else PyTorch")
    _search(parser)
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="lines to translate, also .gz, .xz or .bz2 (default: stdin)"
    )
    parser.add_argument("--input", metavar="FILE", help="the same as FILE")
    parser.add_argument(
        "--columns",
        metavar="source=1,features=2",
        default="",
        help="the input is TSV: what its columns are (default: as the model learned them, where it learned features)",
    )
    parser.add_argument("--n-best", type=int, default=1, metavar="N", help="N outputs: `line ||| text ||| score`")
    parser.add_argument(
        "--sample",
        action="store_true",
        help="draw from the model instead of searching; with --top-p 0.9 besides, the improbable is left out",
    )
    parser.add_argument(
        "--temperature", type=float, metavar="T", help="of drawing: below 1 tamer, above 1 wilder (default: 1)"
    )
    parser.add_argument("--top-k", type=int, metavar="K", help="draw from the K most probable tokens (default: all)")
    parser.add_argument(
        "--top-p", type=float, metavar="P", help="draw from the most probable tokens that sum up to P (default: 1, all)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="a different seed gives different samples (default: 1)")
    parser.add_argument("--prefix", metavar="FILE", help="a beginning for each line's output, line by line")
    parser.add_argument("--terms", metavar="FILE", help="phrases that must occur in each line's output, tabs between")
    parser.add_argument(
        "--alignments", choices=["pharaoh"], help="which source word each word comes from: `text ||| 0-0 1-2`"
    )
    parser.add_argument(
        "--shortlist", action="store_true", help="only tokens that `transduce shortlist` listed: faster"
    )
    parser.add_argument("--replace-unknown", action="store_true", help="<unk> becomes the source word it comes from")
    parser.add_argument(
        "--ensemble",
        nargs="+",
        default=[],
        metavar="RUN",
        help="more models of the same vocabulary, translating together",
    )
    parser.add_argument("--json", action="store_true", help="one object a line: texts, tokens, log-probabilities")
    parser.add_argument("--quiet", action="store_true", help="do not say what was cut or unknown")


def _evaluate(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    parser.add_argument(
        "--shortlist", action="store_true", help="only tokens that `transduce shortlist` listed: faster"
    )
    _engine(parser, "auto: as translate; both: the scores of torch and of ct2, and how far apart they are", "both")
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="SOURCE and REFERENCE files, with more REFERENCE files if there are any; or one .tsv or .jsonl; - is stdin",
    )
    _search(parser)
    _columns(parser)
    parser.add_argument(
        "--metrics",
        nargs="+",
        type=str.lower,
        choices=METRICS,
        metavar="NAME",
        default=[],
        help=f"what to measure: {', '.join(METRICS)} (default: the metrics of the model's task)",
    )
    parser.add_argument(
        "--references",
        choices=["auto", "separate", "merged"],
        default="auto",
        help="score each line by itself, as sacreBLEU does, or merge the references of equal sources "
        "(default: auto, merged for dictionaries)",
    )
    parser.add_argument("--output", metavar="FILE", help="write the translations here")
    parser.add_argument("--json", action="store_true")


def _score(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _engine(parser, "auto: PyTorch, whose figures are those of the weights as they are")
    _columns(parser)
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="SOURCE and TARGET files, or one .tsv or .jsonl; - is stdin"
    )
    parser.add_argument("--json", action="store_true", help="one object a line, with the log-probability of each token")


def _attention(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    parser.set_defaults(engine="torch", quantization=None)  # the one that can be looked into
    parser.add_argument("sentence", help="the source, in quotes")
    parser.add_argument("--target", help="look at this output instead of the model's own")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="a .png, .pdf or .svg picture, or an .html page"
    )


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder")
    parser.add_argument("folder", metavar="DIR", help="the folder to make")
    parser.add_argument(
        "--to",
        choices=["hf", "ct2", "onnx"],
        required=True,
        help="hf: transformers; ct2: CTranslate2; onnx: onnxruntime; each needs the extra of its name, transduce[hf] and so on",
    )
    _weights(parser)
    parser.add_argument(
        "--sample", metavar="FILE", default="", help="source lines to compare on (default: validation's)"
    )
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: one per core)")
    parser.add_argument("--json", action="store_true", help="print what was compared as JSON on stdout")


def _distill(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("teacher", help="the run folder of the large model")
    add("run", help="the student's run folder; one that exists is resumed")
    add("--train", nargs="+", action="append", metavar="FILE", default=[], help="pairs whose sources are translated")
    add("--valid", nargs="+", action="append", metavar="FILE", default=[], help="validation data: real pairs")
    add("--languages", nargs=2, metavar=("SOURCE", "TARGET"), default=[], help="what they are (default: the teacher's)")
    _columns(parser)
    add(
        "--preset",
        choices=sorted(PRESETS),
        default="student",
        help="the student's shape (default: student, 6 + 1 layers of 256, or less for a small teacher)",
    )
    add("--config", metavar="FILE.toml", default="", help="the student's settings from a file")
    _budget(parser, "of the student's training, after the teacher has translated")
    _settings(parser)
    add("--keep-original", action="store_true", help="learn from the given targets too")
    add("--beam", type=int, help="the teacher's (default: its setting)")
    _loading(parser)
    _engine(parser, "auto: CTranslate2 (ct2) on CPUs wherever it can, else PyTorch")
    _loudness(parser)
    add("--json", action="store_true", help="print the result as JSON on stdout")


def _backtranslate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", help="the run folder of a model that translates from the target language to the source language")
    add(
        "folder",
        metavar="DIR",
        help="where made.txt (sources) and given.txt (targets) go; what is there is gone on with",
    )
    add("--input", default="-", metavar="FILE", help="lines of the target language (default: stdin)")
    add("--sample", action="store_true", help="draw the sources instead of searching for the best")
    add("--beam", type=int, help="width of the beam (default: the model's setting)")
    add("--seed", type=int, metavar="N", help="a different seed gives different samples (default: 1)")
    _loading(parser)
    _engine(parser, "auto: CTranslate2 (ct2) on CPUs wherever it can, else PyTorch")
    add("--quiet", action="store_true", help="say nothing but errors")
    add("--json", action="store_true", help="print what was made as JSON on stdout")


def _shortlist(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder")
    parser.add_argument(
        "--train",
        nargs="+",
        action="append",
        metavar="FILE",
        default=[],
        help="pairs to learn from (default: the run's)",
    )
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: one per core)")
    parser.add_argument("--quiet", action="store_true", help="say nothing but errors")


def _average(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="models of one shape and vocabulary")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the model folder to make")
    _weights(parser)


def _import(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command="import_model")  # `import` is a word of Python's
    parser.add_argument("source", help="a folder with config.json and model.safetensors, or with Marian's model.npz")
    parser.add_argument("run", help="the model folder to make")


def _list_settings(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(module="transduce.cli.settings")
    parser.add_argument(
        "name",
        nargs="?",
        default="",
        metavar="NAME",
        help="a setting, such as model.d_model, or a section (default: all)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a list of objects as JSON")
    form.add_argument("--markdown", action="store_true", help="print the page docs/settings.md")


def _serve(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("models", nargs="+", metavar="MODEL", help="a run folder, or SOURCE-TARGET=FOLDER, e.g. en-de=runs/mine")
    _loading(parser)
    _engine(parser, "auto: CTranslate2 (ct2) on CPUs wherever it can, else PyTorch")
    add("--host", default="127.0.0.1", help="the address to listen at (default: 127.0.0.1, this machine only)")
    add("--port", type=int, default=5000, metavar="N", help="the port to listen at (default: 5000)")
    add("--allow-host", nargs="+", action="extend", default=[], metavar="NAME", help="names it is reached by")
    add("--keys", default="", metavar="FILE", help="only for those with a key; `transduce key FILE NAME` makes one")
    add("--open", action="store_true", help="let other machines in without keys")
    add("--batch", type=int, default=16, metavar="N", help="lines computed together; 1: no batching (default: 16)")
    add("--queue", type=int, default=128, metavar="N", help="requests inside at once; more are refused (default: 128)")
    add("--characters", type=int, default=50_000, metavar="N", help="of a request's texts (default: 50000)")


def _key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the file of keys; it is made where there is none")
    parser.add_argument("name", help="whose key it is")
    parser.add_argument("--requests-per-minute", type=int, default=600, metavar="N", help="(default: 600)")
