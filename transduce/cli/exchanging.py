"""The commands for other toolkits: export, import."""

import sys
from dataclasses import asdict

from transduce import api
from transduce.cli.arguments import Options, print_json
from transduce.translator.engines import say_to_stderr


def export(options: Options) -> int:
    verified = api.export(
        options.run,
        options.folder,
        options.to,
        weights=options.weights,
        sample=options.sample,
        threads=options.threads,
    )
    print(f"{options.folder}: {verified.summary()}", file=sys.stderr)
    if options.json:
        print_json(asdict(verified))
    return 0


def import_model(options: Options) -> int:
    taken = api.import_model(options.source, options.run)
    print(f"{options.run}: {taken.origin}, {taken.parameters / 1e6:.1f} M parameters", file=sys.stderr)
    for note in taken.notes:
        say_to_stderr(note)
    return 0
