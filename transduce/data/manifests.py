"""Manifests: files that pair recordings with texts. Each becomes pairs whose source is a recording, written as text.

| format | recordings | texts |
| --- | --- | --- |
| TSV with a header, JSONL | `audio`, with optional `offset`, `duration` and `speaker` | `text` |
| NeMo's JSONL | `audio_filepath`, `offset`, `duration` | `text` |
| Common Voice's TSV | `path`, in the folder `clips` beside it; `client_id` | `sentence` |
| a folder of Kaldi's | `wav.scp`, `segments`, `utt2spk` | `text` |

Paths are relative to the manifest. Knows lines of text, and not what is in a recording.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.audio.recording import LONGEST, Recording
from transduce.data.json_lines import json_object
from transduce.errors import DataError

NAME_COLUMNS = "begin the table with a line that names its columns, audio and text, with a tab between them"
_AUDIO = ("audio", "audio_filepath", "path")
_TEXT = ("text", "sentence", "transcript", "target")
_SPEAKER = ("speaker", "client_id", "speaker_id")
_ENDINGS = (".wav", ".flac", ".ogg", ".opus", ".mp3")


@dataclass(frozen=True)
class Utterance:
    """A recording with its text."""

    recording: Recording
    text: str
    place: str  # file:line
    name: str  # the recording as its manifest names it, wherever that lies, and its size: what identifies it


def names_recordings(columns: Sequence[str]) -> bool:
    """Whether a table with these columns is a manifest."""
    return "audio" in columns or "audio_filepath" in columns or {"path", "sentence", "client_id"} <= set(columns)


def look_like_recordings(names: Sequence[str]) -> bool:
    """Whether these sources are file names of recordings, as in a manifest without a header line."""
    given = [name for name in names if name]
    heard = [name for name in given if name.lower().endswith(_ENDINGS)]
    return bool(given) and len(heard) >= len(given) / 2


def keys_of(line: str) -> list[str]:
    """The keys of a line of JSONL; none if it is not an object."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return list(record) if isinstance(record, dict) else []


def is_kaldi_folder(path: str) -> bool:
    return Path(path, "wav.scp").is_file() and Path(path, "text").is_file()


class ManifestParser:
    """Turns the lines of a TSV or JSONL manifest into utterances, block by block."""

    def __init__(self, path: str, kind: str, skip_blank_lines: bool = False) -> None:
        self.path, self.kind, self.line, self.header = path, kind, 0, list[str]()
        self.skip_blank_lines, self.blank = skip_blank_lines, 0  # lines that were skipped

    def __call__(self, lines: Sequence[str]) -> list[Utterance]:
        return [utterance for line in lines for utterance in self._parse(line)]

    def _parse(self, line: str) -> Iterator[Utterance]:
        self.line += 1
        where = f"{self.path}:{self.line}"
        if not line.strip() and self.skip_blank_lines:
            self.blank += 1
        elif not line.strip():
            raise DataError(f"{where}: blank line: use --skip-blank-lines to skip such lines")
        elif self.kind == "json":
            yield utterance(json_object(line, where), self.path, where)
        elif not self.header:
            self.header = _with_texts(line.split("\t"), where)
        else:
            yield utterance(self._record(line.split("\t"), where), self.path, where)

    def _record(self, fields: list[str], where: str) -> dict[str, str]:
        if len(fields) != len(self.header):
            raise DataError(
                f"{where}: {len(fields)} column{'s' * (len(fields) != 1)}, but the first line names {len(self.header)}: "
                f"give {', '.join(self.header)}, with a tab between them"
            )
        return dict(zip(self.header, fields, strict=True))


def _with_texts(header: list[str], where: str) -> list[str]:
    """The header, which must name a column of texts, and every column once."""
    if twice := [name for name, count in Counter(header).items() if count > 1]:
        raise DataError(f"{where}: several columns are named {twice[0]}: rename or remove all but one")
    if not set(header) & set(_TEXT):
        raise DataError(f"{where}: no column `text` among {', '.join(header)}: name the column of the words `text`")
    return header


