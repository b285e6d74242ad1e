"""The commands that train models: demo, paper, train, plan, average."""

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce import api
from transduce.cli.arguments import Options, print_json

if TYPE_CHECKING:
    from transduce.training import Result


def demo(options: Options) -> int:
    from transduce.demo import run_demo

    run_demo(Path(options.folder))
    return 0


def paper(options: Options) -> int:
    from transduce.paper.tables import run_paper

    run_paper(Path(options.folder), options.minutes)
    return 0


def train(options: Options) -> int:
    arguments = training_arguments(options, _machine_settings(options))
    return finish(
        options,
        lambda: api.train(
            options.run, start_from=options.start_from, started_at=options.started_at, **_text(options), **arguments
        ),
    )


def plan(options: Options) -> int:
    arguments = training_arguments(options, _machine_settings(options))
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


def _text(options: Options) -> dict[str, Any]:
    """The files of --text and --valid-text, and the vocabulary to use."""
    return {"text": options.text or None, "valid_text": options.valid_text or None, "vocabulary": options.vocabulary}


def _machine_settings(options: Options) -> list[str]:
    """The settings for --device, --threads and --seed, where they are given."""
    names = ("device", "threads", "seed")
    return [f"train.{name}={getattr(options, name)}" for name in names if getattr(options, name) is not None]


def training_arguments(options: Options, machine: list[str]) -> dict[str, Any]:
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


def finish(options: Options, run: Callable[[], "Result"]) -> int:
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


def average(options: Options) -> int:
    folder = api.average(options.runs, options.output, weights=options.weights)
    print(f"{folder}: wrote the mean of {len(options.runs)} models", file=sys.stderr)
    return 0
