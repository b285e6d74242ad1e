"""The options of the commands about the program itself: settings, report, completion."""

from transduce.cli.options import JSON_RESULT, Parser

NO_PATHS = "It holds no paths and no names of users or machines."
INSTALL = 'For bash, add `eval "$(transduce completion bash)"` to ~/.bashrc; the documentation shows the line for zsh and fish.'


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


def report(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help=JSON_RESULT)


def completion(parser: Parser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell to complete in")
