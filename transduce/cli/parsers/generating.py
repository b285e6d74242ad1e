"""The options of the command that continues a text with a language model: generate."""

from transduce.cli.options import Parser, add_loading, add_sampling

STREAMED = "Prints the text while it is generated, until its document ends or it has --max-tokens tokens."


def generate(parser: Parser) -> None:
    add = parser.add_argument
    add("run", help="run folder of the language model")
    add_loading(parser)
    add("--prompt", default="", help="the beginning of the text (default: none, a new document)")
    add_sampling(parser)
    add("--n", type=int, default=1, metavar="N", help="how many texts; needs --sample (default: 1)")
    add("--max-tokens", type=int, default=200, metavar="N", help="most tokens of each text (default: 200)")
    add("--stop", nargs="+", default=[], metavar="TEXT", help="end a text before the first of these strings")
    add("--json", action="store_true", help="print all texts as one JSON object, without the prompt")
