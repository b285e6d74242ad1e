"""Speech from manifest to transcript: what is read and left out, training that resumes, transcripts and their error rates."""

import dataclasses
import io
import json
import re
import sys
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from tones import TINY, train, write_corpus

import transduce
from transduce.audio.features import RATE, log_mel
from transduce.audio.files import read_samples
from transduce.audio.recording import Recording
from transduce.audio.silences import LONGEST_SECONDS, holds_sound, noise_of, pieces, without_quiet_ends
from transduce.audio.utterances import features_at_speeds, features_of, features_of_source, normalised
from transduce.cli import main
from transduce.config import DataConfig, from_toml
from transduce.data import Corpus, read_pairs
from transduce.data.augmentation import Augmentation
from transduce.data.speech_store import SpeechStore
from transduce.errors import DataError, SettingError, TransduceError
from transduce.metrics import normalised_transcript, score_outputs
from transduce.training.feature_display import features_line, shown_features
from transduce.training.loop import Trainer
from transduce.translator.picture import draw_attention
from transduce.translator.transcription import RecordingPieces

# --- manifests ---------------------------------------------------------------------------------------------------


def pairs_in(*groups: tuple[str, ...]) -> list[tuple[Recording, str]]:
    sources, targets = read_pairs(Corpus(groups))
    return [(Recording.parse(source), target) for source, target in zip(sources, targets, strict=True)]


def write_manifest(folder: Path, kind: str) -> tuple[str, ...]:
    """The same two utterances in every format: a whole file of anna's, and a part of one of bert's."""
    if kind == "tsv":
        lines = ["audio\ttext\toffset\tduration\tspeaker", "a.wav\tone\t\t\tanna", "sub/b.wav\ttwo\t1.5\t2\tbert"]
        (folder / "m.tsv").write_text("\n".join(lines) + "\n")
    elif kind == "jsonl":
        records: list[dict[str, Any]] = [
            {"audio": "a.wav", "text": "one", "speaker": "anna"},
            {"audio": "sub/b.wav", "text": "two", "offset": 1.5, "duration": 2, "speaker": "bert"},
        ]
        (folder / "m.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    elif kind == "nemo":
        records = [
            {"audio_filepath": "a.wav", "duration": 3.25, "text": "one", "speaker": "anna"},
            {"audio_filepath": "sub/b.wav", "offset": 1.5, "duration": 2.0, "text": "two", "speaker": "bert"},
        ]
        (folder / "m.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    elif kind == "kaldi":
        (folder / "wav.scp").write_text("r1 a.wav\nr2 sub/b.wav\n")
        (folder / "segments").write_text("u1 r1 0 0\nu2 r2 1.5 3.5\n")
        (folder / "text").write_text("u1 one\nu2 two\n")
        (folder / "utt2spk").write_text("u1 anna\nu2 bert\n")
        return (str(folder),)
    return (str(folder / ("m.tsv" if kind == "tsv" else "m.jsonl")),)


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "nemo", "kaldi"])
def test_every_manifest_names_the_same_recordings(tmp_path: Path, kind: str) -> None:
    assert pairs_in(write_manifest(tmp_path, kind)) == [
        (Recording(str(tmp_path / "a.wav"), speaker="anna"), "one"),
        (Recording(str(tmp_path / "sub/b.wav"), 1.5, 3.5, "bert"), "two"),
    ]


@pytest.mark.parametrize(
    ("record", "end"),
    [
        ({"audio_filepath": "a.wav", "offset": 0.0, "duration": 1.0}, 1.0),
        ({"audio_filepath": "a.wav", "offset": 0, "duration": 1.0}, 1.0),
        ({"audio_filepath": "a.wav", "duration": 1.0}, 0.0),
        ({"audio_filepath": "a.wav", "offset": None, "duration": 1.0}, 0.0),
        ({"audio_filepath": "a.wav", "offset": 0.0}, 0.0),
        ({"audio": "a.wav", "offset": 0.0, "duration": 1.0}, 1.0),
        ({"audio": "a.wav", "duration": 1.0}, 1.0),
    ],
)
def test_a_duration_is_a_part_unless_nemo_gives_that_of_the_file(
    tmp_path: Path, record: dict[str, Any], end: float
) -> None:
    expected = [(Recording(str(tmp_path / "a.wav"), 0.0, end), "one")]
    (tmp_path / "m.jsonl").write_text(json.dumps(record | {"text": "one"}) + "\n")
    assert pairs_in((str(tmp_path / "m.jsonl"),)) == expected
    columns = record | {"text": "one"}
    row = ["" if value is None else str(value) for value in columns.values()]
    (tmp_path / "m.tsv").write_text("\t".join(columns) + "\n" + "\t".join(row) + "\n")
    assert pairs_in((str(tmp_path / "m.tsv"),)) == expected


def test_the_first_second_by_a_manifest_of_nemo_is_read(tmp_path: Path) -> None:
    pytest.importorskip("soundfile").write(tmp_path / "a.wav", np.zeros(3 * RATE), RATE)
    (tmp_path / "m.jsonl").write_text('{"audio_filepath": "a.wav", "offset": 0.0, "duration": 1.0, "text": "one"}\n')
    ((recording, _),) = pairs_in((str(tmp_path / "m.jsonl"),))
    assert len(read_samples(recording)) == RATE


