"""libsndfile, through the package soundfile (the extra `speech`), and the error for a recording that cannot be used. Imports no torch."""

from typing import Any

from transduce.audio.recording import Recording
from transduce.errors import DataError, MissingExtra

SHORTEST_SECONDS = 0.05  # two positions of the encoder
LOWEST_RATE = 4_000  # hertz: a header with a lower one is damaged
LOUDEST = 1e6  # full scale is 1, and 32,768 where integers were written as they are; beyond this, sums overflow


class AudioError(DataError):
    """A recording that cannot be used. `reason` says why in a few words, so that such recordings can be counted."""

    def __init__(self, recording: Recording, reason: str, message: str) -> None:
        super().__init__(f"{recording.path}: {message}")
        self.recording, self.reason = recording, reason


def soundfile() -> Any:
    """The package, which is imported only where recordings are read."""
    try:
        import soundfile as package
    except ImportError:
        raise MissingExtra("soundfile", "speech") from None
    return package
