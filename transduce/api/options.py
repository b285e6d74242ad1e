"""Arguments that several functions have: which model, which weights, whether messages are printed."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from transduce.translator import LoadOptions, Translator
from transduce.translator.engines import Say, say_to_stderr

Weights = Literal["auto", "best", "last", "averaged"]
Model = str | Path | Translator


def loading_options(options: LoadOptions | None, to: str, quiet: bool) -> LoadOptions:
    """The options with this target language, if there is one."""
    given = options or LoadOptions()
    return replace(given, to=to or given.to, say=_say_nothing if quiet else given.say)


def reporter(quiet: bool) -> Say:
    return _say_nothing if quiet else say_to_stderr


def _say_nothing(text: str) -> None:
    pass
