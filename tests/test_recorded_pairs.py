"""Test sets of recordings: every problem is one line that names the file, the line and what to do."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from folders import write_speech_model

from transduce.audio.features import RATE
from transduce.cli import main
from transduce.data import Corpus, read_pairs
from transduce.errors import DataError

NO_AUDIO = ":1: names no column `audio`: begin the table with a line that names its columns, audio and text, with a tab"
MISSING = "correct the path, which is relative to the folder of the table, or remove the line"
MANIFEST = "give a .tsv or .jsonl file with the columns audio and text, or a folder with wav.scp and text"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, soundfile = tmp_path_factory.mktemp("recorded"), pytest.importorskip("soundfile")
    write_speech_model(path / "run")
    soundfile.write(path / "a.wav", 0.1 * np.random.default_rng(0).normal(size=RATE), RATE)
    soundfile.write(path / "nan.wav", np.full(RATE, np.nan), RATE, subtype="FLOAT")
    (path / "text").write_text("the cat sat\n")
    (path / "list").write_text("a.wav\n\n")
    (path / "two-lines").write_text("the cat\na dog\n")
    (path / "kaldi").mkdir()
    (path / "kaldi/wav.scp").write_text("u1 ../a.wav\nu2 missing.wav\n")
    (path / "kaldi/text").write_text("u1 the cat\n\nu2 a dog\n")
    return path


TABLES = {
    "missing.tsv": "audio\ttext\na.wav\tthe cat\nmissing.wav\ta dog\n",
    "missing.jsonl": '{"audio": "a.wav", "text": "the cat"}\n{"audio": "missing.wav", "text": "a dog"}\n',
    "no-text.tsv": "audio\tspeaker\na.wav\tanna\n",
    "no-audio.tsv": "file\ttext\na.wav\tthe cat\n",
    "no-header.tsv": "a.wav\tthe cat\n",
    "plain.tsv": "the cat sat\n",
    "empty.tsv": "",
    "header.tsv": "audio\ttext\n",
    "blank.tsv": "audio\ttext\na.wav\tthe cat\n\na.wav\ta dog\n",
    "short.tsv": "audio\ttext\na.wav\n",
    "no-sound.tsv": "audio\ttext\na.wav\tthe cat\ntext\ta dog\n",
    "nan.tsv": "audio\ttext\na.wav\tthe cat\nnan.wav\ta dog\n",
    "times.tsv": "audio\ttext\tduration\na.wav\tthe cat\t0.5\na.wav\ta dog\t99\n",
    "keys.jsonl": '{"source": "a.wav", "target": "the cat"}\n',
    "null.jsonl": '{"audio": "a.wav", "text": "the cat"}\n{"audio": "a\\u0000.wav", "text": "a dog"}\n',
    "surrogate.jsonl": '{"audio": "a.wav", "text": "a \\ud800"}\n',
    "true.jsonl": '{"audio": "a.wav", "text": "a", "duration": true}\n',
    "twice.tsv": "audio\taudio\ttext\na.wav\tb.wav\tthe cat\n",
    "list.jsonl": '["a.wav", "the cat"]\n',
}


@pytest.mark.parametrize("command", ["evaluate", "score"])
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ("missing.tsv", f"missing.tsv:3: {{folder}}/missing.wav: no such file: {MISSING}"),
        ("missing.jsonl", f"missing.jsonl:2: {{folder}}/missing.wav: no such file: {MISSING}"),
        ("kaldi", f"kaldi/text:3: {{folder}}/kaldi/missing.wav: no such file: {MISSING}"),
        ("no-text.tsv", "no-text.tsv:1: no column `text` among audio, speaker: name the column of the words `text`"),
        ("no-audio.tsv", f"no-audio.tsv{NO_AUDIO}"),
        ("no-header.tsv", f"no-header.tsv{NO_AUDIO}"),
        ("plain.tsv", f"plain.tsv{NO_AUDIO}"),
        ("empty.tsv", f"empty.tsv{NO_AUDIO}"),
        ("header.tsv", "header.tsv: names no recordings: give a line for each recording"),
        ("blank.tsv", "blank.tsv:3: blank line: use --skip-blank-lines to skip such lines"),
        ("short.tsv", "short.tsv:2: 1 column, but the first line names 2: give audio, text, with a tab between them"),
        ("no-sound.tsv", "no-sound.tsv:3: {folder}/text: cannot be decoded: it is damaged, or not wav, flac, ogg, opus or mp3 "
         "(`ffmpeg -i FILE FILE.flac` converts other types): give another file, or remove the line"),
        ("nan.tsv", "nan.tsv:3: {folder}/nan.wav: the recording has samples that are NaN, infinite or far beyond full scale: give another file"),
        ("times.tsv", "times.tsv:3: {folder}/a.wav: the part from 0 to 99 s is beyond the end of the recording, 1.00 s: "
         "correct the times, or remove the line"),
        ("keys.jsonl", "keys.jsonl:1: the keys are source, target: each line must have the keys audio and text"),
        ("list.jsonl", "list.jsonl:1: not an object with keys: each line must have the keys audio and text"),
        ("null.jsonl", "null.jsonl:2: the path has a null character: remove it"),
        ("surrogate.jsonl", "surrogate.jsonl:1: the text has half a surrogate pair"),
        ("true.jsonl", "true.jsonl:1: duration is 'True', not a number of seconds"),
        ("twice.tsv", "twice.tsv:1: several columns are named audio: rename or remove all but one"),
        ("text", f"text: names no recordings: {MANIFEST}"),
        ("nowhere", f"nowhere: no such file: {MANIFEST}"),
        ("a.wav", f"a.wav: is a recording: `transduce transcribe` transcribes it; to score a model, {MANIFEST}"),
        ("text text", "text:1: the cat sat: no such file: this model transcribes, so each line of its input names"),
        ("list two-lines", "list:2: the line is empty: this model transcribes, so each line of its input names"),
    ],
)  # fmt: skip
def test_a_wrong_test_set_is_refused_by_file_and_line(
    folder: Path,
    command: str,
    files: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    for name, content in TABLES.items():
        Path(name).write_text(content)
    assert main([command, "run", *files.split(), "--device", "cpu"]) == 2
    assert f"transduce: {message.format(folder=folder)}" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("evaluate run blank.tsv --columns source=audio,target=text", "blank.tsv:1: names the columns of the table: leave out --columns"),
        ("compare A=run B=run --source missing.tsv", "missing.tsv:3: {folder}/missing.wav: no such file"),
        ("ngram run text --valid nan.tsv --device cpu", "nan.tsv:3: {folder}/nan.wav: the recording has samples that are NaN"),
        ("ngram run text --valid missing.tsv --device cpu", "missing.tsv:3: {folder}/missing.wav: no such file"),
    ],
)  # fmt: skip
def test_other_commands_name_the_line_too(
    folder: Path, command: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    for name, content in TABLES.items():
        Path(name).write_text(content)
    assert main(command.split()) == 2
    assert f"transduce: {message.format(folder=folder)}" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("a.wav#t=abc", "a.wav#t=abc: 'abc' is not a number of seconds: write a part of a recording as talk.flac#t=1.5,4"),
        ("a.wav#t=0,nan", "a.wav#t=0,nan: 'nan' is not a number of seconds"),
        ("a.wav#t=-1", "a.wav#t=-1: '-1' is not a number of seconds"),
        ("a.wav#t=0.5,0.2", "a.wav: the part from 0.5 to 0.2 s ends before it begins"),
        ("/dev/null", "/dev/null: is a pipe or a device: `transduce transcribe RUN -` reads standard input"),
    ],
)  # fmt: skip
def test_parts_that_cannot_be_and_devices_are_one_line(
    folder: Path, part: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other recordings are transcribed; a manifest with such a part is refused by its line."""
    monkeypatch.chdir(folder)
    assert main(["transcribe", "run", part, "a.wav", "--device", "cpu", "--json"]) == 2
    found = capsys.readouterr()
    first, second = map(json.loads, found.out.splitlines())
    assert message in first["error"]
    assert message in found.err
    assert second["error"] == ""
    Path("part.tsv").write_text(f"audio\ttext\n{part}\tthe cat\n")
    assert main(["evaluate", "run", "part.tsv", "--device", "cpu"]) == 2
    assert "transduce: part.tsv:2: " in capsys.readouterr().err


