"""The commands that train on what models write, or prepare it: distill, backtranslate."""

from dataclasses import asdict
from pathlib import Path

from transduce import api
from transduce.cli.arguments import Options, announce_stdin, check_sampling, input_file, load_options, print_json
from transduce.cli.lines import Lines
from transduce.cli.training import finish, training_arguments


def distill(options: Options) -> int:
    arguments, teacher = training_arguments(options, []), load_options(options)
    return finish(
        options,
        lambda: api.distill(
            options.teacher,
            options.run,
            keep_original=options.keep_original,
            to=options.to,
            beam=options.beam,
            options=teacher,
            on=options.on,
            workers=options.workers,
            **arguments,
        ),
    )


def backtranslate(options: Options) -> int:
    check_sampling(options)
    options.input = input_file(options)
    announce_stdin(options)
    made = api.backtranslate(
        options.model,
        Lines(options.input),
        options.folder,
        to=options.to,
        beam=options.beam,
        sampling=options.sample,
        seed=1 if options.seed is None else options.seed,
        options=load_options(options),
        on=options.on,
        workers=options.workers,
        quiet=options.quiet,
    )
    if options.json:
        print_json({key: str(value) if isinstance(value, Path) else value for key, value in asdict(made).items()})
    return 0
