"""Training data written by a model: distillation into a smaller model, and back-translation.

A corpus is translated in parts, by as many processes or machines as are given (`transduce/batch_translation`). The
folder of the parts is named by a hash of everything they are made from (model, request, lines), so that an interrupted
command resumes where it stopped, and a changed one never reuses stale lines. Knows no training step.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from transduce.batch_translation import (
    BatchFolder,
    BatchRequest,
    Where,
    damaged_shards,
    make_manifest,
    translate_corpus,
)
from transduce.checkpoint import RunFolder, write_text
from transduce.config import PRESETS, Layers, TransformerConfig, language_tag, settings_layer
from transduce.data import Corpus, groups_of, without_pipes
from transduce.errors import DataError, RunError, SettingError
from transduce.files import disk_errors, synchronize_open
from transduce.languages import is_code
from transduce.training import Reporter, Result, SilentReporter, TrainingRequest
from transduce.training import train as train_model
from transduce.training.early_checks import check_free
from transduce.training.request import RequestedSettings, language_codes, requested_settings
from transduce.translator import LoadOptions, ModelFolder, SearchRequest, open_folder

PART_LINES = 16_384
WIDTHS = 64  # a student's d_model is a multiple of this
INHERITED = (
    "task", "references", "source_units", "target_units", "joint", "unknown", "normalization", "symbols",
    "columns", "skip_blank_lines", "placeholders",
)  # fmt: skip
LINES = "lines.jsonl"  # a copy of the lines to translate
MANIFEST = "manifest.json"

Say = Callable[[str], None]
Group = tuple[str, ...]


@dataclass(frozen=True)
class Made:
    """Two aligned files: the lines that were given, and the model's translations."""

    given: Path
    made: Path
    lines: int
    left_out: int  # pairs in which the line or its translation is empty


def distill(
    teacher: str | Path,
    run: str | Path,
    request: TrainingRequest,
    *,
    keep_original: bool = False,
    beam: int | None = None,
    options: LoadOptions | None = None,
    where: Where | None = None,
    reporter: Reporter | None = None,
) -> Result:
    """Train a student on the teacher's translations of the sources (Kim and Rush 2016), or resume an existing run."""
    reporter, taught = reporter or SilentReporter(), open_folder(teacher)
    options = options or LoadOptions(say=reporter.say)
    request = student_request(request, taught, RunFolder(Path(run)), options.to)
    # Report mistakes in the student's settings or folder before the teacher translates for an hour.
    check_free(RunFolder(Path(run)))
    requested = requested_settings(request)
    if requested.config.data.tags:
        raise SettingError(
            "data.tags: `distill` reads the target language from the text: begin each source line with its tag, such as >>de<<, "
            "or distil one language with --to"
        )
    folder = RunFolder(Path(run)).made
    original = _readable_again(groups_of(request.train), folder)
    sources = (line for block in _corpus(original, requested, taught).blocks() for line in block.source)
    search = SearchRequest.of(taught.config.search).but(beam=beam)
    made = make_corpus(teacher, search, sources, folder, options, where)
    files = [(str(made.given), str(made.made)), *(original if keep_original else ())]
    return train_model(run, replace(request, train=files), reporter=reporter)


def student_request(request: TrainingRequest, teacher: ModelFolder, run: RunFolder, to: str = "") -> TrainingRequest:
    """The request with the settings that a student takes from its teacher: languages, task, units and a smaller shape.

    With `to`, the teacher translates into one of its languages, and the student knows this one only.
    """
    if not request.train:
        raise SettingError("no training data: give --train SOURCE TARGET or --train FILE.tsv")
    preset = request.preset or "student"
    smaller = smaller_than(teacher.config.transformer) if preset == "student" and not request.config else []
    return replace(
        request,
        preset=preset,
        languages=language_codes(request.languages) or _taught_languages(teacher, to),
        shrunk=settings_layer(smaller),
        inherited={} if run.config.exists() else taught_by(teacher, to),  # an existing run has its own settings
    )


def _taught_languages(teacher: ModelFolder, to: str) -> tuple[str, ...]:
    languages = teacher.config.data.languages
    return (languages[0], to) if languages and is_code(to) else languages


def _corpus(files: tuple[Group, ...], requested: RequestedSettings, teacher: ModelFolder) -> Corpus:
    """The pairs whose sources the teacher translates, read as requested, or else like the teacher's data."""
    data, given = teacher.config.data, requested.config.data
    return replace(
        Corpus.of(files, data),
        languages=given.languages,
        columns=given.layout or data.layout,
        skip_blank_lines=given.skip_blank_lines or data.skip_blank_lines,
    )


def taught_by(teacher: ModelFolder, to: str = "") -> Layers:
    """The settings that a student inherits: its task and units must not be inferred from a weak teacher's output."""
    data = teacher.config.data
    settings: dict[str, Any] = {name: getattr(data, name) for name in INHERITED}
    tags = () if to else dict.fromkeys((*data.tags, *data.valid_tags))
    settings["symbols"] = (*data.symbols, *map(language_tag, tags))
    if (
        data.layout and data.layout.features
    ):  # the teacher read them from their own column; they are part of the text now
        features = teacher.vocabularies.source.feature_symbols
        settings["symbols"] = tuple(dict.fromkeys((*settings["symbols"], *features)))
    return {"data": settings}