def test_clips_of_common_voice_are_in_a_folder_beside_the_table(tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    (tmp_path / "cv.tsv").write_text("client_id\tpath\tsentence\tage\nx\ta.mp3\tHello.\t\n")
    assert pairs_in((str(tmp_path / "cv.tsv"),)) == [(Recording(str(tmp_path / "clips/a.mp3"), speaker="x"), "Hello.")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "m.tsv",
            "audio\ttext\na.wav\n",
            r"m\.tsv:2: 1 column, but the first line names 2: give audio, text, with a tab between them",
        ),
        ("m.tsv", "audio\ttext\n\tone\n", r"m\.tsv:2: no recording"),
        ("m.tsv", "audio\ttext\toffset\na.wav\tone\tx\n", r"m\.tsv:2: offset is 'x', not a number of seconds"),
        ("m.jsonl", '{"audio": "a.wav"}\n', r"m\.jsonl:1: no text"),
        (
            "m.jsonl",
            '{"audio": "a.wav", "text": "one"}\n[]\n',
            r"m\.jsonl:2: not a JSON object: each line must be one object",
        ),
    ],
)
def test_lines_that_name_no_utterance_are_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        pairs_in((str(tmp_path / name),))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("wav.scp", "r1 a.wav\n", r"text:2: no recording r2 in .*wav\.scp"),
        ("wav.scp", "r1 a.wav\nr2 sox b.mp3 -t wav - |\n", "r2 is a command"),
        ("segments", "u1 r1 0 0\nu2 r2\n", "text:2: its line in `segments` must be"),
    ],
)
def test_folders_of_kaldi_that_do_not_fit_together_are_refused(
    tmp_path: Path, file: str, content: str, message: str
) -> None:
    group = write_manifest(tmp_path, "kaldi")
    (tmp_path / file).write_text(content)
    with pytest.raises(DataError, match=message):
        pairs_in(group)


# --- augmentation ------------------------------------------------------------------------------------------------


def test_masks_and_speeds_depend_on_seed_epoch_and_utterance_alone() -> None:
    data = DataConfig(speeds=("0.9", "1", "1.1"), frequency_masks=2, time_masks=5, time_mask_share=0.2)
    features = np.ones((200, 80), np.float16)
    one, same = (Augmentation(data, 1, 4) for _ in range(2))
    np.testing.assert_array_equal(one.masked(features, 7), same.masked(features, 7))
    np.testing.assert_array_equal(one.speeds(50), same.speeds(50))
    others = [Augmentation(data, 1, 5), Augmentation(data, 2, 4)]
    assert all((other.masked(features, 7) != one.masked(features, 7)).any() for other in others)
    assert all((other.speeds(50) != one.speeds(50)).any() for other in others)
    assert (one.masked(features, 8) != one.masked(features, 7)).any()
    assert set(one.speeds(50).tolist()) == {0, 1, 2}


def test_masks_have_the_sizes_of_the_settings() -> None:
    features, frequencies, times = np.ones((200, 80), np.float16), 0, 0
    for utterance in range(50):
        only = DataConfig(frequency_masks=1, frequency_mask_bins=10, time_masks=0)
        hidden = (Augmentation(only, 1, 0).masked(features, utterance) == 0).all(0).sum()
        frequencies = max(frequencies, int(hidden))
        only = DataConfig(frequency_masks=0, time_masks=1, time_mask_share=0.1)
        times = max(times, int((Augmentation(only, 1, 0).masked(features, utterance) == 0).all(1).sum()))
    assert (frequencies, times) == (10, 20)
    assert (features == 1).all()  # masks are made in a copy


# --- training ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speech")
    write_corpus(folder, "train", 24, 1)
    write_corpus(folder, "valid", 4, 2)
    return folder


@pytest.fixture(scope="module")
def run(corpus: Path) -> Path:
    train(corpus, corpus / "run", 6)
    return corpus / "run"


