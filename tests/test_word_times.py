"""Forced alignment against brute force, times of words, subtitles and what `transcribe` writes where."""

import io
import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tones import train, write_corpus

import transduce
from transduce.audio.features import RATE
from transduce.cli import main
from transduce.search.ctc_alignment import align
from transduce.translator import Translator
from transduce.translator.subtitles import cues, srt, vtt
from transduce.translator.transcription import Segment, Transcript, transcribe
from transduce.translator.word_times import Word

# --- alignment ---------------------------------------------------------------------------------------------------


def best_path(log_probs: Any, tokens: list[int]) -> tuple[int, ...]:
    """The most probable of all paths that spell the tokens, tried one by one."""
    frames, classes = log_probs.shape

    def spells(path: tuple[int, ...]) -> bool:
        merged = [one for at, one in enumerate(path) if at == 0 or path[at - 1] != one]
        return [one for one in merged if one != classes - 1] == tokens

    paths = [path for path in product(range(classes), repeat=frames) if spells(path)]
    return max(paths, key=lambda path: sum(log_probs[at, one] for at, one in enumerate(path)))


@pytest.mark.parametrize("tokens", [[0], [0, 1], [1, 1], [0, 1, 0], [0, 0, 1], [1, 0, 1, 0]])
@pytest.mark.parametrize("frames", [6, 7])
def test_the_alignment_is_the_best_of_all_paths(tokens: list[int], frames: int) -> None:
    logits = np.random.default_rng(len(tokens) + frames).normal(size=(frames, 3))
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    spans, path = align(log_probs, tokens), best_path(log_probs, tokens)
    written = [2] * frames
    for token, (begin, end) in zip(tokens, spans, strict=True):
        written[begin:end] = [token] * (end - begin)
    assert tuple(written) == path
    assert all(one[1] <= other[0] for one, other in pairwise(spans))


def test_too_few_frames_and_no_tokens_have_no_alignment() -> None:
    log_probs = np.full((3, 3), math.log(1 / 3))
    assert align(log_probs, [0, 0, 0]) == []
    assert align(log_probs, []) == []
    assert align(log_probs[:0], [0]) == []
    assert align(log_probs, [0, 1, 0]) == [(0, 1), (1, 2), (2, 3)]


# --- subtitles ---------------------------------------------------------------------------------------------------


def spoken(*words: tuple[str, float, float], end: float = 60.0) -> Transcript:
    found = tuple(Word(text, begin, end, 0.9) for text, begin, end in words)
    return Transcript("talk.wav", [Segment(0.0, end, " ".join(word.text for word in found), 0.9, found)])


def test_srt_and_vtt_by_hand() -> None:
    transcript = spoken(("a", 0.5, 0.9), ("<b>", 1.0, 2.25), ("late", 3_725.5, 3_727.0), end=4_000.0)
    assert srt(transcript) == ("1\n00:00:00,500 --> 00:00:02,250\na <b>\n\n2\n01:02:05,500 --> 01:02:07,000\nlate\n")
    assert vtt(transcript) == (
        "WEBVTT\n\n00:00:00.500 --> 00:00:02.250\na &lt;b&gt;\n\n01:02:05.500 --> 01:02:07.000\nlate\n"
    )


def test_no_words_are_no_subtitles() -> None:
    silence = Transcript("talk.wav", [Segment(0.0, 9.0, "", 1.0)])
    assert (srt(silence), vtt(silence)) == ("", "WEBVTT\n")


def test_an_arrow_in_a_text_cannot_end_a_subtitle() -> None:
    transcript = spoken(("a", 0, 1), ("-->", 1, 2), ("b", 2, 3))
    assert srt(transcript).count("-->") == 1
    assert vtt(transcript).count("-->") == 1


def test_subtitles_are_short_in_order_and_without_overlaps() -> None:
    draw = np.random.default_rng(0)
    begins = np.cumsum(draw.exponential(0.5, 200))
    words = [("x" * draw.integers(1, 60), float(at), float(at) + 0.04) for at in begins]
    transcript = spoken(*words, end=float(begins[-1]) + 0.1)
    found = cues(transcript)
    assert " ".join(cue.text for cue in found) == transcript.text
    assert all(one.begin <= one.end <= other.begin for one, other in pairwise(found))
    assert found[-1].end <= transcript.segments[-1].end
    for block in srt(transcript).split("\n\n"):
        lines = block.splitlines()[2:]
        assert len(lines) <= 2
        assert all(len(line) <= 42 or " " not in line for line in lines)


