"""The options of the commands that keep track of runs: runs, clean."""

from transduce.cli.options import JSON_RESULT, Parser

STATES = (
    "A run is running, stopped (rerun its `transduce train` command to resume it), finished, or broken; the table is followed by the "
    "reasons why runs are broken."
)
ASKS = "It asks before it removes anything, and keeps everything that loading, resuming or averaging needs."


def runs(parser: Parser) -> None:
    add = parser.add_argument
    add("folder", nargs="?", default=".", metavar="FOLDER", help="folder to search for runs (default: this one)")
    add("--diff", nargs=2, metavar=("A", "B"), help="show the settings and the data in which two runs differ")
    add("-o", "--output", default="", metavar="FILE", help="with --diff: draw both learning curves (.png, .pdf, .svg)")
    add("--json", action="store_true", help=JSON_RESULT)


def clean(parser: Parser) -> None:
    add = parser.add_argument
    add("folder", nargs="?", default=".", metavar="FOLDER", help="folder with your runs (default: this one)")
    add(
        "--checkpoints",
        action="store_true",
        help="also remove the checkpoints of finished runs; they still translate, but cannot be trained further",
    )
    add(
        "--yes",
        action="store_true",
        help="remove without asking; without it and without a terminal, nothing is removed",
    )
    add("--json", action="store_true", help=JSON_RESULT)
