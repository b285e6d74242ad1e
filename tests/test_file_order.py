"""Files of a test set in the wrong order: `evaluate` and `compare` warn, and only then."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from folders import GERMAN, lines, write_folder

from transduce import checkpoint
from transduce.cli import main
from transduce.translator import Translation, Translator
from transduce.translator.file_order import order_warning, unrelated_warning

ENGLISH_LINES = lines(40, seed=3)
GERMAN_LINES = lines(40, seed=4, words=GERMAN)
ALIKE = "the outputs look more like the sources than like the references"
COPIES = "40 of 40 references are equal to their sources"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sides of a test set, outputs in German, and a model that writes these outputs."""
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    outputs = lines(40, seed=5, words=GERMAN)
    for name, texts in {"en": ENGLISH_LINES, "de": GERMAN_LINES, "out": outputs, "other": outputs[::-1]}.items():
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    write_folder(tmp_path / "model", task="translation")
    stream = Translator.stream

    def in_german(self: Translator, *arguments: Any) -> Iterator[Translation]:
        for translation, text in zip(stream(self, *arguments), outputs, strict=True):
            yield replace(translation, outputs=[replace(translation.outputs[0], text=text)])

    monkeypatch.setattr(Translator, "stream", in_german)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "reference", "warning"), [("en", "de", ""), ("de", "en", ALIKE), ("en", "en", COPIES)]
)
def test_commands_warn_about_files_in_the_wrong_order(
    files: Path, capsys: pytest.CaptureFixture[str], source: str, reference: str, warning: str
) -> None:
    test = [str(files / source), "--reference", str(files / reference)]
    for command in (
        ["evaluate", str(files / "model"), test[0], test[2], "--engine", "torch"],
        ["compare", str(files / "out"), str(files / "other"), "--source", *test, "--samples", "100"],
    ):
        assert main(command) == 0
        said = capsys.readouterr().err
        assert ("warning:" in said) == bool(warning)
        assert warning in said


def test_a_good_score_needs_no_warning() -> None:
    """Corrections of grammar look like their sources."""
    given = (GERMAN_LINES, [[text] for text in ENGLISH_LINES], lines(40, seed=5, words=GERMAN))
    assert ALIKE in order_warning(*given, {"BLEU": 0.5})
    assert "(chrF2 9.00)" in order_warning(*given, {"TER": 98.0, "chrF2": 9.0})
    for scores in ({"BLEU": 60.0, "chrF2": 80.0}, {"TER": 0.5}, {}):
        assert order_warning(*given, scores) == ""


def test_references_of_other_sources_are_said(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "unrelated").write_text("".join(f"{number} {number} {number} {number}\n" for number in range(40)))
    tensors = checkpoint.read_tensors(files / "model" / "best.safetensors")
    about = checkpoint.read_about(files / "model" / "best.safetensors")
    command = ["evaluate", str(files / "model"), str(files / "en"), str(files / "unrelated"), "--engine", "torch"]
    for validation, warns in ((16.25, True), (5.0, False)):
        known = {**about, "metric": "BLEU", "score": f"{validation}"}
        checkpoint.write_tensors(files / "model" / "best.safetensors", tensors, known)
        assert main([*command, "--weights", "best"]) == 0
        said = capsys.readouterr().err
        expected = (
            "BLEU 0.00 is far below that of the run's validation data (16.25): are these references of these sources?"
        )
        assert (expected in said) == warns
    assert unrelated_warning(9, {"BLEU": 0.0}, "BLEU", 16.0) == ""
    assert unrelated_warning(40, {"TER": 99.0}, "BLEU", 16.0) == ""
    assert unrelated_warning(40, {"BLEU": 0.0}, "chrF2", 40.0) == ""


def test_few_lines_say_nothing() -> None:
    few = (GERMAN_LINES[:9], [[text] for text in ENGLISH_LINES[:9]], GERMAN_LINES[9:18])
    assert order_warning(*few, {"BLEU": 0.0}) == ""