def _readable_again(groups: tuple[Group, ...], folder: Path) -> tuple[Group, ...]:
    """Copy pipes into the folder of the corpus: a student that keeps the original pairs reads them a second time."""
    with disk_errors(lambda reason, _: RunError(f"{folder}: cannot be written: {reason.lower()}")):
        folder.mkdir(parents=True, exist_ok=True)
    return without_pipes(groups, folder)


def smaller_than(teacher: TransformerConfig) -> list[str]:
    """Settings that shrink the preset `student` if the teacher is itself small (`d_model` below 512)."""
    width = max(WIDTHS, 2 * teacher.d_model // 3 // WIDTHS * WIDTHS)
    shape = PRESETS["student"]["model"]
    if width >= shape["d_model"]:
        return []
    layers = min(shape["num_encoder_layers"], teacher.num_encoder_layers + 1)
    return [f"model.d_model={width}", f"model.d_ff={4 * width}", f"model.num_encoder_layers={layers}"]


def backtranslate(
    model: str | Path,
    lines: Iterable[str],
    folder: str | Path,
    *,
    beam: int | None = None,
    sampling: bool = False,
    seed: int = 1,
    options: LoadOptions | None = None,
    where: Where | None = None,
) -> Made:
    """Translate lines of the target language into sources with a reverse model; `sampling` samples instead of searching."""
    settings = SearchRequest.of(open_folder(model).config.search)
    search = settings.but(beam=beam, sampling=sampling, seed=seed)
    return make_corpus(model, search, lines, Path(folder), options or LoadOptions(), where)


def make_corpus(
    model: str | Path,
    search: SearchRequest,
    lines: Iterable[str],
    folder: Path,
    options: LoadOptions,
    where: Where | None = None,
) -> Made:
    """Write `given.txt` and `made.txt`, aligned line by line; pairs with an empty side are left out and counted."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: is a file; give a folder for the corpus")
    request = BatchRequest(
        run=model,
        inputs=[_copy(lines, folder)],
        columns="source=text",
        search=search,
        shard_rows=PART_LINES,
        options=options,
    )
    digest = make_manifest(request).digest
    parts = folder / f"parts-{digest[:16]}"
    _discard_damaged(parts, options.say)
    result = translate_corpus(request, parts, where)
    if result.failures:
        count, first = len(result.failures), result.failures[0].reason
        raise RunError(
            f"{count} part{'s' * (count > 1)} could not be translated: {first}; rerun the command to try again"
        )
    return _joined(folder, list(BatchFolder(parts).files()), digest, result.lines)


def _copy(lines: Iterable[str], folder: Path) -> Path:
    """Copy lines to a file that all workers can read; JSON keeps line breaks within a source."""
    given = iter(lines)
    first = list(islice(given, 1))
    if not first:
        raise DataError("the input is empty: there are no lines to translate")
    with disk_errors(lambda reason, _: RunError(f"{folder}: cannot be written: {reason.lower()}")):
        folder.mkdir(parents=True, exist_ok=True)
    _write_lines(folder / LINES, (json.dumps({"text": line}) for line in chain(first, given)))
    return folder / LINES


def _discard_damaged(parts: Path, say: Say) -> None:
    """Delete parts that are not what was written: a student would learn from what is in them."""
    if (parts / MANIFEST).exists():
        for path in damaged_shards(parts):
            path.unlink()
            say(f"{path}: modified or incomplete (its hash does not match); translating its lines again")


def _joined(folder: Path, parts: list[Path], digest: str, count: int) -> Made:
    """Join all parts into two files, unless that is done already, and delete parts of an earlier corpus."""
    given, made, about = folder / "given.txt", folder / "made.txt", folder / "about.json"
    kept = sum(1 for _ in _pairs(parts))
    if _facts(about) != _joined_facts(folder, digest, kept, count - kept):
        about.unlink(missing_ok=True)  # until both files are written, nothing may claim that they belong together
        _write_lines(given, (source for source, _ in _pairs(parts)))
        _write_lines(made, (target for _, target in _pairs(parts)))
        write_text(about, json.dumps(_joined_facts(folder, digest, kept, count - kept)) + "\n")
    for stale in set(folder.glob("parts-*")) - {parts[0].parent}:
        shutil.rmtree(stale)
    return Made(given, made, kept, count - kept)


def _facts(about: Path) -> object:
    """The stored facts about a corpus; None if the file is missing or damaged, and then the parts are joined again."""
    try:
        return json.loads(about.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _joined_facts(folder: Path, digest: str, kept: int, left_out: int) -> dict[str, str | int]:
    """The hash of what the corpus was made from, its counts, and the current hashes of its files."""
    facts: dict[str, str | int] = {"made_from": digest, "lines": kept, "left_out": left_out}
    for path in (folder / "given.txt", folder / "made.txt"):
        if path.exists():
            with path.open("rb") as file:
                facts[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return facts


def _write_lines(path: Path, texts: Iterable[str]) -> None:
    """Write a file of any size atomically."""
    temporary = path.with_name(f".{path.name}")
    with open(temporary, "wb") as file:
        file.writelines(f"{text}\n".encode() for text in texts)
        synchronize_open(file)
    os.replace(temporary, path)


def _pairs(parts: list[Path]) -> Iterator[tuple[str, str]]:
    """The pairs in which neither side is empty."""
    for part in parts:
        with part.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                pair = json.loads(line)
                if pair["text"].strip() and pair["translation"].strip():
                    yield pair["text"].replace("\n", " "), pair["translation"]  # outputs have no line breaks
