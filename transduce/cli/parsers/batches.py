"""The options of the command `batch`."""

from transduce.cli.options import (
    JSON_RESULT,
    SHORTLIST,
    Parser,
    add_engine,
    add_loading,
    add_sampling,
    add_search,
    add_target_language,
    add_workers,
)

SHARDS = (
    "Rerun the command to resume: a finished shard is never translated again. Without --on ray, several machines can share "
    "the work as tasks of an array, with --shard and --shards. The exit status is 3 if a shard could not be translated, or if --verify "
    "finds anything missing or damaged."
)


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
