"""A recording, or a part of one, written as one string: `talk.flac#t=1.5,4&speaker=anna`.

The times are those of W3C media fragments, in seconds. The string is the source text of a pair in a speech corpus.
"""

from dataclasses import dataclass
from urllib.parse import parse_qs, quote

from transduce.errors import DataError

LONGEST = 1e6  # seconds, eleven days: times beyond are mistakes
TYPES = ("wav", "flac", "ogg", "mp3")  # of files that strangers may send; ogg: Opus or Vorbis


@dataclass(frozen=True)
class Recording:
    """A file, which part of it, and who speaks."""

    path: str
    begin: float = 0.0  # seconds
    end: float = 0.0  # seconds; 0: to the end of the file
    speaker: str = ""

    @staticmethod
    def parse(text: str) -> "Recording":
        path, _, fragment = text.rpartition("#")
        if not path or not fragment.startswith(("t=", "speaker=")):
            return Recording(text)
        given = {key: values[0] for key, values in parse_qs(fragment).items()}
        begin, _, end = given.get("t", "").partition(",")
        return Recording(path, _seconds(begin, text), _seconds(end, text), given.get("speaker", ""))

    def __str__(self) -> str:
        times = (
            [f"t={self.begin:.10g},{self.end:.10g}" if self.end else f"t={self.begin:.10g}"]
            if self.begin or self.end
            else []
        )
        parts = [*times, *([f"speaker={quote(self.speaker)}"] if self.speaker else [])]
        return f"{self.path}#{'&'.join(parts)}" if parts else self.path


def _seconds(given: str, text: str) -> float:
    try:
        seconds = float(given or 0)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < LONGEST:
        raise DataError(
            f"{text}: '{given}' is not a number of seconds: write a part of a recording as talk.flac#t=1.5,4"
        )
    return seconds
