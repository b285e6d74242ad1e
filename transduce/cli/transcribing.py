"""The commands of speech models: transcribe, recordings in, text or subtitles out; and ngram, a model of words for them."""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from transduce import api
from transduce.cli.arguments import Options, announce_progress, load, print_json, search_request
from transduce.errors import DataError, SettingError
from transduce.files import check_place
from transduce.translator import open_folder
from transduce.translator.engines import say_to_stderr

if TYPE_CHECKING:
    from transduce.derived.word_models import WordModel
    from transduce.translator.transcription import Transcript

_WRITTEN = (".txt", ".json", ".srt", ".vtt")  # names of files, not of folders


def transcribe(options: Options) -> int:
    """The exit status is 2 if any file could not be transcribed; the others are transcribed all the same."""
    _check(options)
    open_folder(options.run)  # refused before torch is imported, if it is no model
    from transduce.translator.transcription import transcribe as transcripts

    translator = load(options)
    announce_progress(options)
    request = search_request(translator, options).but(log_probs="outputs")
    translator.ready(request)
    failed, words = 0, _format(options) != "txt"
    with _files(options) as (files, names):
        found = transcripts(translator, files, request, words=words)
        for name, file, transcript in zip(names, files, found, strict=True):
            transcript = replace(transcript, error=transcript.error.replace(file, name))  # a copy of standard input
            failed += bool(transcript.error)
            if transcript.error:
                say_to_stderr(transcript.error)
            text = (
                _shown(name, transcript, options).encode(errors="backslashreplace").decode()
            )  # names may be any bytes
            _write(name, text, bool(transcript.error), options)
    return 2 if failed else 0


def _format(options: Options) -> str:
    return next((name for name in ("json", "srt", "vtt") if getattr(options, name)), "txt")


def _check(options: Options) -> None:
    """Refuse what could only be noticed after hours of transcribing."""
    form = _format(options)
    if form in ("srt", "vtt") and len(options.files) > 1 and not options.output:
        raise SettingError(f"--{form} with several recordings needs --output DIR, so that each has a file of its own")
    if options.rate is not None and "-" not in options.files:
        raise SettingError("--rate has no effect: it is for samples on standard input, which is the file name -")
    if options.rate is not None and not 1_000 <= options.rate <= 768_000:
        raise SettingError(f"--rate {options.rate}: must be from 1,000 to 768,000 samples per second")
    twice = [name for name, count in Counter(map(_stem, options.files)).items() if count > 1]
    if options.output and twice:
        raise SettingError(
            f"--output: several recordings would be written to {twice[0]}.{form}: transcribe them one by one"
        )
    folder = Path(options.output or ".")
    if not folder.is_dir() and (folder.exists() or folder.suffix in _WRITTEN):
        raise SettingError(
            f"--output {options.output}: must be a folder, in which each recording gets a file; to write to one file, use > {folder}"
        )
    if folder.is_dir() and options.output:
        check_place(folder / f"{_stem(options.files[0])}.{form}")


def _stem(file: str) -> str:
    """The name of a transcript without its suffix; that of `talk.flac#t=1.5,4` is `talk_1.5-4`."""
    from transduce.audio.recording import Recording

    if file == "-":
        return "standard-input"
    try:
        recording = Recording.parse(file)
    except DataError:  # it has no transcript, and its error says why
        return Path(file).stem
    times = f"{recording.begin:.10g}-{f'{recording.end:.10g}' if recording.end else 'end'}"
    parts = [times] * bool(recording.begin or recording.end) + [recording.speaker] * bool(recording.speaker)
    return "_".join([Path(recording.path).stem, *(part.replace("/", "-") for part in parts)])


def _shown(name: str, transcript: "Transcript", options: Options) -> str:
    from transduce.translator.subtitles import srt, vtt

    form = _format(options)
    if form == "json":
        return json.dumps(asdict(transcript) | {"file": name, "text": transcript.text}, ensure_ascii=False) + "\n"
    if form in ("srt", "vtt"):
        return srt(transcript) if form == "srt" else vtt(transcript)
    return f"{name}\t{transcript.text}\n" if len(options.files) > 1 and not options.output else f"{transcript.text}\n"


def _write(name: str, text: str, failed: bool, options: Options) -> None:
    if not options.output:
        sys.stdout.write(text)
        sys.stdout.flush()
    elif not failed:
        Path(options.output).mkdir(parents=True, exist_ok=True)
        Path(options.output, f"{_stem(name)}.{_format(options)}").write_text(text, encoding="utf-8")


@contextmanager
def _files(options: Options) -> Iterator[tuple[list[str], list[str]]]:
    """The files to read, with standard input copied to one, and the names to print."""
    given = options.files
    with tempfile.TemporaryDirectory() as folder:
        yield [_from_stdin(Path(folder), options.rate) if name == "-" else name for name in given], given


def _from_stdin(folder: Path, rate: int | None) -> str:
    """Standard input as a file; sound without a header is taken for 16-bit samples, at 16 kHz unless a rate is given."""
    from transduce.audio.uploads import type_of

    sound = sys.stdin.buffer.read()
    if not sound:
        raise DataError("-: standard input is empty")
    has_header = bool(type_of(sound))
    if has_header and rate is not None:
        raise DataError("-: standard input is a file with a header, which has its own rate: leave out --rate")
    path = folder / "standard-input"
    path.write_bytes(sound if has_header else sound[: len(sound) // 2 * 2])
    return str(path) if has_header else _with_header(path, rate)


def _with_header(path: Path, rate: int | None) -> str:
    from transduce.audio.features import RATE
    from transduce.audio.soundfiles import soundfile

    package, wav = soundfile(), path.with_suffix(".wav")
    options = {"samplerate": rate or RATE, "channels": 1, "format": "RAW", "subtype": "PCM_16"}
    samples, _ = package.read(path, **options)
    package.write(wav, samples, rate or RATE, subtype="PCM_16")
    return str(wav)


def ngram(options: Options) -> int:
    made = api.ngram(
        options.run, options.texts, order=options.order, lexicon=options.lexicon, arpa=options.arpa, valid=options.valid,
        tune=not options.no_tune, device=options.device, threads=options.threads, quiet=options.quiet,
    )  # fmt: skip
    if options.json:
        print_json(asdict(made) | {"file": str(made.file)})
    elif not options.quiet:
        print(_word_model(made), file=sys.stderr)
        print(f"use it with `transduce transcribe {options.run} FILE --ngram`", file=sys.stderr)
    return 0


def _word_model(made: "WordModel") -> str:
    weights = made.weights
    about = (
        f"{made.file}: {made.ngrams:,} n-grams, {made.words:,} words; "
        f"--lm-weight {weights.lm_weight:g} --word-bonus {weights.word_bonus:g} --ctc-weight {weights.ctc_weight:g}"
    )
    if made.error_rate is None:
        return about
    return f"{about} have a WER of {made.error_rate:.2f} on {made.utterances} utterances (best among the texts found: {made.least_error_rate:.2f})"
