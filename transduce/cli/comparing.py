"""The command `compare`: systems on a test set, as a report for people or as JSON."""

from transduce import api
from transduce.cli.arguments import Options, is_quiet, load_options, print_json
from transduce.comparison import Comparison
from transduce.comparison.report import report
from transduce.translator.engines import say_to_stderr

FOUND = 3  # the exit status where --fail-if-worse finds a loss


def compare(options: Options) -> int:
    found = api.compare(
        options.systems,
        source=options.source,
        references=options.reference,
        labels=options.labels,
        language=options.language,
        tokenize=options.tokenize,
        metrics=options.metrics,
        test=options.test,
        samples=options.samples,
        merge=options.merge,
        columns=options.columns.split(",") if options.columns else (),
        to=options.to,
        beam=options.beam,
        alpha=options.alpha,
        length_penalty=options.length_penalty,
        max_extra=options.max_extra,
        html=options.html,
        explorer=options.explorer,
        options=load_options(options),
        quiet=is_quiet(options),
    )
    if options.html and not is_quiet(options):
        say_to_stderr(f"{options.html}: written; open it in a browser")
    if options.json:
        print_json(found.as_dict())
    else:
        print(report(found))
    return _status(found) if options.fail_if_worse else 0


def _status(found: Comparison) -> int:
    """3 if a system is significantly worse than the baseline, with a line that says so."""
    for system in found.worse():
        say_to_stderr(f"--fail-if-worse: {found.main.sentence(system)}")
    return FOUND if found.worse() else 0
