"""Warnings before a run begins: each where it should be, with its count, and none where all is well."""

from pathlib import Path

import pytest
from unspaced import sentences, translations

from transduce.cli import main
from transduce.config import DataConfig
from transduce.data import Corpus, data_warnings, scan

Pairs = list[tuple[str, str]]
SUBJECTS = ["the old man", "a little girl", "my brother", "the black dog", "our neighbour", "a young woman"]
VERBS = ["sees", "follows", "remembers", "visits", "hears", "likes"]
GERMAN = {
    "the old man": "der alte Mann", "a little girl": "ein kleines Mädchen", "my brother": "mein Bruder",
    "the black dog": "der schwarze Hund", "our neighbour": "unser Nachbar", "a young woman": "eine junge Frau",
    "sees": "sieht", "follows": "begleitet", "remembers": "erkennt", "visits": "besucht", "hears": "hört", "likes": "mag",
}  # fmt: skip
PAIRS: Pairs = [
    (f"{one} {verb} {other} today", f"{GERMAN[one]} {GERMAN[verb]} heute {GERMAN[other]}")
    for one in SUBJECTS
    for verb in VERBS
    for other in SUBJECTS
    if one != other
]
TRAIN, VALID = [pair for n, pair in enumerate(PAIRS) if n % 5], PAIRS[::5]


def warned(folder: Path, train: Pairs, valid: Pairs, **data: object) -> list[str]:
    corpora = []
    for name, pairs in (("train", train), ("valid", valid)):
        path = folder / f"{name}.tsv"
        path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
        corpora.append(Corpus(((str(path),),)))
    validation = scan(corpora[1], 1_000)
    training = scan(corpora[0], 1_000, zip(*validation.sample, strict=True))
    settings = DataConfig(**({"task": "translation"} | data))  # type: ignore[arg-type]
    found = data_warnings(training, validation, settings)
    assert all(line.startswith("warning: ") and "\n" not in line for line in found)
    return found


def turned(pairs: Pairs) -> Pairs:
    return [(target, source) for source, target in pairs]


def test_good_data_have_no_warnings(tmp_path: Path) -> None:
    assert warned(tmp_path, TRAIN, VALID) == []
    assert warned(tmp_path, TRAIN, VALID, languages=("en", "de")) == []
    numbered = [(f"{en} {n}", f"{n}{ja}") for n, (en, ja) in enumerate(translations("en", "ja", 60))]
    assert warned(tmp_path, numbered[:40], numbered[40:], languages=("en", "ja")) == []


def test_validation_data_among_the_training_data(tmp_path: Path) -> None:
    (line,) = warned(tmp_path, PAIRS, VALID)
    assert line.startswith(f"warning: {len(VALID)} of {len(VALID)} validation pairs are also training pairs")
    (line,) = warned(tmp_path, TRAIN, [*VALID, *TRAIN[:7]])
    assert line.startswith(f"warning: 7 of {len(VALID) + 7} validation pairs are also training pairs")
    assert "omit --valid" in line


def test_one_pair_in_many_is_no_leak(tmp_path: Path) -> None:
    many = [(f"{source} {n}", f"{target} {n}") for n in range(4) for source, target in VALID]
    assert warned(tmp_path, [*TRAIN, many[0]], many) == []


def test_swapped_files(tmp_path: Path) -> None:
    (line,) = warned(tmp_path, TRAIN, turned(VALID))
    assert line.startswith(
        f"warning: {len(VALID)} of {len(VALID)} validation pairs that were checked have their sides in the opposite order"
    )
    assert "swap the two files after --valid" in line


def test_sides_of_one_kind_are_not_taken_for_swapped(tmp_path: Path) -> None:
    """Reversed words: both sides have the same letters."""
    pairs = [(source, " ".join(reversed(source.split()))) for source, _ in PAIRS]
    assert warned(tmp_path, pairs[::2], pairs[1::2]) == []


@pytest.mark.parametrize(
    ("languages", "count"), [(("en", "ja"), 0), (("ja", "en"), 1), (("de", "fr"), 0), (("xx", "yy"), 0)]
)
def test_languages_that_contradict_the_scripts(tmp_path: Path, languages: tuple[str, ...], count: int) -> None:
    pairs = [(f"{en} {n}", ja) for n, (en, ja) in enumerate(translations("en", "ja", 60))]
    found = warned(tmp_path, pairs[:40], pairs[40:], languages=languages)
    assert len(found) == count
    assert all("in the script of en" in line and "swap the two languages" in line for line in found)


def test_codes_of_three_letters(tmp_path: Path) -> None:
    (line,) = warned(tmp_path, TRAIN, VALID, languages=("eng", "deu-AT"))
    assert line.startswith(
        "warning: --languages eng deu-AT: clients of the server and other programs call these languages en de-AT:"
    )
    assert warned(tmp_path, TRAIN, VALID, languages=("en", "hsb")) == []
    assert warned(tmp_path, TRAIN, VALID, languages=("eng", "deu"), task="symbols") == []


@pytest.mark.parametrize(("language", "name"), [("ja", "Japanese"), ("zh", "Chinese")])
def test_missing_languages_where_the_score_needs_them(tmp_path: Path, language: str, name: str) -> None:
    pairs = [(f"{en} {n}", text) for n, (en, text) in enumerate(translations("en", language, 60))]
    (line,) = warned(tmp_path, pairs[:40], pairs[40:])
    assert f"look {name}" in line
    assert f"add --languages SOURCE {language}" in line
    assert warned(tmp_path, turned(pairs[:40]), turned(pairs[40:])) == []
    assert warned(tmp_path, pairs[:40], pairs[40:], task="symbols") == []


@pytest.mark.parametrize(
    ("split", "mark"),
    [(lambda text: text.replace("er", "e@@ r"), "@@"), (lambda text: "▁" + text.replace(" ", " ▁"), "▁")],
)
def test_text_that_was_segmented_already(tmp_path: Path, split, mark: str) -> None:  # type: ignore[no-untyped-def]
    found = warned(tmp_path, [(split(source), target) for source, target in TRAIN], VALID)
    (line,) = [line for line in found if mark in line]
    assert "training sources that were checked contain" in line
    assert "give raw text: sed" in line


def test_training_prints_the_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{en}\t{ja}\n" for en, ja in zip(sentences("en", 60), sentences("ja", 60), strict=True)))
    tiny = (
        "model.d_model=16 model.d_ff=16 model.num_encoder_layers=1 model.num_decoder_layers=1 train.threads=1".split()
    )
    files = ["--train", str(path), "--valid", str(path)]
    settings = [*tiny, "train.steps=1", f"data.cache={tmp_path / 'cache'}", "search.max_extra=3"]
    assert main(["train", str(tmp_path / "run"), *files, "--set", *settings]) == 0
    said = capsys.readouterr().err
    assert "warning: 60 of 60 validation pairs are also training pairs" in said
    assert "add --languages SOURCE ja" in said