def test_a_resumed_run_is_bit_identical(corpus: Path, run: Path, tmp_path: Path) -> None:
    train(corpus, tmp_path / "resumed", 3)
    train(corpus, tmp_path / "resumed", 6)
    one, other = (load_file(folder / "last.safetensors") for folder in (run, tmp_path / "resumed"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_in_batches_of_few_shapes_resumes_to_the_bit(corpus: Path, tmp_path: Path) -> None:
    """As on a GPU, where the last batch of an epoch has rows without a recording."""
    for folder, *steps in (("straight", 6), ("resumed", 4, 6)):
        for last in steps:
            train(corpus, tmp_path / folder, last, **{"train.layout": "buckets"})
    one, other = (tmp_path / folder / "last.safetensors" for folder in ("straight", "resumed"))
    assert one.read_bytes() == other.read_bytes()


class Killed(BaseException):
    """Nothing catches it, so that nothing is saved."""


def test_a_killed_run_ends_with_the_same_weights(
    corpus: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after step 4, one step after its checkpoint, with speeds and masks drawn anew in each epoch."""
    after = Trainer._after_step

    def die(trainer: Trainer) -> None:
        after(trainer)
        if trainer.progress.step == 4:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_after_step", die)
        with pytest.raises(Killed):
            train(corpus, tmp_path / "run", 6)
    train(corpus, tmp_path / "run", 6)
    assert (tmp_path / "run/last.safetensors").read_bytes() == (run / "last.safetensors").read_bytes()


def write_hostile(folder: Path) -> dict[str, str]:
    """Recordings that cannot be used, with what is said of each; and two that look odd and can be."""
    soundfile, draw = pytest.importorskip("soundfile"), np.random.default_rng(0)
    noise = 0.1 * draw.normal(size=RATE)
    soundfile.write(folder / "empty.wav", np.zeros(0), RATE)
    soundfile.write(folder / "nan.wav", np.full(RATE, np.nan), RATE, subtype="FLOAT")
    soundfile.write(folder / "whole.flac", noise, RATE)
    (folder / "truncated.flac").write_bytes((folder / "whole.flac").read_bytes()[:9_000])
    for ending in ("wav", "ogg"):
        soundfile.write(folder / f"whole.{ending}", noise, RATE)
        (folder / f"truncated.{ending}").write_bytes((folder / f"whole.{ending}").read_bytes()[:-2_000])
    (folder / "text.wav").write_text("this is not sound\n" * 50)
    (folder / "blank.wav").write_bytes(b"")
    soundfile.write(folder / "channels.wav", np.stack([np.repeat(noise, 12)] * 8, axis=1), 192_000)
    return {
        "empty.wav": "the recording is empty",
        "nan.wav": "the recording has samples that are NaN, infinite or far beyond full scale",
        "truncated.flac": "",  # cut short, or not readable, as the version of libsndfile has it
        "text.wav": "cannot be decoded",
        "blank.wav": "is empty",
        "truncated.wav": "the file is cut short: its header promises 32,000 bytes of sound, but there are 30,000",
        "truncated.ogg": "the file is cut short: its last Ogg page is cut off",
    }


def test_hostile_recordings_are_one_line_each_in_training(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = write_hostile(corpus)
    pytest.importorskip("soundfile").write(corpus / "hour.flac", np.zeros(3_600 * 8_000), 8_000)
    names = [*reasons, "hour.flac", "channels.wav"]
    table = (corpus / "train.tsv").read_text() + "".join(f"{name}\tlow\tanna\n" for name in names)
    (corpus / "hostile.tsv").write_text(table)
    files = {"train": corpus / "hostile.tsv", "valid": corpus / "valid.tsv"}
    settings = TINY | {"data.cache": str(tmp_path / "cache")}
    transduce.train(tmp_path / "run", **files, steps=1, settings=settings)
    said = " ".join(capsys.readouterr().err.split())
    reasons |= {"hour.flac": "the recording is too long: 3600.0 s"}
    for number, (name, reason) in enumerate(reasons.items(), 26):
        assert f"hostile.tsv:{number}: {corpus / name}: {reason}" in said
    long, unusable = "1 recording longer than data.max_seconds", "7 unusable recordings"
    assert f"25 of 33 pairs (left out: {long} such as hostile.tsv:33, {unusable} such as hostile.tsv:26)" in said


def test_hostile_recordings_are_one_line_each_in_transcribe(
    corpus: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = write_hostile(corpus)
    files = [str(corpus / name) for name in (*reasons, "channels.wav")]
    assert main(["transcribe", str(run), *files, "--device", "cpu", "--beam", "1", "--json", "--quiet"]) == 2
    found = capsys.readouterr()
    lines = [json.loads(line) for line in found.out.splitlines()]
    assert [line["file"] for line in lines] == files
    assert [bool(line["error"]) for line in lines] == [True] * 7 + [False]
    for (name, reason), said in zip(reasons.items(), found.err.splitlines(), strict=True):
        assert f"{corpus / name}: {reason}" in said


def test_an_hour_of_silence_has_no_text(corpus: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("soundfile").write(corpus / "hour.flac", np.zeros(3_600 * RATE, np.int16), RATE)
    assert main(["transcribe", str(run), str(corpus / "hour.flac"), "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == ""
    assert found["segments"][-1]["end"] == 3_600
    assert all(one["end"] == other["begin"] for one, other in pairwise(found["segments"]))


def test_recordings_are_transcribed_scored_and_searched_as_one(corpus: Path, run: Path) -> None:
    translator = transduce.load(run, device="cpu")
    files = [str(corpus / f"valid{number}.wav") for number in range(3)]
    assert len(translator.translate(files, beam=2)) == 3
    evaluation = translator.evaluate(files, ["low", "high", "mid"])
    assert translator.evaluate(files, ["low", "high", "mid"], metrics="wer").scores.main == evaluation.scores.main
    assert [score.name for score in evaluation.scores.all] == ["WER", "CER"]
    assert "norm:nfkc+lower+no-punctuation" in evaluation.scores.main.signature
    (score,) = translator.score(files[:1], ["low"])
    assert score < 0
    with pytest.raises(SettingError, match="this model takes recordings, which have no tokens"):
        translator.source_ids(files[0])


def test_where_the_decoder_listens_is_drawn_over_time(corpus: Path, run: Path, tmp_path: Path) -> None:
    file, picture = str(corpus / "valid0.wav"), tmp_path / "heads.png"
    translator = transduce.load(run, device="cpu")
    seen = transduce.attention(translator, file, "low", output=picture)
    assert picture.stat().st_size > 10_000
    (across,) = {layer.shape[-1] for layer in seen.maps.cross}
    assert seen.source[:3] == ["0.00", "0.04", "0.08"]
    assert len(seen.source) == across
    assert seen.maps.cross[0].shape[2] == len(seen.target) == len(seen.written)
    assert torch.allclose(seen.maps.cross[0].sum(-1), torch.ones(()), atol=1e-4)
    assert transduce.attention(translator, file).text == translator.translate([file])[0]
    long = dataclasses.replace(seen, source=[f"{0.04 * n:.2f}" for n in range(1_600)])
    with pytest.raises(SettingError, match="a recording of 64 s: a picture has room for at most a minute"):
        draw_attention(long, picture)
    with pytest.raises(SettingError, match="for recordings, write a picture"):
        transduce.attention(translator, file, output=tmp_path / "page.html")


def test_what_is_heard_in_memory_is_what_is_read_from_a_file(corpus: Path, run: Path) -> None:
    translator, files = transduce.load(run, device="cpu"), [str(corpus / f"valid{number}.wav") for number in range(3)]
    recordings = [RecordingPieces.of(read_samples(Recording(file))) for file in files]
    heard = translator.transcribe([features for one in recordings for features in one.features])
    read = list(translator.stream(files))
    assert [one.outputs[0].tokens for one in heard] == [one.outputs[0].tokens for one in read]
    assert [one.outputs[0].log_probability for one in heard] == [one.outputs[0].log_probability for one in read]
    assert translator.transcribe([]) == []


def test_too_few_minutes_are_said(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"train": corpus / "train.tsv", "valid": corpus / "valid.tsv"}
    settings = TINY | {"data.cache": str(corpus / "cache")}
    transduce.train(tmp_path / "run", **files, minutes=0.02, settings=settings)
    said = " ".join(capsys.readouterr().err.split())
    assert "warning: 0.02 minutes are enough for" in said
    assert re.search(r"such a model learns little in fewer than 10: give it about \d+ minutes \(--minutes\)", said)


def test_minutes_choose_the_size_and_the_warm_up(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that these seconds can train, instead of the one that hours of speech support."""
    files = ["--train", str(corpus / "train.tsv"), "--valid", str(corpus / "valid.tsv")]
    options = ["--device", "cpu", "--threads", "1", "--minutes", "0.1", "--set", f"data.cache={corpus / 'cache'}"]
    assert main(["train", str(tmp_path / "run"), *files, *options]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert (
        "in 0.1 minutes: speech: 2 + 1 layers, convolutions of 15, d_model 64, dropout 0.1, 128 tokens a batch" in said
    )
    chosen = from_toml((tmp_path / "run/config.toml").read_text(), "config.toml")
    assert 1 <= chosen["train"]["warmup_steps"] < 20, "at least 20 before, whatever the minutes"


def test_the_model_card_says_how_to_transcribe(run: Path) -> None:
    card = (run / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# run: speech recognition\n")
    assert "transduce transcribe run recording.wav" in card
    assert 'transduce.load("run").translate(["recording.wav"])' in card


def test_unusable_recordings_are_named_counted_and_left_out(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("soundfile")
    (corpus / "broken.wav").write_text("no sound")
    table = (corpus / "train.tsv").read_text() + "broken.wav\tlow\tanna\nmissing.wav\tlow\tanna\n"
    table += f"train0.wav\t{'low ' * 60}\tanna\n"
    (corpus / "bad.tsv").write_text(table)
    settings = TINY | {"data.cache": str(corpus / "cache")}
    transduce.train(corpus / "bad", train=corpus / "bad.tsv", valid=corpus / "valid.tsv", steps=1, settings=settings)
    said = capsys.readouterr().err
    assert f"{corpus}/bad.tsv:26: {corpus}/broken.wav: cannot be decoded" in said.replace("\n", " ")
    assert "bad.tsv:27" in said
    long, unusable = "1 transcript too long for CTC on the recording", "2 unusable recordings"
    assert f"24 of 27 pairs (left out: {long} such as bad.tsv:28, {unusable} such as bad.tsv:26)" in " ".join(
        said.split()
    )
    with pytest.raises(DataError, match=r"bad\.tsv:26: .*broken\.wav: cannot be decoded"):
        transduce.train(corpus / "b", train=corpus / "train.tsv", valid=corpus / "bad.tsv", steps=1, settings=settings)


def test_each_reason_to_leave_out_a_recording_is_counted_by_itself_with_its_line(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, since the second run reads the counts from the cache; and only the first two of each reason are named."""
    monkeypatch.setattr("transduce.data.speech_store.LISTED", 2)
    second = 2 * np.sin(np.arange(2 * RATE))
    pytest.importorskip("soundfile").write(corpus / "two-seconds.wav", second, RATE)
    soft = [f"train0.wav\t{'low ' * 8}\tanna"] * 3  # 31 characters, for which there are at most 19 positions
    lines = ["two-seconds.wav\tlow\tanna", f"train1.wav\t{'low ' * 20}\tanna", *soft, "train1.wav\t\tanna"]
    (corpus / "left.tsv").write_text((corpus / "train.tsv").read_text() + "\n".join(lines) + "\n")
    files = {"train": corpus / "left.tsv", "valid": corpus / "valid.tsv"}
    settings = TINY | {"data.cache": str(tmp_path / "cache"), "data.max_seconds": 1.5, "data.max_length": 50}
    for name in ("first", "second"):
        transduce.train(tmp_path / name, **files, steps=1, settings=settings)
        said = " ".join(capsys.readouterr().err.split())
        summary = (
            "training: 24 of 30 pairs (left out: 1 empty such as left.tsv:31, 1 recording longer than data.max_seconds such as "
            "left.tsv:26, 1 transcript with too many tokens such as left.tsv:27, 3 transcripts too long for CTC on the recordings "
            "such as left.tsv:28)"
        )
        assert summary in said
        assert summary in (tmp_path / name / "README.md").read_text(encoding="utf-8")
        assert (
            f"left out: {corpus}/left.tsv:26: {corpus}/two-seconds.wav: the recording is too long: 2.0 s of at most 1.5 s"
            in said
        )
        assert "left.tsv:27: the transcript is too long: 79 tokens of at most 49 (data.max_length)" in said
        assert re.search(
            r"left\.tsv:29: the transcript is too long for its recording: 31 tokens, but CTC has \d+ positions of 40 ms",
            said,
        )
        assert "left.tsv:30: " not in said
        assert "left out: 1 transcript too long for CTC on the recording, in other lines" in said
        assert "left.tsv:31: the transcript is empty" in said


def test_without_a_terminal_lines_say_how_far_the_features_are(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most one line in 15 seconds: none for this corpus, until every piece of it may have one."""
    monkeypatch.setattr("transduce.data.speech_store._AT_ONCE", 10)
    files = {"train": corpus / "train.tsv", "valid": corpus / "valid.tsv"}
    for seconds, expected in ((15.0, []), (0.0, ["10 of 24", "20 of 24", "24 of 24", "4 of 4"])):
        monkeypatch.setattr("transduce.training.feature_display.PLAIN_EVERY_S", seconds)
        settings = TINY | {"data.cache": str(tmp_path / f"cache{seconds}")}
        transduce.train(tmp_path / f"run{seconds}", **files, steps=1, settings=settings)
        said = capsys.readouterr().err
        found = re.findall(r"features of (.*) recordings, [\d.e-]+ hours/s", said)
        assert found == expected


@pytest.mark.parametrize("error", [None, DataError("damaged")])
def test_a_terminal_shows_a_bar_which_is_gone_at_the_end(error: DataError | None) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=200, soft_wrap=True)
    with suppress(DataError), shown_features(console, 2_000) as show:
        show(1_500, 3.0)
        if error:
            raise error
    shown = screen.getvalue()
    assert re.search(r"features of 1,500 of 2,000 recordings, .* hours/s", shown)
    assert shown.rindex("\x1b[?25h") > shown.rindex("features of")  # the cursor is back


def test_the_line_about_features_has_the_rate() -> None:
    assert features_line(1_500, 2_000, 3.0, 60.0) == "features of 1,500 of 2,000 recordings, 0.05 hours/s"


def test_features_are_kept_in_16_bits_at_each_speed(corpus: Path, run: Path) -> None:
    stores = [SpeechStore(path.parent) for path in (corpus / "cache").glob("store-*/features1.values")]
    assert stores[0].speeds == (1.0, 0.9)
    slow, plain = stores[0].at_speed(0, 1), stores[0].at_speed(0, 0)
    assert slow.dtype == plain.dtype == np.float16
    assert abs(len(slow) * 0.9 - len(plain)) < 2


def test_16_bits_change_the_features_of_real_speech_little(shared_data: Path) -> None:
    """docs/log.md has the figures of the whole test set."""
    pytest.importorskip("soundfile")
    files = sorted((shared_data / "iban/audio").rglob("*.opus"))[:3]
    if not files:
        pytest.skip(f"{shared_data / 'iban'} is not there: set TRANSDUCE_DATA to the folder of corpora")
    for recording in (Recording(str(file)) for file in files):
        (kept,) = features_at_speeds(recording, (1.0,))
        exact = normalised(log_mel(read_samples(recording))).numpy()
        lost = np.abs(kept - exact)
        assert kept.dtype == np.float16
        assert (lost <= 0.0005 * np.abs(exact) + 1e-7).all()
        assert 0 < lost.mean() < 2e-4


def test_features_do_not_depend_on_loudness_and_long_ones_not_on_the_microphone() -> None:
    draw = torch.Generator().manual_seed(0)
    sound = torch.randn(60 * RATE, generator=draw)
    for part in (sound[:RATE], sound):
        np.testing.assert_allclose(features_of(0.1 * part), features_of(part), atol=0.02)
    muffled = torch.nn.functional.conv1d(sound[None, None], torch.tensor([[[0.5, 0.3, 0.2]]]), padding=1)[0, 0]
    apart = [
        np.abs(features_of(a).mean(0) - features_of(b).mean(0)).max()
        for a, b in ((sound, muffled), (sound[:RATE], muffled[:RATE]))
    ]
    assert apart[0] < 0.3 < apart[1]


def padded(sound: torch.Tensor, begin: float, end: float, level: float = 0.0) -> torch.Tensor:
    """A sound with so many seconds of noise of this level before and after it."""
    noise = level * torch.randn(round((begin + end) * RATE), generator=torch.Generator().manual_seed(1))
    return torch.cat([noise[: round(begin * RATE)], sound, noise[round(begin * RATE) :]])


def test_quiet_ends_are_left_out_to_within_10_ms() -> None:
    sound = torch.randn(RATE, generator=torch.Generator().manual_seed(0))
    for begin, end, level in ((0.25, 0.5, 0.0), (0.25, 0.5, 0.01), (0.003, 0.1, 0.001)):
        first, last = without_quiet_ends(padded(sound, begin, end, level), 35.0)
        assert first == pytest.approx(begin * RATE, abs=RATE // 100)
        assert last == pytest.approx((begin + 1) * RATE, abs=RATE // 100)


@pytest.mark.parametrize("decibels", [0.0, 20.0, 35.0])
def test_a_recording_without_quiet_ends_stays_as_it_is(decibels: float) -> None:
    sound = torch.randn(RATE + 77, generator=torch.Generator().manual_seed(0))
    pause = torch.cat([sound, torch.zeros(RATE), sound])
    noisy = padded(sound, 0.5, 0.5, 0.2)  # 14 decibels below the sound
    click = torch.zeros(RATE)
    click[5_000] = 1.0
    for samples in (sound, pause, noisy, torch.zeros(RATE), click, sound[:100]):
        assert without_quiet_ends(samples, decibels) == (0, len(samples))


def test_quiet_ends_do_not_change_what_a_model_hears_in_training_and_transcription(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    sound = 0.1 * torch.randn(RATE, generator=torch.Generator().manual_seed(0))
    for name, samples in (("close", sound), ("quiet", padded(sound, 0.5, 0.25))):
        soundfile.write(tmp_path / f"{name}.wav", samples.numpy(), RATE, subtype="FLOAT")
    close, quiet = str(tmp_path / "close.wav"), str(tmp_path / "quiet.wav")
    expected = features_of(sound)
    assert len(features_at_speeds(Recording(quiet), (1.0,))[0]) > len(expected)
    for file in (close, quiet):
        pieces_of_it = RecordingPieces.of(read_samples(Recording(file)), 35.0)
        for found in (
            features_at_speeds(Recording(file), (1.0,), trim_quiet=35.0)[0],
            features_of_source(file, 35.0),
            pieces_of_it.features[0],
        ):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model.family": "transformer"}, r"family transformer cannot read recordings: use model\.family=speech"),
        ({"data.speeds": ("fast",)}, "must be numbers"),
        ({"data.speeds": ("3",)}, r"'3' is not between 0\.5 and 2"),
        ({"data.joint": False}, r"speech needs data\.joint=true"),
    ],
)
def test_settings_that_do_not_suit_speech_are_refused(
    corpus: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    asked = {"train.device": "cpu", "data.cache": str(corpus / "cache"), **settings}
    with pytest.raises(SettingError, match=message):
        transduce.train(
            tmp_path / "run", train=corpus / "train.tsv", valid=corpus / "valid.tsv", steps=1, settings=asked
        )


def test_speech_settings_without_recordings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"a {n}\tb {n}\n" for n in range(60)))
    for settings, message in (
        ({"data.time_masks": 1}, "are for speech"),
        ({"model.family": "speech"}, "no column `audio`"),
    ):
        asked: dict[str, Any] = {"train.device": "cpu", "data.cache": str(tmp_path / "cache"), **settings}
        with pytest.raises(SettingError, match=message):
            transduce.train(tmp_path / "run", train=tmp_path / "pairs.tsv", steps=1, settings=asked, quiet=True)


def test_validation_data_without_recordings_is_refused(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\nc\td\n")
    settings = TINY | {"data.cache": str(tmp_path / "cache")}
    with pytest.raises(TransduceError, match="the validation data does not"):
        transduce.train(
            tmp_path / "r", train=corpus / "train.tsv", valid=tmp_path / "pairs.tsv", steps=1, settings=settings
        )


GERMAN = {"low": "tief", "mid": "mittel", "high": "hoch"}


def test_speech_translation_is_the_same_verb_with_another_text(tmp_path: Path) -> None:
    """A model that hears tones and writes their German names learns them well enough for recordings it has not heard."""
    for name, count, seed in (("train", 40, 1), ("valid", 6, 2)):
        table = write_corpus(tmp_path, name, count, seed)
        text = table.read_text()
        table.write_text("".join(GERMAN.get(part, part) for part in re.split(r"(\s)", text)))
    plain = {"data.speeds": (), "data.frequency_masks": 0, "data.time_masks": 0, "model.dropout": 0.0}
    quick = {
        "train.learning_rate": 0.01,
        "train.warmup_steps": 20,
        "train.validate_every": 120,
        "train.label_smoothing": 0.0,
    }
    train(
        tmp_path,
        tmp_path / "run",
        120,
        **plain,
        **quick,
        **{"train.tokens_per_batch": 256, "train.checkpoint_every": 120},
    )
    sources, references = read_pairs(Corpus(((str(tmp_path / "valid.tsv"),),)))
    found = transduce.load(tmp_path / "run", device="cpu").translate(sources, beam=2)
    assert set(" ".join(references).split()) == set(GERMAN.values())
    assert sum(map(str.__eq__, found, references)) >= 4


SPOKEN = {"six": "sechs", "nine": "neun"}


def write_german(data: Path, name: str, folder: Path, every: int) -> Path:
    """A table of English recordings of two digits with their German names."""
    rows = [line.split("\t") for line in (data / f"{name}.tsv").read_text().splitlines()[1:]]
    chosen = [(data / audio, SPOKEN[text]) for audio, text, _ in rows if text in SPOKEN][::every]
    table = folder / f"{name}.tsv"
    table.write_text("audio\ttext\n" + "".join(f"{audio}\t{text}\n" for audio, text in chosen))
    return table


def test_english_recordings_become_german_words(shared_data: Path, tmp_path: Path) -> None:
    """Real speech translation, on a small scale: two words, and a speaker that the model has not heard."""
    pytest.importorskip("soundfile")
    for name, every in (("train", 5), ("valid", 20), ("test", 5)):
        write_german(shared_data / "spoken-digits", name, tmp_path, every)
    plain = {"data.speeds": (), "data.frequency_masks": 0, "data.time_masks": 0, "model.dropout": 0.0}
    quick = {
        "train.learning_rate": 0.01,
        "train.warmup_steps": 20,
        "train.validate_every": 80,
        "train.label_smoothing": 0.0,
    }
    train(
        tmp_path,
        tmp_path / "run",
        80,
        **plain,
        **quick,
        **{"train.tokens_per_batch": 128, "train.checkpoint_every": 80},
    )
    sources, references = read_pairs(Corpus(((str(tmp_path / "test.tsv"),),)))
    found = transduce.load(tmp_path / "run", device="cpu").translate(sources, beam=2)
    assert set(references) == set(SPOKEN.values())
    assert sum(map(str.__eq__, found, references)) >= 0.7 * len(found)


@pytest.mark.slow
def test_spoken_digits_of_an_unseen_speaker_are_recognised(shared_data: Path, tmp_path: Path) -> None:
    """The recipe of configs/spoken-digits.toml had 92.8 and 94.2 % of them right, and 79.6 and 75.2 % of those with quiet around them."""
    pytest.importorskip("soundfile")
    data, config = shared_data / "spoken-digits", Path(__file__).parents[1] / "configs" / "spoken-digits.toml"
    settings = {"data.cache": str(tmp_path / "cache"), "train.device": "cpu"}
    files = {"train": data / "train.tsv", "valid": data / "valid.tsv"}
    transduce.train(tmp_path / "run", **files, config=config, settings=settings, quiet=True)
    translator = transduce.load(tmp_path / "run", device="cpu")
    for name, share in (("test", 0.75), ("valid", 0.55)):
        sources, references = read_pairs(Corpus(((str(data / f"{name}.tsv"),),)))
        found = translator.translate(sources[::5])
        assert sum(map(str.__eq__, found, references[::5])) > share * len(found), name


# --- transcribe --------------------------------------------------------------------------------------------------


def test_long_recordings_are_cut_where_it_is_quiet_and_nothing_is_lost() -> None:
    sound = torch.from_numpy(np.random.default_rng(0).normal(size=60 * RATE).astype(np.float32))
    sound[12 * RATE : 12 * RATE + RATE // 2] = 0
    found = pieces(sound)
    assert found[0][0] == 0
    assert found[-1][1] == 60
    assert all(one[1] == other[0] for one, other in pairwise(found))
    assert all(end - begin <= LONGEST_SECONDS for begin, end in found)
    assert abs(found[0][1] - 12.25) < 0.3
    assert not holds_sound(sound[12 * RATE : 12 * RATE + RATE // 2])
    assert holds_sound(sound[11 * RATE : 12 * RATE + RATE // 2])


def words_with_pauses(noise: float) -> Any:
    """Ten words of half a second, each with a gap inside, and a second of pause after each; noise everywhere."""
    draw = np.random.default_rng(1)
    word = 0.3 * np.sin(2 * np.pi * 300 * np.arange(RATE // 2) / RATE)
    word[RATE // 5 : RATE // 4] = 0
    sound = np.concatenate([np.concatenate([word, np.zeros(RATE)])] * 10)
    return torch.from_numpy((sound + noise * draw.normal(size=len(sound))).astype(np.float32))


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.01])
def test_pieces_for_a_model_of_words_hold_one_word_each(noise: float) -> None:
    sound = words_with_pauses(noise)
    found = pieces(sound, 1.2)
    words = [(1.5 * number, 1.5 * number + 0.5) for number in range(10)]
    assert not [end for _, end in found if any(begin < end < last for begin, last in words)], "no cut is inside a word"
    level = noise_of(sound)
    kept = [part for part in found if holds_sound(sound[round(part[0] * RATE) : round(part[1] * RATE)], level)]
    assert len(kept) == 10
    assert all(begin <= first and last <= end for (begin, end), (first, last) in zip(kept, words, strict=True))
    recording = RecordingPieces.of(sound, 35.0, 1.2)
    assert [(one.begin, one.end) for one in recording.utterances] == [pytest.approx(word, abs=0.011) for word in words]


def test_sound_without_pauses_is_not_taken_for_noise() -> None:
    sound = torch.from_numpy(np.random.default_rng(0).normal(size=30 * RATE).astype(np.float32))
    assert noise_of(sound) == 0.0


def test_transcribe_prints_every_file_and_says_which_failed(
    corpus: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(corpus / "valid0.wav"), str(corpus / "missing.wav"), str(corpus / "valid1.wav")]
    assert main(["transcribe", str(run), *files, "--device", "cpu", "--beam", "2", "--json"]) == 2
    found = capsys.readouterr()
    lines = [json.loads(line) for line in found.out.splitlines()]
    assert [line["file"] for line in lines] == files
    assert "missing.wav: no such file" in lines[1]["error"]
    assert "missing.wav: no such file" in found.err
    assert "ct2" not in found.err  # nobody asked for an engine that knows no speech
    assert 0 < lines[0]["segments"][0]["confidence"] <= 1


def test_transcribe_reads_raw_sound_from_a_pipe(
    corpus: Path, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    samples, _ = pytest.importorskip("soundfile").read(corpus / "valid0.wav", dtype="int16")
    (tmp_path / "raw").write_bytes(samples.tobytes())
    with (tmp_path / "raw").open() as raw:
        monkeypatch.setattr(sys, "stdin", raw)
        assert main(["transcribe", str(run), "-", "--device", "cpu", "--beam", "1"]) == 0
    piped = capsys.readouterr().out
    assert main(["transcribe", str(run), str(corpus / "valid0.wav"), "--device", "cpu", "--beam", "1"]) == 0
    assert capsys.readouterr().out == piped


def test_errors_about_standard_input_name_it_as_it_was_typed(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for sound, reason in (
        (b"\0", "the recording is empty"),
        (b"fLaC and nothing else", "cannot be decoded"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(sound)))
        assert main(["transcribe", str(run), "-", "--device", "cpu", "--json"]) == 2
        found = capsys.readouterr()
        assert json.loads(found.out)["error"].startswith(f"-: {reason}")
        assert f"transduce: -: {reason}" in found.err


def test_transcribe_reads_an_mp3_from_a_pipe(
    corpus: Path, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At 8 kHz, whose frames begin with other bytes than those of music."""
    soundfile = pytest.importorskip("soundfile")
    if "MP3" not in soundfile.available_formats():
        pytest.skip("libsndfile without MP3 on this system")
    samples, rate = soundfile.read(corpus / "valid0.wav")
    soundfile.write(tmp_path / "a.mp3", samples[:: rate // 8_000], 8_000, format="MP3")
    assert main(["transcribe", str(run), str(tmp_path / "a.mp3"), "--device", "cpu", "--beam", "1"]) == 0
    from_file = capsys.readouterr().out
    with (tmp_path / "a.mp3").open() as piped:
        monkeypatch.setattr(sys, "stdin", piped)
        assert main(["transcribe", str(run), "-", "--device", "cpu", "--beam", "1"]) == 0
    assert capsys.readouterr().out == from_file
    with (tmp_path / "a.mp3").open() as piped:
        monkeypatch.setattr(sys, "stdin", piped)
        assert main(["transcribe", str(run), "-", "--rate", "8000", "--device", "cpu"]) == 2
    assert "a file with a header" in capsys.readouterr().err


def test_silence_has_no_text(corpus: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("soundfile").write(corpus / "silence.wav", np.zeros(30 * RATE), RATE)
    assert main(["transcribe", str(run), str(corpus / "silence.wav"), "--device", "cpu"]) == 0
    assert capsys.readouterr().out == "\n"


# --- error rates -------------------------------------------------------------------------------------------------

OUTPUTS = ["the cat sat", "Hello, world!", "", "don't stop now", "a b c d"]
REFERENCES = ["the cat sat down", "hello world", "nothing", "dont stop", "a x c"]


def test_error_rates_are_those_of_jiwer() -> None:
    jiwer = pytest.importorskip("jiwer")
    scores = score_outputs(OUTPUTS, [[text] for text in REFERENCES], ("word-error-rate", "character-error-rate"))
    outputs, references = ([normalised_transcript(text) for text in texts] for texts in (OUTPUTS, REFERENCES))
    expected = [100 * jiwer.wer(references, outputs), 100 * jiwer.cer(references, outputs)]
    np.testing.assert_allclose([score.value for score in scores.all], expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello,  World!", "hello world"),
        ("don't – STOP", "don't stop"),
        ("'well-known' (x)", "well-known x"),
        ("ﬁne", "fine"),
    ],
)
def test_transcripts_are_normalised_before_they_are_compared(text: str, expected: str) -> None:
    assert normalised_transcript(text) == expected


def test_error_rates_count_words_and_characters() -> None:
    scores = score_outputs(["a b", "c"], [["a b"], ["c d"]], ("word-error-rate", "character-error-rate"))
    assert [round(score.value, 2) for score in scores.all] == [25.0, 33.33]
    assert scores.main.name == "WER"
    assert not scores.main.higher_is_better


def test_augmentation_does_not_change_a_store_that_has_none(corpus: Path, run: Path) -> None:
    store = next(SpeechStore(path.parent) for path in (corpus / "cache").glob("store-*/features1.values"))
    plain = replace(DataConfig(), speeds=(), frequency_masks=0, time_masks=0)
    heard = store.augmented(plain, 1, 0)
    np.testing.assert_array_equal(heard.source(0), store.source(0))
    np.testing.assert_array_equal(heard.source_lengths, store.source_lengths)
