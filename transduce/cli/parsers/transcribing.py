"""The options of the commands for speech: transcribe, ngram."""

from transduce.cli.options import (
    JSON_RESULT,
    OF_NGRAM,
    THREADS,
    Parser,
    add_engine,
    add_language_model,
    add_model,
    add_ngram,
    add_rerank,
    add_search,
)

RECORDINGS = (
    "Texts go to stdout, one line per file; with several files, each line begins with the file and a tab. Long recordings are cut "
    "at silences. The exit status is 2 if a file could not be read; the others are still transcribed."
)
WORDS = "`transcribe --ngram` and `evaluate --ngram` then use it: CTC prefix search with these words, rescored by the decoder."


def transcribe(parser: Parser) -> None:
    add_model(parser)
    add_engine(parser)
    add_search(parser)
    add_ngram(parser)
    add_language_model(parser, OF_NGRAM)
    add_rerank(parser)
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


def ngram(parser: Parser) -> None:
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
        help="the words that the model may write, one per line; the rest of a line is ignored (default: any word)",
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
