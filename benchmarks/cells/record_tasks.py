"""The data of benchmarks/records.py as tasks: inflection, pronunciation and Multi30k, in the form that a recipe learns from.

Training files are written to a folder, because a form may change them. Knows no recipe and no results.
"""

import os
import random
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.config.columns import Columns
from transduce.config.settings import language_tag
from transduce.metrics import Score, score_outputs
from transduce.paper.cells import Task, TestFiles, read_lines

from .tasks import Lines, multi30k

INFLECTED = ("arabic", "english", "finnish", "german", "russian", "spanish", "turkish")
PRONOUNCED = {
    "high": ("eng_us",),
    "medium": ("arm_e", "bul", "dut", "fre", "geo", "hbs_latn", "hun", "jpn_hira", "kor", "vie_hanoi"),
    "low": ("ady", "gre", "ice", "ita", "khm", "lav", "mlt_latn", "rum", "slv", "wel_sw"),
}
SPLITS = ("train", "valid", "test")
BETWEEN_WORDS = "|"  # the target symbol between the pronunciations of two joined words
BEGIN = ("data.task=symbols", "data.source_units=char", "train.epochs=0", "train.minutes=0")

Row = tuple[str, ...]  # the columns of a line


@dataclass(frozen=True)
class Form:
    """How training data differ from the published files."""

    joined: int = 0  # joined words: so many for each word, pronounced one after the other
    decomposed: bool = False  # sources in Unicode's NFD: a Korean syllable becomes its letters
    with_medium: bool = False  # the low track also learns the ten languages of the medium track
    with_cmudict: bool = False  # English also learns CMUdict, as another language; that subtask allows it
    both_ways: bool = False  # inflection is also learned from the form to the lemma

    @property
    def folder(self) -> str:
        """A name that differs between forms."""
        return "-".join(f"{name}={value}" for name, value in vars(self).items())


def make_task(name: str, form: Form, data: Path, folder: Path) -> Task:
    """A task by its name: `inflection german`, `g2p low` (all languages), `g2p low ice` (one) or `multi30k`."""
    kind, *rest = name.split()
    own = folder / name.replace(" ", "-") / form.folder
    if kind == "inflection":
        return inflection(name, data / "conll2017-inflection" / rest[0], form, own)
    if kind == "g2p":
        return pronunciation(name, data / "sigmorphon2021-g2p", rest[0], rest[1:], form, own)
    return multi30k(data)


# --- inflection -----------------------------------------------------------------------------------------------------


def inflection(name: str, source: Path, form: Form, folder: Path) -> Task:
    """CoNLL 2017, high: lemma and features to form."""
    rows = {
        split: read_rows(source / file)
        for split, file in zip(SPLITS, ("train-high.tsv", "valid.tsv", "test.tsv"), strict=True)
    }
    train = [*rows["train"], *(backwards(row) for row in rows["train"] if form.both_ways)]
    columns = Columns("1", "2", "3")
    written = {
        split: write_test(folder, split, [(columns.source_of(row), row[1]) for row in rows[split]])
        for split in SPLITS[1:]
    }
    settings = (*BEGIN, "data.target_units=char", "data.columns=source=1,features=3,target=2")
    groups = [(str(write_rows(folder / "train.tsv", train)),)]
    return Task(name, groups, written["valid"], written["test"], settings, accuracy, beam=5)


def backwards(row: Row) -> Row:
    """From the form to the lemma, which a feature of its own asks for."""
    lemma, form, features = row
    return form, lemma, f"LEMMA;{features}"


def accuracy(outputs: Lines, references: Lines) -> Score:
    return score_outputs(outputs, [[one] for one in references], ["exact-match"], units="char").main


# --- pronunciation --------------------------------------------------------------------------------------------------


def pronunciation(name: str, source: Path, track: str, only: Sequence[str], form: Form, folder: Path) -> Task:
    """SIGMORPHON 2021: one language alone, or all languages of a track with tags. Each has equally many test words."""
    languages = tuple(only) or PRONOUNCED[track]
    read = {(one, split): words(source / track / one / f"{split}.tsv", form) for one in languages for split in SPLITS}
    learned = {one: read[one, "train"] for one in languages} | others(source, form)
    tagged = len(learned) > 1
    train = [
        (str(write_rows(folder / f"{one}.tsv", [*rows, *joined(rows, form.joined)])),) for one, rows in learned.items()
    ]
    valid, test = (
        write_test(folder, split, [(tag(one, row[0], tagged), row[1]) for one in languages for row in read[one, split]])
        for split in SPLITS[1:]
    )
    groups = [(str(write_rows(folder / f"{one}-valid.tsv", read[one, "valid"])),) for one in languages]
    tags = (f"data.tags={','.join(learned)}", f"data.valid_tags={','.join(languages)}") if tagged else ()
    settings = (*BEGIN, "data.target_units=word", "data.joint=false", "model.tie=target", *tags)
    return Task(name, train, valid, test, settings, word_error_rate, beam=5, valid_groups=groups)


def others(source: Path, form: Form) -> dict[str, list[Row]]:
    """What is learned beside the languages of the task."""
    medium = PRONOUNCED["medium"] if form.with_medium else ()
    found = {one: words(source / "medium" / one / "train.tsv", form) for one in medium}
    return found | ({"cmudict": read_rows(source.parent / "cmudict" / "train.tsv")} if form.with_cmudict else {})


def words(path: Path, form: Form) -> list[Row]:
    rows = read_rows(path)
    return [(unicodedata.normalize("NFD", row[0]), row[1]) for row in rows] if form.decomposed else rows


def joined(rows: Sequence[Row], times: int) -> list[Row]:
    """Random pairs of words as one source: a model that copies whole words by heart cannot pronounce them."""
    draw = random.Random(1)
    pairs = [(draw.choice(rows), draw.choice(rows)) for _ in range(times * len(rows))]
    return [(f"{one[0]} {other[0]}", f"{one[1]} {BETWEEN_WORDS} {other[1]}") for one, other in pairs]


def tag(language: str, word: str, tagged: bool) -> str:
    return f"{language_tag(language)} {word}" if tagged else word


def language_of(source: str) -> str:
    """The language that a tag names; nothing without a tag."""
    return source[2:].partition("<<")[0] if source.startswith(">>") else ""


def word_error_rate(outputs: Lines, references: Lines) -> Score:
    return score_outputs(outputs, [[one] for one in references], ["wer"]).main


# --- files ----------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    return [tuple(line.split("\t")) for line in read_lines(path)]


def write_rows(path: Path, rows: Iterable[Row]) -> Path:
    return write(path, ["\t".join(row) for row in rows])


def write_test(folder: Path, split: str, pairs: Iterable[Row]) -> TestFiles:
    sources, targets = zip(*pairs, strict=True)
    return TestFiles(write(folder / f"{split}.source", sources), write(folder / f"{split}.target", targets))


def write(path: Path, lines: Iterable[str]) -> Path:
    """The file, whole or not at all: several processes may write it at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    own = path.with_name(f"{path.name}.{os.getpid()}")
    own.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    own.replace(path)
    return path