def test_without_times_of_words_a_segment_is_one_subtitle() -> None:
    transcript = spoken(("a", 1, 2), ("b", 2, 3), end=5.0)
    plain = replace(transcript, segments=[replace(transcript.segments[0], words=())])
    assert srt(plain) == "1\n00:00:00,000 --> 00:00:05,000\na b\n"


# --- runs --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tones")
    write_corpus(folder, "train", 24, 1)
    write_corpus(folder, "valid", 4, 2)
    settings = {"train.learning_rate": 0.01, "train.warmup_steps": 10, "train.validate_every": 20}
    train(folder, folder / "run", 20, **settings)
    return folder


def files_of(corpus: Path, count: int) -> list[str]:
    return [str(corpus / f"valid{number}.wav") for number in range(count)]


def test_words_have_times_within_the_recording_and_spell_the_text(corpus: Path) -> None:
    translator = transduce.load(corpus / "run", device="cpu")
    for transcript in transcribe(translator, files_of(corpus, 4), words=True):
        (segment,) = transcript.segments
        assert " ".join(word.text for word in segment.words) == segment.text
        times = [time for word in segment.words for time in (word.begin, word.end)]
        assert times == sorted(times)
        assert all(0 <= time <= segment.end for time in times)
        assert all(0 < word.confidence <= 1 for word in segment.words)


