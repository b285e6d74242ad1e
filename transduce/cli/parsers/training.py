"""The options of the commands that train models and average them: demo, paper, train, plan, average."""

from transduce.cli.options import (
    FILES,
    JSON_RESULT,
    Parser,
    add_budget,
    add_columns,
    add_machine,
    add_settings,
    add_verbosity,
    add_weights,
    minutes_given,
)
from transduce.config import PRESETS

TABLES = (
    "Compares kinds of layers (Table 1), the Transformer with recurrent, convolutional and other models (Table 2), and the Transformer with "
    "variations of itself (Table 3), on the CMU pronouncing dictionary and on random sequences. Rerun the command to resume."
)
RESUME = (
    "Settings that are not given are chosen for the data. Rerun the command to resume; with --steps or --epochs the result "
    "is bit-identical to an uninterrupted run."
)
REHEARSAL = (
    "Takes the arguments of `train`. Reads the data and trains a dozen steps, but writes nothing into RUN; prepared data stays in "
    "the cache, where `train` finds it."
)


def demo(parser: Parser) -> None:
    parser.add_argument("folder", nargs="?", default="demo", help="folder for data and model (default: demo)")


def paper(parser: Parser) -> None:
    parser.add_argument(
        "folder", nargs="?", default="paper", help="folder for the data, the results and paper.html (default: paper)"
    )
    parser.add_argument(
        "--minutes", type=minutes_given, metavar="MINUTES", default=10.0, help="about how long to measure (default: 10)"
    )


def train(parser: Parser) -> None:
    parser.add_argument("run", help="run folder to create; an existing run is resumed")
    _training(parser)


def plan(parser: Parser) -> None:
    parser.add_argument("run", nargs="?", default="", help="run folder to create or resume (default: a new run)")
    cluster = parser.add_argument_group("several GPUs", "also predict the run on a cluster; see docs/scaling.md")
    cluster.add_argument("--gpus", type=int, default=0, metavar="N", help="GPUs per machine")
    cluster.add_argument("--nodes", type=int, default=1, metavar="M", help="machines (default: 1)")
    cluster.add_argument(
        "--network", type=float, default=400.0, metavar="GBITS", help="Gb/s per GPU between machines (default: 400)"
    )
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
    add("--preset", choices=sorted(PRESETS), default="", help="named recipe (default: settings chosen for the data)")
    add("--config", metavar="FILE.toml", default="", help="TOML file of settings")
    add_budget(parser)
    add_machine(parser)
    add_settings(parser)
    add_verbosity(parser)
    add("--json", action="store_true", help=JSON_RESULT)


def average(parser: Parser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folders of models with equal shapes and vocabularies"
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="model folder to create")
    add_weights(parser, "weights to take from each run")
