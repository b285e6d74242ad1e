"""The options of the commands that translate, and that prepare faster or better translation: translate, batch, shortlist, rerank."""

from transduce.cli.options import (
    JSON_RESULT,
    SHORTLIST,
    THREADS,
    Parser,
    add_columns,
    add_engine,
    add_ensemble,
    add_language_model,
    add_loading,
    add_model,
    add_rerank,
    add_sampling,
    add_search,
    add_target_language,
    add_workers,
)
from transduce.metrics import METRICS

LINES = (
    "Translations go to stdout, one per line. The model takes each line as one sentence; for lines of several sentences, add "
    "--split."
)
SHARDS = (
    "Rerun the command to resume: a finished shard is never translated again. Without --on ray, several machines can share "
    "the work as tasks of an array, with --shard and --shards. The exit status is 3 if a shard could not be translated, or if --verify "
    "finds anything missing or damaged."
)
FASTER = "`translate --shortlist` is then faster on CPUs."
JUDGES = (
    "An output is scored by the translator, a language model, a model of the opposite direction and its length. The weights with the "
    "best score on the validation data are written to a file for `translate --rerank`."
)


def translate(parser: Parser) -> None:
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


def batch(parser: Parser) -> None:
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


def shortlist(parser: Parser) -> None:
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


def rerank(parser: Parser) -> None:
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
