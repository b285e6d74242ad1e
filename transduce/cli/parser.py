"""The commands and options of the command line. Imports nothing heavy, so that `transduce --help` answers at once."""

import argparse
import difflib
from collections.abc import Callable, Sequence
from typing import Any

from transduce import __version__
from transduce.audio.recording import TYPES
from transduce.cli.options import (
    AUTO_ENGINE,
    SEED,
    THREADS,
    Parser,
    add_budget,
    add_columns,
    add_engine,
    add_ensemble,
    add_language_model,
    add_loading,
    add_machine,
    add_model,
    add_ngram,
    add_rerank,
    add_sampling,
    add_search,
    add_settings,
    add_target_language,
    add_verbosity,
    add_weights,
    add_workers,
)
from transduce.config import PRESETS
from transduce.metrics import BLEU_TOKENIZERS, METRICS

FILES = (
    "two aligned text files, or one .tsv or .jsonl file; files may be compressed (.gz, .xz, .bz2), pipes, or - for stdin; "
    "repeat the option for several corpora"
)
OF_NGRAM = "; with --ngram: the weight of the n-gram model (default: as tuned)"
JSON_RESULT = "print the result as JSON on stdout"
SHORTLIST = "consider only the output tokens listed by `transduce shortlist`, which is faster (ct2 engine only)"
EXAMPLES = """examples:
  transduce demo
  transduce train runs/en-de --train train.en train.de --valid valid.en valid.de --languages en de
  transduce translate runs/en-de < input.en > output.de
  transduce evaluate runs/en-de test.en test.de
  transduce attention runs/en-de "a sentence" -o attention.png
"""


