"""Sound: features against their definition, resampling, and every kind of file that cannot be used."""

import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from transduce.audio.features import BINS, RATE, log_mel
from transduce.audio.files import check_header, read_samples
from transduce.audio.recording import Recording
from transduce.audio.resampling import resample
from transduce.audio.soundfiles import AudioError
from transduce.audio.truncation import truncation
from transduce.audio.uploads import UploadError, UploadLimits, decode
from transduce.errors import MissingExtra


def tone(hertz: float, rate: int = RATE, seconds: float = 1.0) -> NDArray[np.float32]:
    return np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate).astype(np.float32)


# --- features ----------------------------------------------------------------------------------------------------


def slaney_hertz(mel: float) -> float:
    """Slaney's Auditory Toolbox: 133.33 Hz and 66.67 Hz steps in its filters; here as hertz of a mel number."""
    return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)


def log_mel_by_definition(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Frame by frame, frequency by frequency, in double precision."""
    padded = np.pad(samples, 200, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    frames = [padded[begin : begin + 400] * window for begin in range(0, len(padded) - 399, 160)]
    turns = np.exp(-2j * np.pi * np.outer(np.arange(201), np.arange(400)) / 400)
    power = np.abs(turns @ np.array(frames).T) ** 2
    highest = 15 + 27 * np.log(8) / np.log(6.4)
    corners = [slaney_hertz(highest * n / (BINS + 1)) for n in range(BINS + 2)]
    features = np.empty((len(frames), BINS))
    for number, (left, centre, right) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
        hertz = 40.0 * np.arange(201)
        slope = np.where(hertz < centre, (hertz - left) / (centre - left), (right - hertz) / (right - centre))
        features[:, number] = (np.maximum(0, slope) * 2 / (right - left)) @ power
    return np.log(np.maximum(features, 1e-10))


def test_features_are_those_of_the_definition() -> None:
    draw = np.random.default_rng(0)
    sound = draw.normal(size=8_000) * 0.1 + tone(440, seconds=0.5)
    found = log_mel(torch.from_numpy(sound.astype(np.float32))).numpy()
    expected = log_mel_by_definition(sound)
    assert found.shape == expected.shape == (51, BINS)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_silence_is_the_floor() -> None:
    np.testing.assert_allclose(log_mel(torch.zeros(1_600)).numpy(), np.log(1e-10), rtol=1e-6)


def test_features_are_those_of_transformers() -> None:
    pytest.importorskip("transformers")
    from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

    sound = 0.1 * np.random.default_rng(0).normal(size=RATE).astype(np.float32) + tone(440)
    filters = mel_filter_bank(201, BINS, 0.0, RATE / 2, RATE, norm="slaney", mel_scale="slaney")
    window = window_function(400, "hann", periodic=True)
    options = {"power": 2.0, "mel_filters": filters, "mel_floor": 1e-10, "log_mel": "log"}
    expected = spectrogram(sound, window, frame_length=400, hop_length=160, fft_length=400, **options)
    found = log_mel(torch.from_numpy(sound)).numpy().T
    assert found.shape == expected.shape == (BINS, 101)
    assert np.abs(found - expected).max() < 1e-4


# --- resampling --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 44_101, 48_000, 192_000])
def test_a_tone_keeps_its_pitch_at_every_rate(rate: int) -> None:
    found = resample(torch.from_numpy(tone(1_000, rate, 0.25)), rate, RATE).numpy()
    assert len(found) == 4_000
    inner = slice(400, -400)  # the ends have no neighbours
    np.testing.assert_allclose(found[inner], tone(1_000, RATE, 0.25)[inner], atol=2e-3)


def test_what_cannot_be_heard_at_the_new_rate_is_removed() -> None:
    found = resample(torch.from_numpy(tone(20_000, 48_000, 0.25)), 48_000, RATE)
    assert float(found[400:-400].abs().max()) < 2e-3


# --- recordings as text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "recording",
    [
        Recording("a.wav"),
        Recording("a #1.wav"),
        Recording("a.wav", 1.5, 4.25),
        Recording("a.wav", 2.0),
        Recording("a#b.wav", 0.0, 3.0, "Ánna & co"),
        Recording("a.wav", speaker="x"),
    ],
)
def test_a_recording_is_written_and_read_back(recording: Recording) -> None:
    assert Recording.parse(str(recording)) == recording


# --- files -------------------------------------------------------------------------------------------------------


def write(path: Path, sound: NDArray[np.float32], rate: int = RATE, **options: str) -> Recording:
    pytest.importorskip("soundfile").write(path, sound, rate, **options)
    return Recording(str(path))


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg", "mp3"])
def test_files_are_read_in_every_format(tmp_path: Path, ending: str) -> None:
    found = read_samples(write(tmp_path / f"a.{ending}", 0.5 * tone(440)))
    assert abs(len(found) - RATE) <= 1_200  # mp3 pads
    assert 0.3 < float(found.abs().max()) < 0.7


def test_eight_channels_at_192_khz_become_one_at_16(tmp_path: Path) -> None:
    one = tone(440, 192_000)
    found = read_samples(write(tmp_path / "a.wav", np.stack([one] * 8, axis=1), 192_000))
    np.testing.assert_allclose(found[400:-400], tone(440)[400:-400], atol=2e-3)


def test_a_part_of_a_file_is_read(tmp_path: Path) -> None:
    sound = np.concatenate([tone(440), np.zeros(RATE, np.float32)])
    path = write(tmp_path / "a.wav", sound).path
    assert float(read_samples(Recording(path, 0.0, 1.0)).abs().max()) > 0.9
    assert float(read_samples(Recording(path, 1.0)).abs().max()) < 0.01
    with pytest.raises(AudioError, match=r"a\.wav: the part from 1 to 9 s is beyond the end of the recording, 2\.00 s"):
        read_samples(Recording(path, 1.0, 9.0))
    with pytest.raises(AudioError, match=r"the part from 9 s to the end is beyond the end of the recording, 2\.00 s"):
        read_samples(Recording(path, 9.0))


def hostile(folder: Path, kind: str) -> Recording:
    """A file that cannot be used."""
    path = folder / "a.wav"
    if kind == "missing":
        pytest.importorskip("soundfile")
        return Recording(str(path))
    sounds = {"empty": np.zeros(0, np.float32), "short": tone(440)[:100], "nan": np.full(16_000, np.nan, np.float32)}
    write(path, sounds.get(kind, 1e30 * tone(440) if kind == "huge" else tone(440)), subtype="FLOAT")
    if kind == "slow":
        path.write_bytes(path.read_bytes()[:24] + (1).to_bytes(4, "little") + path.read_bytes()[28:])
    if kind == "text":
        path.write_text("this is not sound\n" * 50)
    if kind == "blank":
        path.write_bytes(b"")
    if kind == "truncated":
        flac = write(folder / "a.flac", np.random.default_rng(0).normal(size=RATE).astype(np.float32) / 9)
        Path(flac.path).write_bytes(Path(flac.path).read_bytes()[:9_000])
        return flac
    return Recording(str(path))


@pytest.mark.parametrize(
    ("kind", "reason", "message"),
    [
        ("missing", "missing", "no such file"),
        ("text", "broken", "cannot be decoded"),
        ("blank", "broken", "is empty"),
        ("truncated", "broken", "cut short|cannot be decoded"),
        ("empty", "empty", "no samples"),
        ("short", "too short", "too short: 6 ms"),
        ("nan", "broken", "NaN, infinite or far"),
        ("huge", "broken", "far beyond full scale"),
        ("slow", "broken", "a sampling rate of 1 Hz; the lowest is 4,000 Hz"),
        ("long", "too long", r"too long: 1\.0 s of at most 0\.5 s"),
    ],
)
def test_files_that_cannot_be_used_are_named_with_the_reason(
    tmp_path: Path, kind: str, reason: str, message: str
) -> None:
    recording = hostile(tmp_path, kind)
    with pytest.raises(AudioError, match=message) as caught:
        read_samples(recording, longest_seconds=0.5 if kind == "long" else 60)
    assert caught.value.reason == reason
    assert str(caught.value).startswith(recording.path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "subtype"),
    [("WAV", "PCM_16"), ("WAVEX", "FLOAT"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")],
)
def test_a_file_that_ends_too_early_is_refused(
    tmp_path: Path, kind: str, subtype: str, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = write(tmp_path / "whole", 0.5 * tone(440), format=kind, subtype=subtype)
    content, cut = Path(whole.path).read_bytes(), tmp_path / "cut"
    assert len(read_samples(whole)) == RATE
    for size in {*range(100, len(content) - 44, 997), len(content) - 45}:
        cut.write_bytes(content[:size])
        for read in (read_samples, check_header):
            with pytest.raises(AudioError, match=r"cut short|cannot be decoded") as caught:
                read(Recording(str(cut), 0.0, 0.1))
            assert caught.value.reason == "broken"
    assert capfd.readouterr().err == ""  # libmpg123 writes there


@pytest.mark.parametrize(("kind", "subtype"), [("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")])
def test_a_truncated_file_has_the_same_message_in_transcribe_and_in_the_server(
    tmp_path: Path, kind: str, subtype: str
) -> None:
    whole = write(tmp_path / "whole", 0.5 * tone(440, seconds=5), format=kind, subtype=subtype)
    half, cut = Path(whole.path).read_bytes(), tmp_path / "cut"
    cut.write_bytes(half[: len(half) // 2])
    with pytest.raises(AudioError, match="the file is cut short: its") as read:
        read_samples(Recording(str(cut)))
    with pytest.raises(UploadError) as uploaded:
        decode(cut.read_bytes(), UploadLimits(60.0))
    assert str(read.value) == f"{cut}: {uploaded.value.problem}"


def test_tags_and_other_headers_of_an_mp3_do_not_hide_its_size(tmp_path: Path) -> None:
    sound = Path(write(tmp_path / "a.mp3", 0.5 * tone(440, seconds=5)).path).read_bytes()
    tag = b"ID3\4\0\0" + bytes([0, 0, 1, 2]) + bytes(130)
    assert truncation(BytesIO(sound)) == truncation(BytesIO(tag + tag + sound + b"TAG" + bytes(125))) == ""
    assert "header promises" in truncation(BytesIO(tag + tag + sound[: len(sound) // 2]))
    without = sound.replace(b"Xing", b"none").replace(b"Info", b"none")
    assert truncation(BytesIO(without[: len(without) // 2])) == ""
    for hostile in (
        b"\xff",
        b"ID3",
        tag,
        tag * 100,
        b"ID3\4\0\0\x7f\x7f\x7f\x7f",
        b"\xff\xfb" + bytes(11) + b"Xing\0\0\0\x02",
    ):
        assert truncation(BytesIO(hostile)) == ""


def test_the_last_page_of_an_ogg_file_counts(tmp_path: Path) -> None:
    one = Path(write(tmp_path / "a.ogg", 0.5 * tone(440)).path).read_bytes()
    assert truncation(BytesIO(one)) == truncation(BytesIO(one + one)) == truncation(BytesIO(one + b"tag" * 99)) == ""
    for cut in (one + one[:-1], one + one[:40], one + bytes(70_000)):
        assert truncation(BytesIO(cut)) == "its last Ogg page is cut off"


def test_an_ogg_file_without_a_page_that_ends_it_is_read(tmp_path: Path) -> None:
    """As recorded broadcasts are: the recording may have been stopped there."""
    content = Path(write(tmp_path / "a.ogg", 0.5 * tone(440)).path).read_bytes()
    assert truncation(BytesIO(content[: content.rfind(b"OggS")])) == ""


@pytest.mark.parametrize(
    ("riff", "data"),
    [
        (0xFFFF_FFFF, 0xFFFF_FFFF),
        (0x7FFF_F024, 0x7FFF_F000),
        (0x7FFF_F020, 0x7FFF_EFFC),
        (0x7FFF_0024, 0x7FFF_0000),
        (0x8000_0024, 0x8000_0000),
        (0, 32_000),
        (8, 0),
    ],
    ids=["ffmpeg", "sox", "sox, 24 bits", "GStreamer", "arecord", "size of the sound alone", "not closed"],
)
def test_a_wav_that_was_written_to_a_pipe_is_read(tmp_path: Path, riff: int, data: int) -> None:
    recording = write(tmp_path / "a.wav", 0.5 * tone(440))
    content = Path(recording.path).read_bytes()
    sizes = [number.to_bytes(4, "little") for number in (riff, data)]
    (tmp_path / "a.wav").write_bytes(content[:4] + sizes[0] + content[8:40] + sizes[1] + content[44:])
    assert len(read_samples(recording)) == RATE


@pytest.mark.parametrize("rest", [b"", b"LIST\x1a\0\0\0INFO", b"LIST\x04\0\0\0INFO", b"\0" * 9])
def test_what_follows_the_sound_of_a_wav_does_not_matter(tmp_path: Path, rest: bytes) -> None:
    recording = write(tmp_path / "a.wav", 0.5 * tone(440))
    content = Path(recording.path).read_bytes()
    before = b"LIST\x05\0\0\0INFO\1\0"  # an odd size is followed by a byte more
    counted = (32_000 + 44).to_bytes(4, "little")  # with the header, as some programs have it
    for sound in (content, content[:36] + before + content[36:], content[:40] + counted + content[44:]):
        (tmp_path / "a.wav").write_bytes(sound + rest)
        assert len(read_samples(recording)) >= RATE


def test_chunks_without_sound_end() -> None:
    assert truncation(BytesIO(b"RIFF\0\0\0\0WAVE" + b"junk\0\0\0\0" * 10_000)) == ""
    assert truncation(BytesIO(b"RIFF\0\0\0\0WAVE")) == truncation(BytesIO(b"")) == ""
    assert truncation(BytesIO(b"RIFF\0\0\0\0WAVE" + b"junk\0\0\1\0")) == "", "no sound is promised"


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingExtra, match=r"pip install 'transduce\[speech\]'"):
        read_samples(Recording("a.wav"))
