"""The commands that make models and training data: demo, paper, train, plan, distill, backtranslate, average, shortlist, ngram."""

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce import api
from transduce.cli.arguments import Options, announce_stdin, check_sampling, input_file, load_options, print_json
from transduce.cli.lines import Lines

if TYPE_CHECKING:
    from transduce.training import Result
    from transduce.word_models import WordModel


def demo(options: Options) -> int:
    from transduce.demo import run_demo

    run_demo(Path(options.folder))
    return 0


def paper(options: Options) -> int:
    from transduce.paper.showing import run_paper

    run_paper(Path(options.folder), options.minutes)
    return 0


def train(options: Options) -> int:
    arguments = _training_arguments(options, _machine_settings(options))
    return _finish(
        options,
        lambda: api.train(
            options.run, start_from=options.start_from, started_at=options.started_at, **_text(options), **arguments
        ),
    )


def plan(options: Options) -> int:
    arguments = _training_arguments(options, _machine_settings(options))
    del arguments["verbose"]  # nothing is validated that could be shown
    arguments |= {"gpus": options.gpus, "nodes": options.nodes, "network": options.network}
    planned = api.plan(
        options.run, start_from=options.start_from, started_at=options.started_at, **_text(options), **arguments
    )
    if options.json:
        print_json(planned.as_dict())
    else:
        print("\n".join(planned.lines()))
    return 0


def distill(options: Options) -> int:
    arguments, teacher = _training_arguments(options, []), load_options(options)
    return _finish(
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


def _text(options: Options) -> dict[str, Any]:
    """The files of --text and --valid-text, and the vocabulary to use."""
    return {"text": options.text or None, "valid_text": options.valid_text or None, "vocabulary": options.vocabulary}


def _machine_settings(options: Options) -> list[str]:
    """The settings for --device, --threads and --seed, where they are given."""
    names = ("device", "threads", "seed")
    return [f"train.{name}={getattr(options, name)}" for name in names if getattr(options, name) is not None]


def _training_arguments(options: Options, machine: list[str]) -> dict[str, Any]:
    """The arguments that `train` and `distill` have in common."""
    columns = [f"data.columns={options.columns}"] if options.columns else []
    columns += ["data.skip_blank_lines=true"] * options.skip_blank_lines
    return {
        "train": [tuple(group) for group in options.train],
        "valid": [tuple(group) for group in options.valid],
        "languages": tuple(options.languages),
        "preset": options.preset,
        "config": options.config,
        "settings": [*columns, *machine, *options.settings],
        "minutes": options.minutes,
        "steps": options.steps,
        "epochs": options.epochs,
        "quiet": options.quiet,
        "verbose": options.verbose,
    }


def _finish(options: Options, run: Callable[[], "Result"]) -> int:
    """Train until the budget ends, or until a signal stops the run."""
    from transduce.training import Stopped

    try:
        result = run()
    except Stopped as stopped:
        print(f"transduce: {stopped}", file=sys.stderr)
        return 128 + stopped.signal_number
    if options.json and os.environ.get("RANK", "0") == "0":  # under torchrun, the first process prints
        print_json(asdict(result))
    return 0


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


def average(options: Options) -> int:
    folder = api.average(options.runs, options.output, weights=options.weights)
    print(f"{folder}: wrote the mean of {len(options.runs)} models", file=sys.stderr)
    return 0


def ngram(options: Options) -> int:
    made = api.ngram(
        options.run, options.texts, order=options.order, lexicon=options.lexicon, arpa=options.arpa, valid=options.valid,
        tune=not options.no_tune, device=options.device, threads=options.threads, quiet=options.quiet,
    )  # fmt: skip
    if options.json:
        print_json(asdict(made) | {"file": str(made.file)})
    elif not options.quiet:
        print(_word_model(made), file=sys.stderr)
        print(f"use it with `transduce transcribe {options.run} FILE --ngram`", file=sys.stderr)
    return 0


def _word_model(made: "WordModel") -> str:
    weights = made.weights
    about = (
        f"{made.file}: {made.ngrams:,} n-grams, {made.words:,} words; "
        f"--lm-weight {weights.lm_weight:g} --word-bonus {weights.word_bonus:g} --ctc-weight {weights.ctc_weight:g}"
    )
    if made.error_rate is None:
        return about
    return f"{about} have a WER of {made.error_rate:.2f} on {made.utterances} utterances (best among the texts found: {made.least_error_rate:.2f})"


def shortlist(options: Options) -> int:
    groups = [tuple(group) for group in options.train]
    made = api.shortlist(options.run, groups, threads=options.threads, quiet=options.quiet)
    print(f"{made}: use it with `transduce translate {options.run} --shortlist`", file=sys.stderr)
    return 0
