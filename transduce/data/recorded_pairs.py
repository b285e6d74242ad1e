"""Recordings with their texts as a test set: what cannot be read is refused by file and line, if possible before a model is loaded.

Training data may have unusable recordings, which are left out. A test set may not, since every line of it is scored.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from transduce.audio.files import check_header
from transduce.audio.recording import Recording
from transduce.audio.soundfiles import AudioError
from transduce.data.corpus import Corpus, Group, first_lines, is_manifest, is_table, kind_of
from transduce.data.manifests import NAME_COLUMNS, keys_of, look_like_recordings
from transduce.errors import DataError

Places = Mapping[Recording, str]  # the file and line that names each recording

_MANIFEST = "give a .tsv or .jsonl file with the columns audio and text, or a folder with wav.scp and text"
_LISTED = "this model transcribes, so each line of its input names a recording"
_REMEDIES = {
    "missing": "correct the path, which is relative to the folder of the table, or remove the line",
    "beyond the end": "correct the times, or remove the line",
}


def check_recordings(corpus: Corpus) -> Places:
    """The place of each recording; files that name no recordings, and recordings that cannot be opened, are errors."""
    for group in corpus.groups:
        _check_names_recordings(group, corpus)
    places = _places(corpus)
    if not places:
        raise DataError(f"{corpus.groups[0][0]}: names no recordings: give a line for each recording")
    with naming_lines(places):
        for recording in places:
            check_header(recording)
    return places


@contextmanager
def naming_lines(places: Places) -> Iterator[None]:
    """Errors about recordings begin with the file and line that names the recording, and say what to do."""
    try:
        yield
    except AudioError as error:
        raise at_line(error, places[error.recording]) from None


def at_line(error: AudioError, place: str) -> DataError:
    """The error of a recording that a line of a file names."""
    return DataError(f"{place}: {error}: {_REMEDIES.get(error.reason, 'give another file, or remove the line')}")


def _check_names_recordings(group: Group, corpus: Corpus) -> None:
    path = group[0]
    if look_like_recordings([path]):
        raise DataError(f"{path}: is a recording: `transduce transcribe` transcribes it; to score a model, {_MANIFEST}")
    if is_manifest(group):
        if corpus.columns:
            raise DataError(f"{path}:1: names the columns of the table: leave out --columns")
    elif len(group) == 1 and not is_table(path):
        raise DataError(f"{path}: {'names no recordings' if Path(path).exists() else 'no such file'}: {_MANIFEST}")
    elif len(group) == 1:
        raise DataError(f"{path}:1: {_instead(group)}")


def _instead(group: Group) -> str:
    """What the first line of a table has instead of the names of the columns of a manifest."""
    first = (first_lines(group[0]) or [""])[0]
    if kind_of(group) == "json":
        found = f"the keys are {', '.join(keys)}" if (keys := keys_of(first)) else "not an object with keys"
        return f"{found}: each line must have the keys audio and text"
    return f"names no column `audio`: {NAME_COLUMNS}"


def _places(corpus: Corpus) -> dict[Recording, str]:
    places: dict[Recording, str] = {}
    lines = [0] * len(corpus.groups)
    for block in corpus.blocks():
        begin, path = lines[block.group], corpus.groups[block.group][0]
        lines[block.group] += len(block.source)
        for number, source in enumerate(block.source):
            place = block.places[number] if block.places else _listed(source, f"{path}:{begin + number + 1}")
            places.setdefault(Recording.parse(source), place)
    return places


def _listed(source: str, place: str) -> str:
    """The place of a recording in a list of paths; other texts are no recordings."""
    if not source.strip() or not Path(Recording.parse(source).path).exists():
        what = f"{source}: no such file" if source.strip() else "the line is empty"
        raise DataError(f"{place}: {what}: {_LISTED}")
    return place