def test_words_of_a_long_recording_have_the_times_of_the_recording(corpus: Path, tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    sound = np.concatenate([soundfile.read(path)[0] for path in files_of(corpus, 4)])
    soundfile.write(tmp_path / "long.wav", sound, RATE)
    (transcript,) = transcribe(transduce.load(corpus / "run", device="cpu"), [str(tmp_path / "long.wav")], words=True)
    assert len(transcript.segments) > 1
    for segment in transcript.segments:
        assert all(segment.begin <= word.begin <= word.end <= segment.end for word in segment.words)


@pytest.mark.slow
def test_a_model_without_ctc_has_no_times(corpus: Path, tmp_path: Path) -> None:
    train(corpus, tmp_path / "run", 2, **{"model.ctc_weight": 0.0, "model.ctc_search": 0.0})
    (transcript,) = transcribe(transduce.load(tmp_path / "run", device="cpu"), files_of(corpus, 1), words=True)
    assert transcript.segments[0].words == ()


def fields_of(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The path and the JSON type of every field of an object."""
    for name, one in value.items():
        here = f"{path}.{name}" if path else name
        yield (
            here,
            {str: "string", list: "array"}.get(type(one), "number" if isinstance(one, float) else str(type(one))),
        )
        for item in one if isinstance(one, list) else []:
            yield from fields_of(item, f"{here}[]")


def test_the_reference_lists_every_field_of_json_with_its_type(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[1] / "docs/reference/file-formats.md").read_text(encoding="utf-8")
    section = page.partition("## Outputs of `transcribe`")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([a-z.\[\]]+)` \| (\w+) \|", section, flags=re.MULTILINE)
    files = [*files_of(corpus, 4), str(corpus / "missing.wav")]
    assert main(["transcribe", str(corpus / "run"), *files, "--device", "cpu", "--json"]) == 2
    *good, failed = map(json.loads, capsys.readouterr().out.splitlines())
    assert sorted({field for one in good for field in fields_of(one)}) == sorted(listed)
    assert failed == {"file": files[4], "text": "", "segments": [], "error": f"{files[4]}: no such file"}
    assert {one["error"] for one in good} == {""}


@pytest.mark.parametrize("form", ["srt", "vtt", "json", "txt"])
def test_each_recording_has_a_file_of_its_own(corpus: Path, tmp_path: Path, form: str) -> None:
    options = [] if form == "txt" else [f"--{form}"]
    command = ["transcribe", str(corpus / "run"), *files_of(corpus, 2), "--device", "cpu", "--output", str(tmp_path)]
    assert main([*command, *options]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"valid0.{form}", f"valid1.{form}"]
    text = (tmp_path / f"valid0.{form}").read_text()
    assert text.startswith("WEBVTT") if form == "vtt" else True
    assert "words" in json.loads(text)["segments"][0] if form == "json" else True


def test_subtitles_of_one_recording_go_to_stdout(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", str(corpus / "run"), *files_of(corpus, 1), "--device", "cpu", "--srt"]) == 0
    out = capsys.readouterr().out
    assert out == "" or re.match(r"1\n00:00:0\d,\d{3} --> 00:00:0\d,\d{3}\n\w+", out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.wav", "b.wav", "--srt"], "--srt with several recordings needs --output DIR"),
        (["x/a.wav", "y/a.wav", "--output", "."], "several recordings would be written to a.txt"),
        (["a.wav", "--output", __file__], "must be a folder, in which each recording gets a file"),
        (
            ["a.wav", "--output", "a.txt"],
            "must be a folder, in which each recording gets a file; to write to one file, use > a.txt",
        ),
        (["a.wav", "--rate", "8000"], "--rate has no effect"),
        (["-", "--rate", "10"], "--rate 10: must be from 1,000 to 768,000"),
    ],
)
def test_what_would_be_noticed_too_late_is_refused(
    corpus: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["transcribe", str(corpus / "run"), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_parts_of_a_recording_have_files_of_their_own(corpus: Path, tmp_path: Path) -> None:
    (file,) = files_of(corpus, 1)
    parts = [f"{file}#t=0.1,0.4", f"{file}#t=0.2", f"{file}#t=0,0.3&speaker=an%2Fna", file]
    command = ["transcribe", str(corpus / "run"), *parts, "--device", "cpu", "--beam", "1", "--output", str(tmp_path)]
    assert main(command) == 0
    names = ["valid0.txt", "valid0_0-0.3_an-na.txt", "valid0_0.1-0.4.txt", "valid0_0.2-end.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert main([*command[:2], parts[0], parts[0], *command[-2:]]) == 2


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes\nat frame 1"),
            "out of memory ([enforce",
        ),
        (torch.OutOfMemoryError("CUDA out of memory."), "out of memory (CUDA out of memory.): transcribe parts of it"),
        (MemoryError(), "out of memory (MemoryError)"),
        (RuntimeError("a kernel failed"), "cannot be transcribed: RuntimeError: a kernel failed"),
    ],
    ids=str,
)
def test_a_recording_that_fails_does_not_end_the_others(
    corpus: Path, problem: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transcribe_one, failed = Translator.transcribe, []

    def once(*arguments: Any) -> Any:
        if not failed:
            failed.append(problem)
            raise problem
        return transcribe_one(*arguments)

    monkeypatch.setattr(Translator, "transcribe", once)
    files = files_of(corpus, 2)
    assert main(["transcribe", str(corpus / "run"), *files, "--device", "cpu", "--beam", "1", "--json"]) == 2
    printed = capsys.readouterr()
    assert [bool(json.loads(line)["error"]) for line in printed.out.splitlines()] == [True, False]
    assert any(line.startswith(f"transduce: {files[0]}: ") and said in line for line in printed.err.splitlines())


def test_raw_samples_of_another_rate_are_the_same_recording(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    soundfile = pytest.importorskip("soundfile")
    samples, _ = soundfile.read(corpus / "valid0.wav", dtype="int16")
    soundfile.write(tmp_path / "slow.wav", samples, 12_000)
    command = ["transcribe", str(corpus / "run"), "--device", "cpu", "--beam", "1", "--json"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(samples.tobytes())))
    assert main([*command, "-", "--rate", "12000"]) == 0
    piped = json.loads(capsys.readouterr().out)
    assert main([*command, str(tmp_path / "slow.wav")]) == 0
    assert json.loads(capsys.readouterr().out)["segments"] == piped["segments"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((tmp_path / "slow.wav").read_bytes())))
    assert main([*command, "-", "--rate", "12000"]) == 2
    assert "has its own rate: leave out --rate" in capsys.readouterr().err
