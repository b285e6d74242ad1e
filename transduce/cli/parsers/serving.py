"""The options of the commands for servers: serve, key."""

from transduce.audio.recording import TYPES
from transduce.cli.options import Parser, add_engine, add_loading

ROUTES = (
    "The server offers LibreTranslate's API, its own API under /v1, and a web page. It also serves language models and speech models, with "
    "routes that OpenAI's clients can use."
)


def serve(parser: Parser) -> None:
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
    add(
        "--ngram",
        action="store_true",
        help="search in speech models with the n-gram model and lexicon that `transduce ngram` made for each of them, and with "
        "the weights that it tuned",
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


def key(parser: Parser) -> None:
    parser.add_argument("file", help="file that stores the keys; it is created if it does not exist")
    parser.add_argument("name", help="name of the key's owner")
    parser.add_argument(
        "--requests-per-minute", type=int, default=600, metavar="N", help="rate limit of this key (default: 600)"
    )
