"""The options of the command `completion`."""

from transduce.cli.options import Parser

INSTALL = 'For bash, add `eval "$(transduce completion bash)"` to ~/.bashrc; the documentation shows the line for zsh and fish.'


def completion(parser: Parser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="your shell")