def test_a_file_without_permission_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may read everything
    assert main(["transcribe", "run", "a.wav", "--device", "cpu"]) == 2
    assert "a.wav: cannot be read: permission denied" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["txt", "json"])
def test_a_file_name_may_be_any_bytes(
    folder: Path, form: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    name = os.fsdecode(b"bad\xff.wav")
    try:
        shutil.copy("a.wav", name)
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    assert main(["transcribe", "run", name, "a.wav", "--device", "cpu", *(["--json"] if form == "json" else [])]) == 0
    assert "bad\\udcff.wav" in capsys.readouterr().out.replace("\\\\", "\\")


def test_a_failed_ngram_command_leaves_no_model_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert main(["ngram", "run", "text", "--valid", "text", "text", "--device", "cpu"]) == 2
    assert not Path("run/ngram").exists()


def test_blank_lines_of_a_manifest_can_be_skipped(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    Path("blank.tsv").write_text(TABLES["blank.tsv"])
    assert main(["evaluate", "run", "blank.tsv", "--skip-blank-lines", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sentences"] == 2
    [block] = Corpus((("blank.tsv",),), skip_blank_lines=True).blocks()
    assert (block.blank, block.places) == (1, ["blank.tsv:2", "blank.tsv:4"])


@pytest.mark.parametrize("times", ["nan 1", "0 inf", "-1 2", "0"])
def test_times_of_segments_that_cannot_be_are_refused(tmp_path: Path, times: str) -> None:
    (tmp_path / "wav.scp").write_text("r1 a.wav\n")
    (tmp_path / "text").write_text("u1 one\n")
    (tmp_path / "segments").write_text(f"u1 r1 {times}\n")
    with pytest.raises(DataError, match="text:1: its line in `segments` must be"):
        read_pairs(Corpus(((str(tmp_path),),)))
