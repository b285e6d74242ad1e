"""Uploads that nobody should send: damaged recordings of several encodings, and forms that make no sense."""

import io
import random
from functools import cache

import numpy as np
import soundfile

from .clients import Attempt

TRANSCRIBE, OPENAI = "/v1/transcribe", "/v1/audio/transcriptions"
ENCODINGS = [
    ("WAV", "PCM_16"), ("WAV", "PCM_U8"), ("WAV", "FLOAT"), ("WAV", "DOUBLE"), ("WAV", "IMA_ADPCM"), ("WAV", "MS_ADPCM"),
    ("WAV", "GSM610"), ("WAV", "ULAW"), ("WAVEX", "PCM_24"), ("FLAC", "PCM_16"), ("FLAC", "PCM_24"), ("OGG", "VORBIS"),
    ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III"), ("AIFF", "PCM_16"), ("CAF", "ALAC_16"),
]  # fmt: skip
MONO = {"GSM610"}
EXTREMES = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
QUERIES = [
    "", "", "", "", "", "", "", "", "?beam=1", "?beam=1", "?beam=1", "?beam=16", "?beam=99", "?beam=x", "?attention=true", "?response_format=srt", "?response_format=vtt",
    "?response_format=verbose_json", "?response_format=pdf", "?model=talks", "?model=stories", "?model=..%2f..", "?model=%00", "?x=%ff",
]  # fmt: skip
TYPES = [
    "audio/wav", "audio/flac", "audio/ogg", "audio/mpeg", "application/octet-stream", "application/json", "text/plain", "",
    "multipart/form-data", "multipart/form-data; boundary=", "multipart/mixed; boundary=b", "multipart/form-data; boundary=" + "x" * 99,
]  # fmt: skip
FIELDS = [
    ("model", "talks"), ("model", "whisper-1"), ("model", ""), ("response_format", "text"), ("response_format", "verbose_json"),
    ("response_format", "srt"), ("response_format", "\x00"), ("timestamp_granularities[]", "word"), ("language", "en"), ("prompt", "x" * 500),
    ("temperature", "NaN"), ("timestamp_granularities[]", "letter"), ("file", "no recording"), ("x" * 300, "y"), ("stream", "true"),
]  # fmt: skip
FORM = "multipart/form-data; boundary=b"


@cache
def recordings() -> list[bytes]:
    """Sound recordings of each encoding, of several lengths, rates and numbers of channels."""
    draw = np.random.default_rng(1)
    found = []
    for kind, subtype in ENCODINGS:
        for seconds, rate, channels in ((0.3, 16_000, 1), (1.0, 8_000, 1), (0.5, 48_000, 2)):
            if channels > 1 and subtype in MONO:
                continue
            samples = 0.2 * draw.normal(size=(round(seconds * rate), channels)).astype(np.float32)
            file = io.BytesIO()
            soundfile.write(file, samples.clip(-1, 1), rate, format=kind, subtype=subtype)
            found.append(file.getvalue())
    return found


def upload(draw: random.Random) -> Attempt:
    """A recording, damaged most of the time, as a body or in a form; some clients hang up on the way or soon after."""
    content = damaged(draw) if draw.random() < 0.9 else draw.choice(recordings())
    path = OPENAI if draw.random() < 0.4 else TRANSCRIBE + draw.choice(QUERIES)
    if path == OPENAI or draw.random() < 0.3:
        kind, body = FORM, form(draw, content)
    else:
        kind, body = draw.choice(TYPES[:6]) if draw.random() < 0.8 else draw.choice(TYPES), content
    typed = f"Content-Type: {kind}\r\n" if kind else ""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{typed}Content-Length: {len(body)}\r\n\r\n".encode()
    if draw.random() < 0.05:
        return Attempt(head + body[: draw.randrange(len(body) + 1)], draw.uniform(0, 0.05))
    return Attempt(head + body)


def damaged(draw: random.Random) -> bytes:
    """A recording with bytes changed, cut out or doubled, with other numbers in its header, or continued by another."""
    content = bytearray(draw.choice(recordings()))
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        if len(content) > 100:
            draw.choice([_flip, _flip_header, _cut, _double, _extreme, _splice])(draw, content)
    return bytes(content)


def _flip(draw: random.Random, content: bytearray) -> None:
    for _ in range(draw.randint(1, 20)):
        content[draw.randrange(len(content))] = draw.randrange(256)


def _flip_header(draw: random.Random, content: bytearray) -> None:
    content[draw.randrange(4 if draw.random() < 0.8 else 0, 60)] = draw.randrange(256)


def _cut(draw: random.Random, content: bytearray) -> None:
    at = draw.randrange(len(content))
    del content[at : at + draw.choice([1, 10, 500, len(content)])]


def _double(draw: random.Random, content: bytearray) -> None:
    at = draw.randrange(len(content))
    content[at:at] = content[at : at + draw.randint(1, 400)]


def _extreme(draw: random.Random, content: bytearray) -> None:
    """Lengths, rates, channels and block sizes stand at even places of the first bytes."""
    width, at = draw.choice([1, 2, 4]), draw.randrange(4, 64, 2)
    content[at : at + width] = (draw.choice(EXTREMES) % 256**width).to_bytes(width, draw.choice(["little", "big"]))


def _splice(draw: random.Random, content: bytearray) -> None:
    other = draw.choice(recordings())
    content[draw.randrange(len(content)) :] = other[draw.randrange(len(other)) :]


def form(draw: random.Random, content: bytes) -> bytes:
    """A form with the recording and some fields, wrong in its structure one time in three."""
    fields = [_field("file", content, "a.wav")]
    fields += [_field(name, value.encode()) for name, value in draw.choices(FIELDS, k=draw.choice([0, 0, 1, 2, 3]))]
    fields *= 20 if draw.random() < 0.01 else 1
    draw.shuffle(fields)
    whole = bytearray(b"".join(fields) + b"--b--\r\n")
    if draw.random() < 0.33:
        draw.choice([_flip_header, _cut, _double, _no_end, _wrong_boundary])(draw, whole)
    return bytes(whole)


def _field(name: str, value: bytes, file: str = "") -> bytes:
    named = f'; filename="{file}"' if file else ""
    return f'--b\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'.encode() + value + b"\r\n"


def _no_end(draw: random.Random, whole: bytearray) -> None:
    del whole[-draw.randint(1, 9) :]


def _wrong_boundary(draw: random.Random, whole: bytearray) -> None:
    whole[:] = whole.replace(b"--b\r\n", draw.choice([b"--c\r\n", b"--b\n", b"--b \r\n", b"--b--\r\n"]))
