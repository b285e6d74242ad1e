"""The command that looks at data before training: doctor."""

from transduce import api
from transduce.cli.arguments import Options, print_json
from transduce.errors import SettingError

SERIOUS = 3  # exit code


def doctor(options: Options) -> int:
    columns = [f"data.columns={options.columns}"] if options.columns else []
    columns += ["data.skip_blank_lines=true"] * options.skip_blank_lines
    report = api.doctor(
        train=[tuple(group) for group in options.train],
        valid=[tuple(group) for group in options.valid],
        test=[tuple(group) for group in options.test],
        languages=tuple(options.languages),
        preset=options.preset,
        config=options.config,
        settings=[*columns, *options.settings],
        minutes=options.minutes,
        steps=options.steps,
        epochs=options.epochs,
        thresholds=_thresholds(options.threshold),
        fast=options.fast,
        write=options.write,
        keep=options.keep,
        only=options.only,
        html=options.html,
        model=options.model,
        reverse=options.reverse,
        processes=options.processes,
        quiet=options.quiet,
    )
    if options.json:
        print_json(report.to_json())
    elif not options.quiet:
        from transduce.diagnosis.summary import summary

        print(summary(report))
    return SERIOUS if report.count("serious") else 0


def _thresholds(given: list[str]) -> dict[str, float]:
    found = {}
    for item in given:
        name, _, value = item.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise SettingError(f"--threshold {item}: write NAME=NUMBER, for example largest_ratio=4") from None
    return found
