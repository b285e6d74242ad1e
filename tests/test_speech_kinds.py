"""Speech models where others belong, and others where speech models belong: one line says what the model does."""

import io
import sys
from pathlib import Path

import pytest
from folders import write_character_model, write_folder, write_speech_model

import transduce
from transduce.cli import main
from transduce.errors import SettingError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kinds")
    write_speech_model(path / "speech")
    write_speech_model(path / "without-ctc", ctc_weight=0.0, ctc_search=0.0)
    write_folder(path / "translator")
    write_character_model(path / "lm")
    (path / "manifest.tsv").write_text("audio\ttext\na.wav\tthe cat\n")
    (path / "no-header.tsv").write_text("a.wav\tthe cat\nb.flac\ta dog\n")
    (path / "other-header.tsv").write_text("file\twords\na.wav\tthe cat\n")
    (path / "text").write_text("the cat sat\n")
    (path / "empty").write_text("")
    (path / "b.wav").write_bytes(b"RIFF\xa4\xff\xff\xff")
    return path


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("transcribe translator a.wav --ngram", "n-gram model of words is for speech models, and this model translates"),
        ("evaluate translator text text --ngram", "is for speech models, and this model translates"),
        ("transcribe lm a.wav --ngram", "is for speech models, and this model continues text"),
        ("ngram lm text", "is for speech models, and this model continues text"),
        ("transcribe without-ctc a.wav --ngram", "needs a CTC output: train a model with model.ctc_weight above 0"),
        ("ngram without-ctc text --no-tune", "needs a CTC output: train a model with model.ctc_weight above 0"),
        ("transcribe speech a.wav --ngram", "`transduce ngram speech` creates it"),
        ("transcribe translator a.wav", "translates text, not recordings: use `transduce translate`"),
        ("evaluate translator manifest.tsv", "names recordings, and this model translates: give files with text"),
        ("score translator manifest.tsv", "names recordings, and this model translates: give files with text"),
        ("evaluate translator a.wav text", "a.wav: is a recording, and this model translates: give files with text"),
        ("evaluate translator manifest.tsv text", "manifest.tsv: names recordings, and this model translates: give files with text"),
        ("ngram speech empty --no-tune", "empty: no words to learn from: every line is empty"),
        ("ngram speech b.wav --no-tune", "b.wav: is a recording: give a file with text"),
        ("train new --train b.wav --valid text text", "b.wav: is a recording: give a .tsv or .jsonl file with the columns audio and text"),
        ("train new --train b.wav text --valid text text", "b.wav: is a recording: give a .tsv or .jsonl file with the columns"),
        ("train new --train manifest.tsv text --valid text text", "manifest.tsv: names recordings and their texts: give it alone, without text"),
        ("train new --text b.wav", "b.wav: is a recording: give a file with text"),
        ("train new --train manifest.tsv --valid manifest.tsv --preset base", "--preset base: has settings that models of the family speech do not have"),
        ("score lm --text empty", "empty: the text is empty: there is nothing to measure"),
        ("score lm --text text --stride 0", "--stride 0: must be at least 1"),
        ("evaluate speech text text", "the cat sat: no such file: this model transcribes, so each line of its input names"),
        ("translate speech text", "the cat sat: no such file: this model transcribes, so each line of its input names"),
        ("generate speech --prompt a", "this model transcribes recordings: it is not a language model"),
        ("shortlist speech --train text text", "model.family = speech: this needs a Transformer"),
        ("doctor --train manifest.tsv", "manifest.tsv: names recordings, and only texts are examined"),
        ("train new --train text text --valid text text --from speech", "transcribes recordings, and the training data is text"),
        ("train new --train manifest.tsv --valid manifest.tsv --from translator", "translates, and the training data names"),
        ("train new --train text text --valid manifest.tsv", "the validation data names recordings, but the training data"),
        ("train new --train no-header.tsv --valid text text", "no-header.tsv: the sources are names of recordings: begin the table with"),
        ("train new --train other-header.tsv --valid text text", "other-header.tsv: the sources are names of recordings: begin the table with"),
        ("train new --train manifest.tsv --valid manifest.tsv --columns source=audio,target=txt", "leave out --columns"),
        ("train new --train manifest.tsv --valid manifest.tsv", "a.wav: no such file (paths are relative to the table)"),
        ("train new --train manifest.tsv --valid text text", "the training data names recordings, but the validation data"),
    ],
)  # fmt: skip
def test_a_model_or_file_of_the_wrong_kind_is_refused_in_one_line(
    folder: Path, command: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert main(command.split()) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("transduce: ")
    assert message in last


def test_loading_a_translator_with_an_ngram_model_is_refused(folder: Path) -> None:
    with pytest.raises(SettingError, match="is for speech models, and this model translates"):
        transduce.load(folder / "translator", ngram=True)
