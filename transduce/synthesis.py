"""Training data written by a model: distillation into a smaller model, and back-translation.

A corpus is translated in parts. The name of each part contains a hash of everything it was made from (model, request,
lines), so that an interrupted command resumes where it stopped, and a changed one never reuses stale lines. Knows no
training step.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from transduce.checkpoint import RunFolder, write_text
from transduce.config import PRESETS, Layers, TransformerConfig, settings_layer
from transduce.data import Corpus, groups_of, without_pipes
from transduce.errors import DataError, RunError, SettingError
from transduce.files import disk_errors, synchronize_open
from transduce.training import Reporter, Result, SilentReporter, TrainingRequest
from transduce.training import train as train_model
from transduce.training.prepare import check_free
from transduce.training.request import RequestedSettings, language_codes, requested_settings
from transduce.translator import LoadOptions, ModelFolder, SearchRequest, Translator, open_folder

PART_LINES = 16_384
WIDTHS = 64  # a student's d_model is a multiple of this
INHERITED = (
    "task", "references", "source_units", "target_units", "joint", "unknown", "normalization", "symbols",
    "columns", "skip_blank_lines",
)  # fmt: skip
SEEDS_A_PART = 1_000  # more than a part has blocks, each of which may sample with its own seed

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
    reporter: Reporter | None = None,
) -> Result:
    """Train a student on the teacher's translations of the sources (Kim and Rush 2016), or resume an existing run."""
    reporter, taught = reporter or SilentReporter(), open_folder(teacher)
    request = student_request(request, taught, RunFolder(Path(run)))
    # Report mistakes in the student's settings or folder before the teacher translates for an hour.
    check_free(RunFolder(Path(run)))
    requested = requested_settings(request)
    folder = RunFolder(Path(run)).made
    original = _readable_again(groups_of(request.train), folder)
    translator = Translator.load(teacher, options or LoadOptions(say=reporter.say))
    sources = (line for block in _corpus(original, requested, taught).blocks() for line in block.source)
    made = make_corpus(translator, translator.request(beam=beam), sources, folder, reporter.say)
    files = [(str(made.given), str(made.made)), *(original if keep_original else ())]
    return train_model(run, replace(request, train=files), reporter=reporter)


def student_request(request: TrainingRequest, teacher: ModelFolder, run: RunFolder) -> TrainingRequest:
    """The request with the settings that a student takes from its teacher: languages, task, units and a smaller shape."""
    if not request.train:
        raise SettingError("no training data: give --train SOURCE TARGET or --train FILE.tsv")
    preset = request.preset or "student"
    smaller = smaller_than(teacher.config.transformer) if preset == "student" and not request.config else []
    return replace(
        request,
        preset=preset,
        languages=language_codes(request.languages) or teacher.config.data.languages,
        settings=_over(settings_layer(smaller), settings_layer(request.settings or ())),
        inherited={} if run.config.exists() else taught_by(teacher),  # an existing run has its own settings
    )


def _over(below: Layers, above: Layers) -> Layers:
    """Merge two layers. Old names of settings are kept, so that training can report them."""
    return {section: {**below.get(section, {}), **above.get(section, {})} for section in (*below, *above)}


def _corpus(files: tuple[Group, ...], requested: RequestedSettings, teacher: ModelFolder) -> Corpus:
    """The pairs whose sources the teacher translates, read as requested, or else like the teacher's data."""
    data, given = teacher.config.data, requested.config.data
    return replace(
        Corpus.of(files, data),
        languages=given.languages,
        columns=given.layout or data.layout,
        skip_blank_lines=given.skip_blank_lines or data.skip_blank_lines,
    )


def taught_by(teacher: ModelFolder) -> Layers:
    """The settings that a student inherits: its task and units must not be inferred from a weak teacher's output."""
    data = teacher.config.data
    settings: dict[str, Any] = {name: getattr(data, name) for name in INHERITED}
    if (
        data.layout and data.layout.features
    ):  # the teacher read them from their own column; they are part of the text now
        pieces = teacher.vocabularies.source.pieces(range(teacher.vocabularies.source.pad))
        features = [piece for piece in pieces if piece.startswith(";") and len(piece) > 1]
        settings["symbols"] = tuple(dict.fromkeys((*data.symbols, *features)))
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
    say: Say = print,
) -> Made:
    """Translate lines of the target language into sources with a reverse model; `sampling` samples instead of searching."""
    translator = Translator.load(model, options or LoadOptions(say=say))
    request = translator.request(beam=beam, sampling=sampling, seed=seed)
    return make_corpus(translator, request, lines, Path(folder), say)


def make_corpus(translator: Translator, request: SearchRequest, lines: Iterable[str], folder: Path, say: Say) -> Made:
    """Write `given.txt` and `made.txt`, aligned line by line; pairs with an empty side are left out and counted."""
    wanted = request.but(figures="none", n_best=1)
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: is a file; give a folder for the corpus")
    given, hashes, count = iter(lines), hashlib.sha256(), 0
    parts: list[Path] = []
    while block := list(islice(given, PART_LINES)):
        sampled = wanted.drawing(SEEDS_A_PART * len(parts))
        digest = _digest(translator, sampled, block)
        hashes.update(digest.encode())
        part = folder / f"part-{len(parts):06}-{digest[:16]}.jsonl"
        _make_part(translator, sampled, block, part, say)
        parts.append(part)
        count += len(block)
        say(f"translated {count:,} lines")
    if not count:
        raise DataError("the input is empty: there are no lines to translate")
    return _joined(folder, parts, hashes.hexdigest(), count)


def _digest(translator: Translator, request: SearchRequest, lines: list[str]) -> str:
    made_from = [translator.digest, json.dumps(asdict(request), sort_keys=True), *lines]
    return hashlib.sha256("\n".join(made_from).encode()).hexdigest()


def _make_part(translator: Translator, request: SearchRequest, lines: list[str], path: Path, say: Say) -> None:
    """Write these pairs to a file, below a line with their hash, unless an intact file exists."""
    if path.exists():
        first, _, rest = path.read_bytes().partition(b"\n")
        if first.decode(errors="replace") == _seal(rest):
            return
        say(f"{path}: modified or incomplete (its hash does not match); translating its lines again")
    pairs = list(zip(lines, (one.text for one in translator.stream(lines, request)), strict=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs)
    write_text(path, f"{_seal(text.encode())}\n{text}")


def _seal(content: bytes) -> str:
    return json.dumps({"sha256": hashlib.sha256(content).hexdigest()})


def _joined(folder: Path, parts: list[Path], digest: str, count: int) -> Made:
    """Join all parts into two files, unless that is done already, and delete parts of an earlier corpus."""
    given, made, about = folder / "given.txt", folder / "made.txt", folder / "about.json"
    kept = sum(1 for _ in _pairs(parts))
    if _facts(about) != _joined_facts(folder, digest, kept, count - kept):
        about.unlink(missing_ok=True)  # until both files are written, nothing may claim that they belong together
        _write_lines(given, (source for source, _ in _pairs(parts)))
        _write_lines(made, (target for _, target in _pairs(parts)))
        write_text(about, json.dumps(_joined_facts(folder, digest, kept, count - kept)) + "\n")
    for stale in set(folder.glob("part-*.jsonl")) - set(parts):
        stale.unlink()
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
        _, *lines, _ = part.read_text(encoding="utf-8").split("\n")  # the first line is the hash
        for line in lines:
            source, target = json.loads(line)
            if source.strip() and target.strip():
                yield source.replace("\n", " "), target  # one line each; outputs have no line breaks
