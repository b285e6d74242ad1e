"""The options of the command that looks at data before training: doctor."""

from transduce.cli.options import FILES, Parser, add_budget, add_columns, add_settings
from transduce.config import PRESETS

EXIT_STATUS = (
    "Reads every file once, on all cores. Prints the findings with examples and advice, the most serious first. The exit status is 3 if "
    "anything serious was found."
)


def doctor(parser: Parser) -> None:
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
        help="with --write: remove only the pairs that these rules find; rules that otherwise only report, such as html_tags, are allowed",
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
