"""The options of the commands that look at models: evaluate, compare, score, attention."""

from transduce.cli.options import (
    AUTO_ENGINE,
    JSON_RESULT,
    OF_NGRAM,
    SHORTLIST,
    Parser,
    add_columns,
    add_engine,
    add_ensemble,
    add_language_model,
    add_metrics,
    add_model,
    add_ngram,
    add_rerank,
    add_search,
)


def evaluate(parser: Parser) -> None:
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
    add_metrics(parser, "metrics to compute", "those of the model's task")
    add(
        "--references",
        choices=["auto", "separate", "merged"],
        default="auto",
        help="score every line separately, as sacreBLEU does, or merge the references of equal sources (default: auto, "
        "merged if sources are single words, as in pronunciation dictionaries)",
    )
    add("--output", metavar="FILE", help="write the translations to this file")
    add("--json", action="store_true", help=JSON_RESULT)
    add("--quiet", action="store_true", help="print the scores and warnings only: no progress, engine or speed")


def score(parser: Parser) -> None:
    add_model(parser)
    add_engine(
        parser, "engine: auto is torch, which scores with the weights as they were trained, without quantization"
    )
    add_columns(parser)
    add_ensemble(parser)
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


def attention(parser: Parser) -> None:
    add_model(parser)
    parser.set_defaults(engine="torch", quantization=None)  # only this engine returns attention weights
    parser.add_argument(
        "sentence", help="source sentence, in quotes; for a speech model, a recording; for a language model, a text"
    )
    parser.add_argument("--target", help="target sentence (default: the model's translation or transcript)")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="file to write: a picture (.png, .pdf, .svg) or, except for recordings, an interactive page (.html)",
    )
