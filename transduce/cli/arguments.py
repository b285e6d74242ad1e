"""What several commands share: from parsed options to the arguments of the Python API, and JSON on stdout."""

import argparse
import json
import sys
from typing import Any

from transduce import api
from transduce.api.options import reporter
from transduce.errors import SettingError
from transduce.translator import LoadOptions, SearchRequest, Translator, open_folder
from transduce.translator.engine import SAMPLING_SETTINGS
from transduce.translator.engines import say_to_stderr
from transduce.translator.word_search import WordWeights, check_takes_words

Options = argparse.Namespace


def load(options: Options, **changes: Any) -> Translator:
    """The translator that the options name. Its weights are read when they are first needed, after the input is checked."""
    check_quantization(options)
    arguments = _load_arguments(options) | changes
    rerank = getattr(options, "rerank", "")
    return api.load(options.run, to=options.to, rerank=rerank, lazy=True, quiet=is_quiet(options), **arguments)


def announce_progress(options: Options) -> None:
    """Say so if the training of the run is in progress or was stopped early."""
    from transduce.tracking import progress_note

    if not is_quiet(options) and (note := progress_note(options.run, options.weights)):
        say_to_stderr(note)


def load_options(options: Options) -> LoadOptions:
    """How to load a model, for functions that load it themselves."""
    check_quantization(options)
    return LoadOptions(**_load_arguments(options), say=reporter(is_quiet(options)))


def _load_arguments(options: Options) -> dict[str, Any]:
    return {
        "weights": options.weights,
        "engine": options.engine,
        "device": options.device,
        "threads": options.threads,
        "quantization": options.quantization or "int8",
        "ensemble": tuple(getattr(options, "ensemble", ())),
        "shortlist": getattr(options, "shortlist", False),
        "ngram": _ngram(options),
        **_language_model(options),
    }


def _ngram(options: Options) -> bool | WordWeights:
    """Whether the model's n-gram model is used, with the weights of the options in place of those of the run."""
    given = {name: getattr(options, name, None) for name in ("lm_weight", "word_bonus", "ctc_weight")}
    if not getattr(options, "ngram", False):
        others = [name for name in given if name != "lm_weight"]
        for name in (name for name in others if given[name] is not None):
            raise SettingError(
                f"--{name.replace('_', '-')} has no effect without --ngram: add --ngram, or leave it out"
            )
        return False
    if not hasattr(options, "run"):
        return True  # a server: each of its speech models has weights of its own
    opened = open_folder(options.run)
    check_takes_words(opened)
    return WordWeights.read(opened.folder).but(**given)


def _language_model(options: Options) -> dict[str, Any]:
    """The language model of commands that have --lm."""
    lm, weight = getattr(options, "lm", ""), getattr(options, "lm_weight", None)
    if getattr(options, "ngram", False):
        return {"lm": lm}  # the weight is that of the n-gram model
    if weight is not None and not lm:
        needed = "--ngram or --lm" if hasattr(options, "ngram") else "--lm"
        raise SettingError(f"--lm-weight has no effect without {needed}: name a language model, or leave it out")
    return {"lm": lm} | ({} if weight is None else {"lm_weight": weight})


def search_request(translator: Translator, options: Options) -> SearchRequest:
    """The search settings of the model, changed by the options."""
    return translator.request(
        beam=options.beam,
        alpha=options.alpha,
        length_penalty=options.length_penalty,
        max_extra=options.max_extra,
    )


def is_quiet(options: Options) -> bool:
    """Whether the command has an option --quiet, and it was given."""
    return bool(getattr(options, "quiet", False))


def check_sampling(options: Options) -> None:
    """Refuse options that would have no effect: those for sampling without --sample, and --beam with it."""
    if options.sample and getattr(options, "beam", None) is not None:
        raise SettingError("--beam has no effect with --sample: leave out one of them")
    for name in SAMPLING_SETTINGS:
        if not options.sample and getattr(options, name, None) is not None:
            raise SettingError(
                f"--{name.replace('_', '-')} has no effect without --sample: add --sample, or leave it out"
            )


def check_quantization(options: Options) -> None:
    """Refuse --quantization where nothing is quantized."""
    for name, value in (("engine", "torch"), ("device", "cuda")):
        if options.quantization and getattr(options, name) == value:
            raise SettingError(
                f"--quantization needs the ct2 engine on a CPU: leave it out, or leave out --{name} {value}"
            )


def input_file(options: Options) -> str:
    """The file to translate, by default standard input."""
    if options.file and options.input:
        raise SettingError(f"{options.file} and --input {options.input} both name the input: leave out one of them")
    return str(options.file or options.input or "-")


def announce_stdin(options: Options) -> None:
    """Tell people at a terminal that the program waits for their input."""
    if options.input == "-" and sys.stdin is not None and sys.stdin.isatty() and not options.quiet:
        say_to_stderr("reading from the terminal: type one sentence per line, and Ctrl-D to finish")


def print_json(value: Any) -> None:
    """One line of JSON on stdout."""
    print(json.dumps(value, ensure_ascii=False))
