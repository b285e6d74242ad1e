"""The command `transcribe`: recordings in, text out."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from transduce.cli.arguments import Options, load, print_json, search_request
from transduce.errors import DataError
from transduce.translator.engines import say_to_stderr

_FORMATS = (b"RIFF", b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"\xff\xf3")  # how files with a header begin


def transcribe(options: Options) -> int:
    """The exit status is 2 if any file could not be transcribed; the others are transcribed all the same."""
    from transduce.translator.transcription import transcribe as transcripts

    translator = load(options)
    request = search_request(translator, options).but(figures="outputs")
    translator.ready(request)
    failed = 0
    with _files(options.files) as (files, names):
        for name, transcript in zip(names, transcripts(translator, files, request), strict=True):
            failed += bool(transcript.error)
            if transcript.error:
                say_to_stderr(transcript.error)
            if options.json:
                print_json(asdict(transcript) | {"file": name, "text": transcript.text})
            else:
                print(f"{name}\t{transcript.text}" if len(names) > 1 else transcript.text)
            sys.stdout.flush()
    return 2 if failed else 0


@contextmanager
def _files(given: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    """The files to read, with standard input copied to one, and the names to print."""
    with tempfile.TemporaryDirectory() as folder:
        yield [_from_stdin(Path(folder)) if name == "-" else name for name in given], given


def _from_stdin(folder: Path) -> str:
    """Standard input as a file; sound without a header is taken for 16-bit samples at 16 kHz."""
    from transduce.audio.features import RATE
    from transduce.audio.files import soundfile

    sound = sys.stdin.buffer.read()
    path = folder / "standard-input"
    if not sound:
        raise DataError("-: standard input is empty")
    path.write_bytes(sound if sound.startswith(_FORMATS) else sound[: len(sound) // 2 * 2])
    if not sound.startswith(_FORMATS):
        package, wav = soundfile(), folder / "standard-input.wav"
        options = {"samplerate": RATE, "channels": 1, "format": "RAW", "subtype": "PCM_16"}
        samples, _ = package.read(path, **options)
        package.write(wav, samples, RATE, subtype="PCM_16")
        path = wav
    return str(path)