def utterance(record: Mapping[str, Any], manifest: str, where: str) -> Utterance:
    """The utterance that a line of a manifest describes."""
    audio, text = _first(record, _AUDIO), _first(record, _TEXT)
    if not isinstance(audio, str) or not audio:
        raise DataError(f"{where}: no recording: `{_named(record, _AUDIO)}` must have its path")
    if not isinstance(text, str):
        raise DataError(f"{where}: no text: `{_named(record, _TEXT)}` must have the words that are spoken")
    for name, value in (("the path", audio), ("the text", text)):
        _check_characters(name, value, where)
    begin, length = _seconds(record, "offset", where), _seconds(record, "duration", where)
    speaker = str(_first(record, _SPEAKER) or "")
    # NeMo's manifests give the duration of whole files too, without an offset: it may be rounded and is no part.
    end = begin + length if length and ("audio_filepath" not in record or _is_given(record, "offset")) else 0.0
    folder = Path(manifest).absolute().parent
    if "sentence" in record and "path" in record and (folder / "clips").is_dir():
        audio = os.path.join("clips", audio)
    return _utterance(folder, Recording(audio, begin, end, speaker), text, where)


def kaldi_utterances(folder: str) -> Iterator[Utterance]:
    """The utterances of a folder of Kaldi's, in the order of its `text`."""
    sounds, segments, speakers = (_table(folder, name) for name in ("wav.scp", "segments", "utt2spk"))
    for number, key, text in _rows(folder, "text"):
        where = f"{folder}/text:{number}"
        path, begin, end = key, 0.0, 0.0
        if segments:
            path, begin, end = _segment(segments.get(key, ""), where)
        if path not in sounds:
            raise DataError(f"{where}: no recording {path} in {folder}/wav.scp")
        if sounds[path].endswith("|"):
            raise DataError(f"{folder}/wav.scp: {path} is a command: run it, and name the file that it writes")
        recording = Recording(sounds[path], begin, end, speakers.get(key, ""))
        yield _utterance(Path(folder).absolute(), recording, text, where)


def _utterance(folder: Path, recording: Recording, text: str, where: str) -> Utterance:
    path = str(folder / recording.path)
    try:
        size = os.path.getsize(path)
    except OSError:
        size = -1  # reading it will say why
    whole = Recording(path, recording.begin, recording.end, recording.speaker)
    try:
        Recording.parse(str(whole))  # a path may have times too
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    return Utterance(whole, text, where, f"{recording} {size}")


def _segment(line: str, where: str) -> tuple[str, float, float]:
    try:
        path, begin, end = line.split()[0], *map(float, line.split()[1:3])
        if 0 <= begin < LONGEST and 0 <= end < LONGEST:
            return path, begin, end
    except (IndexError, ValueError):
        pass
    raise DataError(f"{where}: its line in `segments` must be: utterance recording begin end")


def _table(folder: str, name: str) -> dict[str, str]:
    """The lines of a file of Kaldi's, by their first word."""
    return {key: rest for _, key, rest in _rows(folder, name)}


def _rows(folder: str, name: str) -> list[tuple[int, str, str]]:
    """The number, the first word and the rest of each line of a file of Kaldi's; none if there is no such file."""
    path = Path(folder, name)
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    fields = [(number, line.split(maxsplit=1)) for number, line in enumerate(lines, 1) if line.strip()]
    return [(number, key, rest[0].strip() if rest else "") for number, (key, *rest) in fields]


def _check_characters(name: str, value: str, where: str) -> None:
    """Refuse what no file name and no text can have; JSON can spell both."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(f"{where}: {name} has half a surrogate pair (\\ud800-\\udfff): remove it") from None
    if "\0" in value:
        raise DataError(f"{where}: {name} has a null character: remove it")


def _named(record: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of these names that a record has; by default the first of all."""
    return next((name for name in names if name in record), names[0])


def _first(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((record[name] for name in names if name in record), None)


def _is_given(record: Mapping[str, Any], name: str) -> bool:
    """Whether a record has a value for this name: 0 is one; null and an empty column are none."""
    return record.get(name) not in (None, "")


def _seconds(record: Mapping[str, Any], name: str, where: str) -> float:
    value = record.get(name)
    try:
        seconds = -1.0 if isinstance(value, bool) else float(value or 0)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 <= seconds < LONGEST:
        raise DataError(f"{where}: {name} is '{value}', not a number of seconds")
    return seconds
