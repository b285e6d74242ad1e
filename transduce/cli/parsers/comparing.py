"""The options of the command `compare`."""

from transduce.cli.options import (
    JSON_RESULT,
    Parser,
    add_engine,
    add_loading,
    add_metrics,
    add_search,
    add_target_language,
)
from transduce.metrics import BLEU_TOKENIZERS

COMPARED = (
    "The first system is the baseline. Run folders are translated once and kept in the cache. p-values are those of sacreBLEU's "
    "paired tests. The exit status is 3 if --fail-if-worse finds a loss."
)


def compare(parser: Parser) -> None:
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
    add_metrics(parser, "metrics, the main one first", "those of the task")
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