class CommandParser(Parser):
    """The parser of one command: an unknown argument is an error with the usage of this command."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        options, unknown = super().parse_known_args(args, namespace)
        # argparse accepts an optional FILE only directly after RUN; in `translate RUN --beam 4 FILE` it is left over.
        if len(unknown) == 1 and not unknown[0].startswith("-") and getattr(options, "file", "") is None:
            options.file = unknown.pop()
        # Likewise the files of `batch RUN --beam 4 FILE...`.
        if getattr(options, "inputs", None) == [] and not any(word.startswith("-") for word in unknown):
            options.inputs, unknown = unknown, []
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest(unknown)}")
        return options, unknown

    def _nearest(self, unknown: Sequence[str]) -> str:
        known = list(self._option_string_actions)
        asked = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        close = [near for word in asked for near in difflib.get_close_matches(word, known, n=1)]
        return f"; did you mean {close[0]}?" if close else ""


def make_parser() -> Parser:
    """The parser with every command and option. Each command names the module of `transduce.cli` with its function."""
    parser = Parser(
        prog="transduce",
        description="Train Transformers on pairs of sequences, speech or text; use, score, inspect and serve them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"transduce {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=CommandParser)

    def add(module: str, name: str, arguments: Callable[[Parser], None], summary: str, more: str = "") -> None:
        description = f"{summary[0].upper()}{summary[1:]}. {more}".strip()
        command = commands.add_parser(name, help=summary, description=description)
        command.set_defaults(module=f"transduce.cli.{module}")
        arguments(command)

    add("training", "demo", _demo, "train, score and use a small model on the CMU pronouncing dictionary")
    add(
        "training",
        "paper",
        _paper,
        "measure small versions of the paper's three tables, and write them to one page",
        TABLES,
    )
    add("training", "train", _train, "train a model, or resume a run", RESUME)
    add("examining", "doctor", _doctor, "look for problems in training, validation and test data", EXIT_STATUS)
    add("training", "plan", _plan, "predict the time, memory and disk of a training run", REHEARSAL)
    add("translating", "translate", _translate, "translate the lines of a file or of stdin", LINES)
    add("transcribing", "transcribe", _transcribe, "turn recordings of speech into text", RECORDINGS)
    add("batches", "batch", _batch, "translate files of any size in shards, here or on many machines", SHARDS)
    add("measuring", "evaluate", _evaluate, "translate a test set and score the translations")
    add(
        "comparing",
        "compare",
        _compare,
        "compare systems on a test set: is the difference real, and where is it",
        COMPARED,
    )
    add("reranking", "rerank", _rerank, "tune the weights with which n-best lists are reranked", JUDGES)
    add(
        "measuring",
        "score",
        _score,
        "print the log-probability of given pairs, or how well a language model predicts text",
    )
    add("generating", "generate", _generate, "continue a prompt with a language model", STREAMED)
    add("measuring", "attention", _attention, "draw the attention weights for a sentence")
    add("exchanging", "export", _export, "export a model for another runtime", EXPORT)
    add("training", "distill", _distill, "train a small, fast model on the translations of a large one", TEACHER)
    add("training", "backtranslate", _backtranslate, "translate target-language text to make training pairs", RERUN)
    add("training", "shortlist", _shortlist, "learn which output tokens a sentence is likely to need", FASTER)
    add("training", "ngram", _ngram, "learn an n-gram model of words for a speech model, and tune its weights", WORDS)
    add("training", "average", _average, "average the weights of several models")
    add("exchanging", "import", _import, "import a Marian model, from Hugging Face or in Marian's own format")
    add("tracking", "runs", _runs, "list the runs under a folder, or compare two of them", STATES)
    add("tracking", "clean", _clean, "show what the cache and old checkpoints take, and remove what no run needs", ASKS)
    add("settings", "settings", _list_settings, "list the settings, or explain one")
    add("serving", "serve", _serve, "serve models over HTTP", ROUTES)
    add("serving", "key", _key, "create an API key for a server")
    add("reporting", "report", _report, "print the versions and devices that matter for a bug report", NO_PATHS)
    add(
        "completion",
        "completion",
        _completion,
        "print a script that completes commands and options in a shell",
        INSTALL,
    )
    return parser


TABLES = (
    "Compares kinds of layers (Table 1), the Transformer with recurrent, convolutional and other models (Table 2), and the Transformer with "
    "variations of itself (Table 3), on the CMU pronouncing dictionary and on random sequences. Rerun the command to resume."
)
RESUME = (
    "Settings that are not given are fitted to the data. Rerun the command to resume; with --steps or --epochs the result "
    "is bit-identical to an uninterrupted run."
)
EXIT_STATUS = (
    "Every file is read once on all cores. The findings are printed with examples and what to do, the most serious first. The "
    "exit status is 3 if anything serious was found."
)
REHEARSAL = (
    "Takes the arguments of `train`. Reads the data and trains a dozen steps, but writes nothing into RUN; prepared data stays in "
    "the cache, where `train` finds it."
)
LINES = (
    "Translations go to stdout, one per line. The model takes each line as one sentence; for lines of several sentences, add "
    "--split."
)
RECORDINGS = (
    "Texts go to stdout, one line per file; with several files, each line begins with the file and a tab. Long recordings are cut "
    "at silences. The exit status is 2 if a file could not be read; the others are transcribed all the same."
)
SHARDS = (
    "Rerun the command to resume: a finished shard is never translated again. Without --on ray, several machines can share "
    "the work as tasks of an array, with --shard and --shards. The exit status is 3 if a shard could not be translated, or if --verify "
    "finds anything missing or damaged."
)
COMPARED = (
    "The first system is the baseline. Run folders are translated once and kept in the cache. p-values are those of sacreBLEU's "
    "paired tests. The exit status is 3 if --fail-if-worse finds a loss."
)
JUDGES = (
    "An output is scored by the translator, a language model, a model of the opposite direction and its length. The weights with the "
    "best score on the validation data are written to a file for `translate --rerank`."
)
STREAMED = "The text is printed as it is written, until its document ends or --max-tokens are written."
EXPORT = (
    "The export is kept only if the other runtime gives the same translations on sample sentences. A language model must predict "
    "and continue sample texts in the same way."
)
RERUN = "Rerun the command to resume."
TEACHER = (
    f"{RERUN} --device, --threads, --engine, --quantization, --weights, --beam, --to, --workers and --on apply to the teacher only; use --set for the "
    "student, for example --set train.device=cpu train.threads=4."
)
WORDS = "`transcribe --ngram` and `evaluate --ngram` then use it: CTC prefix search with these words, rescored by the decoder."
FASTER = "`translate --shortlist` is then faster on CPUs."
STATES = (
    "A run is running, stopped (rerun its `transduce train` command to resume it), finished, or broken; what is wrong with a "
    "broken run is printed below the table."
)
ASKS = "Nothing is removed without asking, and nothing that loading, resuming or averaging needs."
NO_PATHS = "It holds no paths and no names of users or machines."
INSTALL = 'For bash, add `eval "$(transduce completion bash)"` to ~/.bashrc; the documentation shows the line for zsh and fish.'
ROUTES = (
    "The server offers LibreTranslate's API, an API of its own under /v1, and a web page. Language models and speech models are served too, "
    "also in OpenAI's form."
)


def _demo(parser: Parser) -> None:
    parser.add_argument("folder", nargs="?", default="demo", help="folder for data and model (default: demo)")


def _paper(parser: Parser) -> None:
    parser.add_argument(
        "folder", nargs="?", default="paper", help="folder for the data, the results and paper.html (default: paper)"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="about how long to measure (default: 10)")


def _plan(parser: Parser) -> None:
    parser.add_argument("run", nargs="?", default="", help="run folder to create or resume (default: a new run)")
    cluster = parser.add_argument_group("several GPUs", "also predict the run on a cluster; see docs/scaling.md")
    cluster.add_argument("--gpus", type=int, default=0, metavar="N", help="GPUs per machine")
    cluster.add_argument("--nodes", type=int, default=1, metavar="M", help="machines (default: 1)")
    cluster.add_argument(
        "--network", type=float, default=400.0, metavar="GBITS", help="Gb/s per GPU between machines (default: 400)"
    )
    _training(parser)


def _train(parser: Parser) -> None:
    parser.add_argument("run", help="run folder to create; an existing run is resumed")
    _training(parser)


def _training(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--train",
        nargs="+",
        action="append",
        metavar="FILE",
        default=[],
        help=f"training data: {FILES}; may be left out when resuming",
    )
    add(
        "--valid",
        nargs="+",
        action="append",
        metavar="FILE",
        default=[],
        help="validation data, in the same forms (default: some of the training data is held out)",
    )
    add(
        "--text",
        nargs="+",
        metavar="FILE",
        default=[],
        help="text files, to train a language model instead of a translator; data.documents says what a document is",
    )
    add(
        "--valid-text",
        nargs="+",
        metavar="FILE",
        default=[],
        help="text files for validation (default: the end of each file of --text is held out)",
    )
    add("--languages", nargs=2, metavar=("SOURCE", "TARGET"), default=[], help="language codes, such as en de")
    add_columns(parser)
    add("--from", dest="start_from", metavar="MODEL", default="", help="run folder whose weights to start from")
    add(
        "--vocabulary",
        metavar="RUN",
        default="",
        help="run folder whose vocabulary to use; a language model uses its target vocabulary, so that it can help to "
        "translate (translate --lm)",
    )
    add("--preset", choices=sorted(PRESETS), default="", help="named recipe (default: settings fitted to the data)")
    add("--config", metavar="FILE.toml", default="", help="TOML file of settings")
    add_budget(parser)
    add_machine(parser)
    add_settings(parser)
    add_verbosity(parser)
    add("--json", action="store_true", help=JSON_RESULT)


def _doctor(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--train",
        nargs="+",
        action="append",
        metavar="FILE",
        required=True,
        help=f"training data: {FILES}",
    )
    add("--valid", nargs="+", action="append", metavar="FILE", default=[], help="validation data, in the same forms")
    add("--test", nargs="+", action="append", metavar="FILE", default=[], help="test data, in the same forms")
    add("--languages", nargs=2, metavar=("SOURCE", "TARGET"), default=[], help="language codes, such as en de")
    add_columns(parser)
    add("--preset", choices=sorted(PRESETS), default="", help="named recipe that `train` would use")
    add("--config", metavar="FILE.toml", default="", help="TOML file of settings that `train` would use")
    add_settings(parser)
    add_budget(parser)
    add(
        "--threshold",
        nargs="+",
        action="extend",
        metavar="NAME=VALUE",
        default=[],
        help="limits of rules, such as largest_ratio=4 (default: what keeps 99.9 %% of the validation data; built-in limits with "
        "fewer than 5,000 validation pairs); the report lists them",
    )
    add("--fast", action="store_true", help="leave out near-duplicates and the identification of languages")
    add("--write", metavar="DIR", default="", help="write clean training files and removed.tsv to this new folder")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--keep",
        nargs="+",
        action="extend",
        metavar="RULE",
        default=[],
        help="with --write: rules whose pairs are reported, but not left out, such as unmatched_numbers",
    )
    chosen.add_argument(
        "--only",
        nargs="+",
        action="extend",
        metavar="RULE",
        default=[],
        help="with --write: leave out pairs by these rules only, also by rules that usually only report, such as html_tags",
    )
    add("--html", metavar="FILE", default="", help="write the report as a page with histograms and all examples")
    add("--model", metavar="RUN", default="", help="also rank the pairs by this model's cross-entropy")
    add("--reverse", metavar="RUN", default="", help="with --model: a model of the opposite direction")
    add("--processes", type=int, default=0, metavar="N", help="number of processes (default: one for each core)")
    add("--json", action="store_true", help="print the report as JSON on stdout")
    add(
        "--quiet",
        action="store_true",
        help="print no report and no progress; the exit status says whether anything serious was found",
    )


def _translate(parser: Parser) -> None:
    add_model(parser)
    add_engine(parser)
    add_search(parser)
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="file to translate; may be .gz, .xz or .bz2 (default: stdin)")
    add("--input", metavar="FILE", help="the same as FILE")
    add(
        "--columns",
        metavar="source=1,features=2",
        default="",
        help="columns of a TSV input, by number (default: the whole line; for a model trained with features: word, tab, features)",
    )
    add("--n-best", type=int, default=1, metavar="N", help="print N outputs for each line as `line ||| text ||| score`")
    add_sampling(parser)
    add("--split", action="store_true", help="split each line into sentences, and keep what stands between them")
    add("--prefix", metavar="FILE", help="file with one prefix per input line; the output must start with it")
    add("--terms", metavar="FILE", help="file with the phrases that each line's output must contain, separated by tabs")
    add_language_model(parser)
    add_rerank(parser)
    add("--alignments", choices=["pharaoh"], help="append word alignments: `text ||| 0-0 1-2` (source-output)")
    add("--shortlist", action="store_true", help=SHORTLIST)
    add("--replace-unknown", action="store_true", help="replace <unk> by the source word it is aligned with")
    add_ensemble(parser)
    add("--json", action="store_true", help="print a JSON object for each line: texts, tokens, log-probabilities")
    add("--quiet", action="store_true", help="do not report cut lines, unknown tokens and the like")


def _transcribe(parser: Parser) -> None:
    add_model(parser)
    add_engine(parser)
    add_search(parser)
    add_ngram(parser)
    add_language_model(parser, OF_NGRAM)
    add = parser.add_argument
    add(
        "files",
        nargs="+",
        metavar="FILE",
        help="recordings (wav, flac, ogg, opus, mp3), parts of them (talk.flac#t=10,20), or - for sound on stdin: a file, or "
        "16-bit samples of one channel",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json",
        action="store_true",
        help="print a JSON object for each file: text, segments and words with times and confidences",
    )
    form.add_argument("--srt", action="store_true", help="write subtitles in the format SRT")
    form.add_argument("--vtt", action="store_true", help="write subtitles in the format WebVTT")
    add(
        "-o",
        "--output",
        default="",
        metavar="DIR",
        help="write a file for each recording to this folder, with its name and the ending txt, json, srt or vtt",
    )
    add(
        "--rate",
        type=int,
        metavar="HZ",
        help="samples per second of 16-bit samples without a header on stdin (default: 16000)",
    )
    add("--quiet", action="store_true", help="do not report which engine is used")


def _batch(parser: Parser) -> None:
    add = parser.add_argument
    add("run", nargs="?", default="", help="run folder of the model; may be left out with --verify or --collect")
    add(
        "inputs",
        nargs="*",
        metavar="FILE",
        help="files or patterns: plain text, .tsv or .jsonl (also as .gz, .xz or .bz2), or .parquet; all of one format",
    )
    add(
        "-o", "--output", required=True, metavar="DIR", help="folder for the shards; a folder that was begun is resumed"
    )
    add(
        "--columns",
        metavar="source=NAME",
        default="",
        help="the column of a table to translate: a number or a name in the header line of TSV, a key of JSONL, a column of "
        "parquet; source=word,features=tags for a model that reads features",
    )
    add("--into", metavar="NAME", default="translation", help="column to add to a table (default: translation)")
    add("--shard-lines", type=int, default=100_000, metavar="N", help="lines per shard (default: 100000)")
    where = parser.add_argument_group("where to run")
    add_workers(where)
    where.add_argument(
        "--shard", type=int, metavar="I", help="number of this task, from 0: it takes every N-th shard from I"
    )
    where.add_argument("--shards", type=int, metavar="N", help="number of tasks that share the work")
    after = parser.add_argument_group("before and after")
    after.add_argument("--prepare", action="store_true", help="write the manifest only, as the first step of an array")
    after.add_argument("--verify", action="store_true", help="count and hash all shards and inputs again")
    after.add_argument(
        "--collect", metavar="FILE", default="", help="join the shards in one file (.gz, .xz, .bz2 compress it)"
    )
    add_target_language(parser)
    add_loading(parser)
    add_engine(parser)
    add("--shortlist", action="store_true", help=SHORTLIST)
    add_search(parser)
    add_sampling(parser)
    add("--json", action="store_true", help=JSON_RESULT)
    add("--quiet", action="store_true", help="print only errors and failures")


def _evaluate(parser: Parser) -> None:
    add_model(parser)
    add = parser.add_argument
    add("--shortlist", action="store_true", help=SHORTLIST)
    add_engine(parser, f"{AUTO_ENGINE}; both compares the scores of torch and ct2", "both")
    add_language_model(parser, OF_NGRAM)
    add_rerank(parser)
    add(
        "files",
        nargs="+",
        metavar="FILE",
        help="a SOURCE file and one or more REFERENCE files; or one .tsv or .jsonl file; - is stdin",
    )
    add_search(parser)
    add_ngram(parser)
    add_columns(parser)
    add_ensemble(parser)
    add(
        "--metrics",
        nargs="+",
        type=str.lower,
        choices=METRICS,
        metavar="NAME",
        default=[],
        help=f"metrics to compute: {', '.join(METRICS)} (default: those of the model's task)",
    )
    add(
        "--references",
        choices=["auto", "separate", "merged"],
        default="auto",
        help="score every line separately, as sacreBLEU does, or merge the references of equal sources (default: auto, "
        "merged if sources are single words, as in pronunciation dictionaries)",
    )
    add("--output", metavar="FILE", help="write the translations to this file")
    add("--json", action="store_true", help=JSON_RESULT)


def _compare(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "systems",
        nargs="+",
        metavar="SYSTEM",
        help="run folder, or file with one output per line; NAME=RUN1,RUN2,RUN3 gives several seeds of a system",
    )
    add("--source", required=True, metavar="FILE", help="sources, or one .tsv or .jsonl file with both sides")
    add("--reference", action="append", default=[], metavar="FILE", help="references; repeat for several")
    add(
        "--labels",
        metavar="FILE",
        default="",
        help="a label for each line, such as its corpus, to give scores by label",
    )
    add("--language", metavar="CODE", default="", help="language of the outputs (default: that of the first run)")
    add(
        "--tokenize",
        choices=BLEU_TOKENIZERS,
        metavar="NAME",
        default="",
        help=f"tokenizer of BLEU: {', '.join(BLEU_TOKENIZERS)}; none for text that is tokenized already (default: by language)",
    )
    add(
        "--metrics",
        nargs="+",
        type=str.lower,
        choices=METRICS,
        metavar="NAME",
        default=[],
        help=f"metrics, the main one first: {', '.join(METRICS)} (default: those of the task)",
    )
    add(
        "--test",
        choices=["bootstrap", "randomization"],
        default="bootstrap",
        help="paired bootstrap (the default) or approximate randomization",
    )
    add("--samples", type=int, metavar="N", help="samples of the test (default: 1000, or 10000 to randomize)")
    add(
        "--merge",
        choices=["auto", "separate", "merged"],
        default="auto",
        help="score every line separately, or merge the references of equal sources (default: auto, as in evaluate)",
    )
    add("--columns", metavar="source=1,target=2", default="", help="columns of a TSV file, or keys of a JSONL file")
    add("--html", metavar="FILE.html", default="", help="write an interactive page that needs no network")
    add(
        "--explorer",
        metavar="URL",
        default="http://127.0.0.1:5000/",
        help="server that the links of the page open (default: http://127.0.0.1:5000/)",
    )
    add(
        "--fail-if-worse",
        action="store_true",
        help="exit with status 3 if a system is significantly worse than the baseline on the main metric",
    )
    add("--json", action="store_true", help=JSON_RESULT)
    add("--quiet", action="store_true", help="print no messages to stderr")
    add_target_language(parser, "runs")
    add_search(parser)
    add_engine(parser)
    add_loading(parser)


def _rerank(parser: Parser) -> None:
    add_model(parser)
    add = parser.add_argument
    add(
        "files",
        nargs="+",
        metavar="FILE",
        help="validation data: a SOURCE file and one or more REFERENCE files; or one .tsv or .jsonl file",
    )
    add("-o", "--output", required=True, metavar="FILE", help="file to write the weights to, such as rerank.json")
    add("--lm", metavar="RUN", default="", help="language model of the target language, with any vocabulary")
    add("--reverse", metavar="RUN", default="", help="model that translates from the target to the source language")
    add("--n-best", type=int, default=10, metavar="N", help="outputs in each list (default: 10)")
    add("--metric", type=str.lower, choices=METRICS, default="", help="metric to tune for (default: that of the task)")
    add("--seed", type=int, default=1, metavar="N", help="seed of the search for weights (default: 1)")
    add_engine(parser)
    add_search(parser)
    add_columns(parser)
    add("--json", action="store_true", help=JSON_RESULT)
    add("--quiet", action="store_true", help="print only errors")


def _score(parser: Parser) -> None:
    add_model(parser)
    add_engine(
        parser, "engine: auto is torch, which scores with the weights as they were trained, without quantization"
    )
    add_columns(parser)
    add = parser.add_argument
    add("files", nargs="*", metavar="FILE", help="a SOURCE and a TARGET file, or one .tsv or .jsonl file; - is stdin")
    add(
        "--text",
        nargs="+",
        metavar="FILE",
        default=[],
        help="text files instead of pairs, for a language model: bits per byte, nats per token and perplexity per word",
    )
    add(
        "--stride",
        type=int,
        metavar="N",
        help="tokens from one window of the text to the next (default: both the model's context and half of it)",
    )
    add("--json", action="store_true", help="print a JSON object for each pair, with the log-probability of each token")


def _generate(parser: Parser) -> None:
    add = parser.add_argument
    add("run", help="run folder of the language model")
    add_loading(parser)
    add("--prompt", default="", help="the beginning of the text (default: none, a new document)")
    add_sampling(parser)
    add("--n", type=int, default=1, metavar="N", help="how many texts; needs --sample (default: 1)")
    add("--max-tokens", type=int, default=200, metavar="N", help="most tokens of each text (default: 200)")
    add("--stop", nargs="+", default=[], metavar="TEXT", help="end a text before the first of these strings")
    add("--json", action="store_true", help="print all texts as one JSON object, without the prompt")


def _attention(parser: Parser) -> None:
    add_model(parser)
    parser.set_defaults(engine="torch", quantization=None)  # only this engine returns attention weights
    parser.add_argument("sentence", help="source sentence, in quotes; for a language model, a text")
    parser.add_argument("--target", help="target sentence (default: the model's translation)")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="file to write: a picture (.png, .pdf, .svg) or an interactive page (.html)",
    )


def _export(parser: Parser) -> None:
    add = parser.add_argument
    add("run", help="run folder of the model")
    add("folder", metavar="DIR", help="folder to create")
    add(
        "--to",
        choices=["hf", "ct2", "onnx"],
        required=True,
        help="hf: Hugging Face transformers; ct2: CTranslate2; onnx: onnxruntime. Each needs an extra: pip install "
        "'transduce[hf]'",
    )
    add_weights(parser)
    add(
        "--sample",
        metavar="FILE",
        default="",
        help="source lines, or text, to compare on (default: the run's validation data)",
    )
    add("--threads", type=int, default=0, help=THREADS)
    add("--json", action="store_true", help="print the comparison as JSON on stdout")


def _distill(parser: Parser) -> None:
    add = parser.add_argument
    add("teacher", help="run folder of the large model")
    add("run", help="run folder of the student to create; an existing run is resumed")
    add(
        "--train",
        nargs="+",
        action="append",
        metavar="FILE",
        default=[],
        help="training data, whose sources the teacher translates",
    )
    add(
        "--valid",
        nargs="+",
        action="append",
        metavar="FILE",
        default=[],
        help="validation data, which the teacher does not translate",
    )
    add(
        "--languages",
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        default=[],
        help="language codes (default: the teacher's)",
    )
    add_columns(parser)
    add(
        "--preset",
        choices=sorted(PRESETS),
        default="student",
        help="recipe for the student (default: student, 6 + 1 layers of width 256, or less for a small teacher)",
    )
    add("--config", metavar="FILE.toml", default="", help="TOML file of settings of the student")
    add_budget(parser, "time for training the student, after the teacher has translated")
    add_settings(parser)
    add("--keep-original", action="store_true", help="also train on the original targets")
    add("--beam", type=int, help="beam size of the teacher (default: its setting)")
    add_target_language(parser, "teachers")
    add_loading(parser)
    add_engine(parser)
    add_workers(parser)
    add_verbosity(parser)
    add("--json", action="store_true", help=JSON_RESULT)


def _backtranslate(parser: Parser) -> None:
    add = parser.add_argument
    add("model", help="run folder of a model that translates from the target language to the source language")
    add("folder", metavar="DIR", help="folder for made.txt (sources) and given.txt (targets)")
    add(
        "file", nargs="?", metavar="FILE", help="lines of the target language; may be .gz, .xz or .bz2 (default: stdin)"
    )
    add("--input", metavar="FILE", help="the same as FILE")
    add("--sample", action="store_true", help="sample sources instead of searching for the best ones")
    add("--beam", type=int, help="beam size (default: the model's setting)")
    add("--seed", type=int, metavar="N", help=SEED)
    add_target_language(parser)
    add_loading(parser)
    add_engine(parser)
    add_workers(parser)
    add("--quiet", action="store_true", help="print only errors")
    add("--json", action="store_true", help=JSON_RESULT)


def _shortlist(parser: Parser) -> None:
    add = parser.add_argument
    add("run", help="run folder of the model")
    add(
        "--train",
        nargs="+",
        action="append",
        metavar="FILE",
        default=[],
        help="pairs to learn from (default: the run's training data)",
    )
    add("--threads", type=int, default=0, help=THREADS)
    add("--quiet", action="store_true", help="print only errors")


def _ngram(parser: Parser) -> None:
    add = parser.add_argument
    add("run", help="run folder of a speech model")
    add(
        "texts",
        nargs="*",
        metavar="FILE",
        help="text to learn from: plain text with one sentence per line, or manifests (default: the transcripts of the run's training data)",
    )
    add("--order", type=int, default=3, help="longest n-grams, from 1 to 6 (default: 3)")
    add(
        "--lexicon",
        default="",
        metavar="FILE",
        help="the words that may be written, one per line; what follows a word is not used (default: any word)",
    )
    add("--arpa", default="", metavar="FILE", help="use this finished n-gram model instead of learning one")
    add(
        "--valid",
        nargs="+",
        action="append",
        metavar="FILE",
        default=[],
        help="manifest to tune the weights on (default: the run's validation data)",
    )
    add("--no-tune", action="store_true", help="keep the default weights")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="where the weights are tuned (default: auto)")
    add("--threads", type=int, default=0, help=THREADS)
    add("--quiet", action="store_true", help="print only errors")
    add("--json", action="store_true", help=JSON_RESULT)


def _average(parser: Parser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folders of models with equal shapes and vocabularies"
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="model folder to create")
    add_weights(parser, "weights to take from each run")


def _import(parser: Parser) -> None:
    parser.set_defaults(command="import_model")  # `import` is a keyword of Python
    parser.add_argument("source", help="folder with config.json and model.safetensors, or with Marian's model.npz")
    parser.add_argument("run", help="model folder to create")


def _runs(parser: Parser) -> None:
    add = parser.add_argument
    add("folder", nargs="?", default=".", metavar="FOLDER", help="folder to search for runs (default: this one)")
    add("--diff", nargs=2, metavar=("A", "B"), help="show the settings and the data in which two runs differ")
    add("-o", "--output", default="", metavar="FILE", help="with --diff: draw both learning curves (.png, .pdf, .svg)")
    add("--json", action="store_true", help=JSON_RESULT)


def _clean(parser: Parser) -> None:
    add = parser.add_argument
    add("folder", nargs="?", default=".", metavar="FOLDER", help="folder with your runs (default: this one)")
    add(
        "--checkpoints",
        action="store_true",
        help="also remove the checkpoints of finished runs; they still translate, but cannot be trained further",
    )
    add(
        "--yes",
        action="store_true",
        help="remove without asking; without it and without a terminal, nothing is removed",
    )
    add("--json", action="store_true", help=JSON_RESULT)


def _list_settings(parser: Parser) -> None:
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


def _serve(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "models",
        nargs="+",
        metavar="MODEL",
        help="run folder, or SOURCE-TARGET=FOLDER, such as en-de=runs/mine; language and speech models: NAME=FOLDER",
    )
    add_loading(parser)
    add_engine(parser)
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)")
    add("--port", type=int, default=5000, metavar="N", help="port to listen on (default: 5000)")
    add(
        "--allow-host",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="host names that clients may use besides localhost and IP addresses",
    )
    add("--keys", default="", metavar="FILE", help="require an API key from this file (`transduce key` creates keys)")
    add("--open", action="store_true", help="accept requests from other machines without keys")
    add(
        "--replicas",
        type=int,
        default=1,
        metavar="N",
        help="servers that share the requests behind a proxy; each admits 1/N of a key's rate (default: 1)",
    )
    add(
        "--batch",
        type=int,
        default=16,
        metavar="N",
        help="maximum lines per batch; 1 disables batching (default: 16)",
    )
    add(
        "--queue",
        type=int,
        default=128,
        metavar="N",
        help="maximum requests in progress; further requests are refused (default: 128)",
    )
    add("--characters", type=int, default=50_000, metavar="N", help="maximum characters per request (default: 50000)")
    add(
        "--max-tokens",
        type=int,
        default=4_096,
        metavar="N",
        help="maximum tokens that a language model generates per request (default: 4096)",
    )
    recordings = parser.add_argument_group("recordings", "limits on what is sent to speech models").add_argument
    recordings("--audio-bytes", type=int, default=25_000_000, metavar="N", help="maximum bytes (default: 25000000)")
    recordings("--audio-seconds", type=float, default=600.0, metavar="S", help="maximum length (default: 600)")
    recordings(
        "--audio-types", nargs="+", default=TYPES, metavar="TYPE", help=f"accepted types (default: {' '.join(TYPES)})"
    )
    recordings(
        "--uploads",
        type=int,
        default=16,
        metavar="N",
        help="maximum recordings in memory; further uploads are refused (default: 16)",
    )


def _key(parser: Parser) -> None:
    parser.add_argument("file", help="file that stores the keys; it is created if it does not exist")
    parser.add_argument("name", help="name of the key's owner")
    parser.add_argument(
        "--requests-per-minute", type=int, default=600, metavar="N", help="rate limit of this key (default: 600)"
    )


def _report(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help=JSON_RESULT)


def _completion(parser: Parser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell to complete in")
