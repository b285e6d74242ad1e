"""Which language a text is in, where the package lingua is installed. Knows no models and no HTTP."""

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from transduce.server.refusals import Unknown


@dataclass(frozen=True)
class Detected:
    """A guess, and how sure it is, of 100."""

    language: str
    confidence: float


class Detector:
    """Lingua's detector, loaded when it is first asked; work for the queue."""

    alone = None  # it serves several threads
    kind = "detection"

    def __call__(self, texts: list[str]) -> list[list[Detected]]:
        """The likeliest languages of each text."""
        return [self.detect(text) for text in texts]

    def detect(self, text: str) -> list[Detected]:
        """At most three, likeliest first."""
        if not find_spec("lingua"):
            raise Unknown(
                "no language detector is installed: name the source language, "
                "or run the server after pip install 'transduce[detect]'"
            )
        values = self._lingua.compute_language_confidence_values(text)[:3]
        found = [Detected(one.language.iso_code_639_1.name.lower(), round(100 * one.value, 1)) for one in values]
        return [one for one in found if one.confidence > 0] or found[:1]

    @cached_property
    def _lingua(self) -> Any:
        from lingua import LanguageDetectorBuilder

        return LanguageDetectorBuilder.from_all_languages().build()
