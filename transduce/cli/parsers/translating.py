"""The options of the commands that translate, and that make it faster: translate, shortlist."""

from transduce.cli.options import (
    SHORTLIST,
    THREADS,
    Parser,
    add_engine,
    add_ensemble,
    add_language_model,
    add_model,
    add_rerank,
    add_sampling,
    add_search,
)

LINES = (
    "Translations go to stdout, one per line. The model takes each line as one sentence; for lines of several sentences, add "
    "--split."
)
FASTER = "`translate --shortlist` is then faster on CPUs."


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
    add(
        "--n-best",
        type=int,
        default=1,
        metavar="N",
        help="print up to N outputs for each line as `line ||| text ||| score`",
    )
    add_sampling(parser)
    add("--split", action="store_true", help="split each line into sentences, and keep the text between them")
    add("--prefix", metavar="FILE", help="file with one prefix per input line; the output must start with it")
    add("--terms", metavar="FILE", help="file with the phrases that each line's output must contain, separated by tabs")
    add_language_model(parser)
    add_rerank(parser)
    add("--alignments", choices=["pharaoh"], help="append word alignments: `text ||| 0-0 1-2` (source-output)")
    add("--shortlist", action="store_true", help=SHORTLIST)
    add("--replace-unknown", action="store_true", help="replace <unk> by the source word it is aligned with")
    add_ensemble(parser)
    add("--json", action="store_true", help="print a JSON object for each line: texts, tokens, log-probabilities")
    add("--quiet", action="store_true", help="print no warnings, such as about cut lines and unknown tokens")


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
