"""The options of the command `settings`."""

from transduce.cli.options import Parser


def settings(parser: Parser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        default="",
        metavar="NAME",
        help="a setting, such as model.d_model, or a section (default: all)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a list of objects as JSON")
    form.add_argument("--markdown", action="store_true", help="print the page docs/settings.md")
