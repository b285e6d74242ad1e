"""`transduce report`: what to put into a bug report."""

from transduce import api
from transduce.cli.arguments import Options, print_json
from transduce.environment import described


def report(options: Options) -> int:
    if options.json:
        print_json(api.report())
    else:
        print("\n".join(described(api.report())))
    return 0
