"""The options of the command `rerank`."""

from transduce.cli.options import JSON_RESULT, Parser, add_columns, add_engine, add_model, add_search
from transduce.metrics import METRICS

JUDGES = (
    "An output is scored by the translator, a language model, a model of the opposite direction and its length. The weights with the "
    "best score on the validation data are written to a file for the option `--rerank` of translate, transcribe and evaluate."
)


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
