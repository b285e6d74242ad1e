"""The options of the command `report`."""

from transduce.cli.options import JSON_RESULT, Parser

NO_PATHS = "The report contains no paths and no names of users or machines."


def report(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help=JSON_RESULT)
