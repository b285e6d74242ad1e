"""Export a language model: write it in another format, verify it on real texts, then give it its name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.config import DecoderConfig
from transduce.data import TextCorpus, found_setting, groups_from_setting, read_lines
from transduce.device import choose_device
from transduce.errors import DataError, RunError, SettingError
from transduce.exchange import hf_runtime
from transduce.exchange.language_models import ct2, hf
from transduce.exchange.language_models.verification import OurText, TextRuntime, VerifiedText, verify_texts
from transduce.exchange.new_folder import new_folder
from transduce.model import Decoder
from transduce.text import Vocabulary
from transduce.translator import ModelFolder
from transduce.translator.language_model import LanguageModel

Say = Callable[[str], None]

TEXTS = 16  # to compare, spread evenly over the sample


@dataclass(frozen=True)
class TextFormat:
    """The functions that export to a format and verify it."""

    require: Callable[[], None]  # raises an error if a package is missing
    refuse: Callable[[ModelFolder], None]  # raises an error if the format does not support the model
    write: Callable[[ModelFolder, Decoder, Path], None]
    run: Callable[[ModelFolder, Path], TextRuntime]


FORMATS = {
    "hf": TextFormat(hf_runtime.require, hf.refuse, hf.write, lambda opened, folder: hf.HfText(folder)),
    "ct2": TextFormat(
        ct2.require,
        ct2.refuse,
        ct2.write,
        lambda opened, folder: ct2.Ct2Text(folder, opened.config.data.documents == "line"),
    ),
}


def export_language_model(
    opened: ModelFolder,
    target: Path,
    to: str,
    default: Sequence[str],
    *,
    weights: str,
    sample: str,
    threads: int,
    say: Say,
) -> VerifiedText:
    """Export a language model to a new folder for another runtime, and verify that it predicts the same."""
    if to not in FORMATS:
        raise SettingError(f"{to}: language models cannot be exported to this format; choose from {', '.join(FORMATS)}")
    format = FORMATS[to]
    format.refuse(opened)
    format.require()
    model = opened.model(weights)
    assert isinstance(model, Decoder), "settings are checked when they are read"
    ours = LanguageModel(model, opened.vocabularies.target, opened.config, choose_device("cpu", "fp32", threads))
    texts = choose_texts(opened, sample, default)
    with new_folder(target) as folder:
        format.write(opened, model, folder)
        say(f"written; comparing predictions on {len(texts)} texts")
        try:
            return verify_texts(OurText(ours), format.run(opened, folder), texts)
        except RunError as error:
            raise RunError(
                f"{opened.folder.path}: the export differs from the model and was deleted: {error}"
            ) from None


# --- texts to compare ------------------------------------------------------------------------------------------


def choose_texts(opened: ModelFolder, sample: str, default: Sequence[str]) -> list[str]:
    """Texts to compare: from `sample` if given, else the validation text of the run if it exists, else the default lines."""
    lines = read_lines(sample) if sample else _validation(opened) or list(default)
    model = opened.config.model
    assert isinstance(model, DecoderConfig)
    texts = _documents(lines, opened.config.data.documents, opened.vocabularies.target, model.context)
    if not texts:
        raise DataError(f"{sample or 'the validation text'}: has no text to compare")
    return texts[:: max(1, len(texts) // TEXTS)][:TEXTS]


def _documents(lines: Sequence[str], documents: str, vocabulary: Vocabulary, context: int) -> list[str]:
    """Documents, or parts of one that fill the context."""
    if documents == "line":
        return [line for line in lines if line.strip()]
    if documents == "blank-line":
        return [text for text in "\n".join(lines).split("\n\n") if text.strip()]
    starts = range(0, len(lines), max(1, len(lines) // TEXTS))
    return [text for start in starts if (text := _filling(lines[start:], vocabulary, context)).strip()]


def _filling(lines: Sequence[str], vocabulary: Vocabulary, context: int) -> str:
    """The first lines, as many as the context holds and at least one."""
    taken, tokens = 0, 0
    while taken < len(lines) and tokens < context:
        tokens += len(vocabulary.encode([lines[taken]])[0])
        taken += 1
    return "\n".join(lines[:taken])


def _validation(opened: ModelFolder) -> list[str]:
    """The validation text of the run; empty if it is not there any more."""
    data = opened.config.data
    given = data.valid or data.train
    if not given or "-" in given:
        return []
    try:
        groups = groups_from_setting(found_setting(given, opened.folder.path))
        held_out = 0 if data.valid else data.hold_out
        corpus = TextCorpus(groups, hold_out=held_out, part="held out" if held_out else "kept")
        return [line for block in corpus.blocks() for line in block.target]
    except (DataError, OSError):
        return []
