"""The commands of language models: generate, and score for text."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from transduce import api
from transduce.cli.arguments import Options, announce_progress, check_sampling, print_json
from transduce.cli.line_display import measured_line, shown_progress
from transduce.data import without_pipes
from transduce.data.corpus import lines_of
from transduce.errors import DataError, SettingError
from transduce.translator import open_folder
from transduce.translator.engine import SAMPLING_SETTINGS

if TYPE_CHECKING:
    from transduce.translator.generation import GenerationRequest
    from transduce.translator.language_model import LanguageModel, TextScore


def generate(options: Options) -> int:
    open_folder(options.run)  # refused before torch is imported, if it is no model
    request = _request(options)
    _check_prompt(options.prompt)
    model = _load(options)
    for line in _about_prompt(model, options.prompt, request):
        print(line, file=sys.stderr)
    if options.json:
        texts = model.generate(options.prompt, request)
        print_json({"prompt": options.prompt, "texts": texts, **asdict(request)})
    elif request.n == 1:
        _print_as_it_comes(model, options.prompt, request)
    else:
        for number, text in enumerate(model.generate(options.prompt, request), 1):
            print(f"--- {number} ---\n{options.prompt}{text}")
    return 0


def _check_prompt(prompt: str) -> None:
    """Refuse bytes of the command line that are not UTF-8, which Python keeps as half surrogate pairs."""
    try:
        prompt.encode()
    except UnicodeEncodeError:
        raise SettingError("--prompt: not valid UTF-8: write it in UTF-8") from None


def _about_prompt(model: "LanguageModel", prompt: str, request: "GenerationRequest") -> Iterator[str]:
    """What the model does not see of a prompt."""
    generation = model.generation(prompt, request)
    if cut := generation.cut:
        yield f"the prompt is longer than the context of {model.context:,} tokens: its first {cut:,} tokens were ignored"
    if unknown := generation.unknown:
        many = "characters of the prompt are" if unknown > 1 else "character of the prompt is"
        yield f"{unknown:,} {many} not in the vocabulary"


def _print_as_it_comes(model: "LanguageModel", prompt: str, request: "GenerationRequest") -> None:
    print(prompt, end="", flush=True)
    for parts in model.stream(prompt, request):
        print(parts[0], end="", flush=True)
    print()


def _request(options: Options) -> "GenerationRequest":
    from transduce.translator.generation import GenerationRequest

    check_sampling(options)
    if options.n > 1 and not options.sample:
        raise SettingError(f"--n {options.n}: without sampling all texts would be the same: add --sample")
    given = {name: getattr(options, name) for name in SAMPLING_SETTINGS}
    return GenerationRequest(n=1).but(
        sampling=options.sample or None,
        **given,
        n=options.n,
        max_tokens=options.max_tokens,
        stop=tuple(options.stop),
    )


def score_text(options: Options) -> int:
    """Print the figures of the whole text: in windows that do not overlap and in overlapping ones, or at the given stride."""
    with TemporaryDirectory() as scratch:
        files = [path for group in without_pipes(tuple((f,) for f in options.text), Path(scratch)) for path in group]
        blocks = [list(lines_of(path)) for path in files]
    texts = ["".join(f"{line}\n" for block in of_file for line in block.lines) for of_file in blocks]
    if not any(texts):
        raise DataError(f"{' '.join(options.text)}: the text is empty: there is nothing to measure")
    if removed := sum(block.carriage_returns for of_file in blocks for block in of_file):
        print(f"carriage returns removed at the ends of lines, and not counted: {removed:,}", file=sys.stderr)
    if options.stride is not None and options.stride < 1:
        raise SettingError(f"--stride {options.stride}: must be at least 1")
    model = _load(options)
    strides = [options.stride] if options.stride else [model.context, max(1, model.context // 2)]
    found: list[TextScore] = []
    for stride in strides:
        with nullcontext() if options.json else shown_progress(measured_line) as show:
            found.append(model.score(texts, stride, show=show))
        if found[0].unknown and len(found) == 1:
            print(_about_unknown(found[0]), file=sys.stderr)
        if not options.json:
            print(_line(found[-1]), flush=True)
    if options.json:
        print_json([_as_dict(score) for score in found])
    return 0


def _about_unknown(score: "TextScore") -> str:
    return (
        f"warning: {score.unknown_characters:,} of {score.characters:,} characters ({score.unknown_bytes:,} of {score.bytes:,} bytes) are "
        "not in the vocabulary. The model does not predict which they are, so all figures look better than they are: "
        "counting 8 bits for each byte of these characters, the figure is at most "
        f"{score.most_bits_per_byte:.4f} bits per byte instead of {score.bits_per_byte:.4f}"
    )


def _line(score: "TextScore") -> str:
    return (
        f"{score.bits_per_byte:.4f} bits per byte  {score.nats_per_token:.4f} nats per token  "
        f"perplexity per word {score.perplexity_per_word:.2f}  ({score.signature}; {score.bytes:,} bytes, "
        f"{score.tokens:,} tokens, {score.words:,} words)"
    )


def _as_dict(score: "TextScore") -> dict[str, Any]:
    figures = ("bits_per_byte", "most_bits_per_byte", "nats_per_token", "perplexity_per_word", "signature")
    return {name: getattr(score, name) for name in figures} | asdict(score)


def _load(options: Options) -> "LanguageModel":
    announce_progress(options)
    return api.load_language_model(options.run, weights=options.weights, device=options.device, threads=options.threads)
