"""`transduce export`: write a model in another format, verify it on real sentences, then give it its name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transduce.config import DecoderConfig, TransformerConfig
from transduce.data import Corpus, found_setting, groups_from_setting, read_pairs
from transduce.device import choose_device
from transduce.errors import DataError, RunError, SettingError
from transduce.exchange import ct2, hf, hf_runtime, onnx_graphs, onnx_runtime
from transduce.exchange.cards import show_features
from transduce.exchange.language_models import VerifiedText, export_language_model
from transduce.exchange.new_folder import new_folder
from transduce.exchange.verification import Ours, Runtime, Verified, verify
from transduce.files import check_new
from transduce.model import Transformer, as_transformer
from transduce.translator import ModelFolder, Translator, open_folder

Say = Callable[[str], None]

SENTENCES = 32  # to compare, spread evenly over the sample
LONGEST = 100  # tokens; longer sentences are left out of the sample
EXTRA = 50  # tokens by which an output may exceed its source when texts are compared
DEFAULT_SENTENCES = """
A man in an orange hat is looking at something.
The council met on Tuesday, 14 March 2023, at 9.30 a.m.
"Where is the railway station?" she asked.
It wasn't the first time, and it won't be the last.
Ein kleines Mädchen läuft über die grüne Wiese.
Die Kosten stiegen um 12,5 % auf 3.400 Euro.
Où est la gare, s'il vous plaît ?
naïve café: déjà vu (1984)
Two dogs are running through the snow, and a third one is asleep.
This is a longer sentence, which has a second part, and a third one that follows it, so that positions matter.
transduce
no
""".strip().split("\n")


@dataclass(frozen=True)
class Format:
    """The functions that export to a format and verify it."""

    require: Callable[[], None]  # raises an error if a package is missing
    refuse: Callable[[ModelFolder], None]  # raises an error if the format does not support the model
    write: Callable[[ModelFolder, Transformer, Path], None]
    run: Callable[[ModelFolder, Path], Runtime]


FORMATS = {
    "hf": Format(
        hf_runtime.require,
        hf.refuse,
        hf.write,
        lambda opened, folder: hf_runtime.HfRuntime(folder, opened.vocabularies.target.size - 1),
    ),
    "ct2": Format(
        ct2.require,
        ct2.refuse,
        ct2.write,
        lambda opened, folder: ct2.Ct2Runtime(folder, opened.config.search.allow_unknown),
    ),
    "onnx": Format(
        onnx_runtime.require,
        onnx_graphs.refuse,
        onnx_graphs.write,
        lambda opened, folder: onnx_runtime.OnnxRuntime(folder),
    ),
}


def export_model(
    run: str | Path,
    folder: str | Path,
    to: str,
    *,
    weights: str = "auto",
    sample: str = "",
    threads: int = 0,
    say: Say = print,
) -> Verified | VerifiedText:
    """Export the model of RUN to a new folder for another runtime, and verify that its outputs are the same."""
    if to not in FORMATS:
        raise SettingError(f"unknown format '{to}': choose from {', '.join(FORMATS)}")
    target = Path(folder)
    check_new(target)
    opened = open_folder(run)
    if isinstance(opened.config.model, DecoderConfig):
        return export_language_model(
            opened, target, to, DEFAULT_SENTENCES, weights=weights, sample=sample, threads=threads, say=say
        )
    if not isinstance(opened.config.model, TransformerConfig):
        raise SettingError(
            f"{run}: model.family = {opened.config.model.family}: only Transformers and language models can be exported"
        )
    _refuse(opened, to)
    verified = _export_transformer(opened, target, FORMATS[to], weights, sample, threads, say)
    if opened.config.search.length_penalty == "paper":
        say(f"search.length_penalty = paper: {to} runtimes divide scores by n^alpha instead of ((5 + n) / 6)^alpha")
    return verified


def _refuse(opened: ModelFolder, to: str) -> None:
    """Refuse what the format does not support, and name the formats that support the model."""
    if not (reason := _refusal(opened, to)):
        return
    others = [f"--to {name}" for name in FORMATS if not _refusal(opened, name)]
    advice = f"try {' or '.join(others)}" if others else "no other format of transduce export supports this model"
    raise SettingError(f"{reason}; {advice}")


def _refusal(opened: ModelFolder, to: str) -> str:
    """Why the format does not support the model, or nothing."""
    try:
        FORMATS[to].refuse(opened)
    except SettingError as error:
        return str(error)
    return ""


def _export_transformer(
    opened: ModelFolder, target: Path, format: Format, weights: str, sample: str, threads: int, say: Say
) -> Verified:
    """Write the new folder under a temporary name, and rename it once it is verified."""
    format.require()
    lines = choose_lines(opened, sample)
    translator = Translator.around(
        opened.model(weights), opened.vocabularies, opened.config, choose_device("cpu", "fp32", threads)
    )
    with new_folder(target) as temporary:
        format.write(opened, as_transformer(translator.model), temporary)
        if translator.sources.known:
            show_features(translator, temporary, lines)
        say(f"written; comparing translations of {len(lines)} sentences")
        return _verify(format, opened, translator, temporary, lines)


def _verify(
    format: Format, opened: ModelFolder, translator: Translator, folder: Path, lines: Sequence[str]
) -> Verified:
    try:
        return verify(Ours(translator), format.run(opened, folder), lines, opened.config.search.alpha, EXTRA)
    except RunError as error:
        raise RunError(f"{opened.folder.path}: the export differs from the model and was deleted: {error}") from None


def choose_lines(opened: ModelFolder, sample: str) -> list[str]:
    """Sentences to compare: from `sample` if given, else the validation data of the run if it exists, else a default list."""
    lines = _read(sample) if sample else _validation(opened) or DEFAULT_SENTENCES
    ids = opened.vocabularies.source.encode(lines)
    fitting = [line for line, row in zip(lines, ids, strict=True) if line.strip() and len(row) <= LONGEST]
    if not fitting:
        raise DataError(f"{sample or 'the validation data'}: has no line of 1 to {LONGEST} tokens to compare")
    step = max(1, len(fitting) // SENTENCES)
    return fitting[::step][:SENTENCES]


def _read(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None


def _validation(opened: ModelFolder) -> list[str]:
    data = opened.config.data
    if not data.valid or "-" in data.valid:
        return []
    try:
        groups = groups_from_setting(found_setting(data.valid, opened.folder.path))
        return list(read_pairs(replace(Corpus.of(groups, data), tags=data.tags_of_valid))[0])
    except (DataError, OSError):
        return []
