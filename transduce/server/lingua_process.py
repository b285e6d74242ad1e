"""The program of the language detector's process: a JSON string per line in, a JSON list of [language, confidence] out.

Lingua runs in a process of its own because it holds Python's global lock while it loads its models, which takes up to
half a minute: in the server's process, no request would be answered meanwhile. `detection` starts it by its path.
"""

import json
import os
import sys
from typing import Any

READY = "ready"
NICENESS = 10  # translations come first while the models are loaded


def main() -> None:
    os.nice(NICENESS)
    from lingua import LanguageDetectorBuilder

    detector = LanguageDetectorBuilder.from_all_languages().with_preloaded_language_models().build()
    print(READY, flush=True)
    for line in sys.stdin:
        print(json.dumps(likeliest(detector, json.loads(line))), flush=True)


def likeliest(detector: Any, text: str) -> list[tuple[str, float]]:
    """At most three languages with their confidence in per cent, likeliest first."""
    values = detector.compute_language_confidence_values(text)[:3]
    found = [(one.language.iso_code_639_1.name.lower(), round(100 * one.value, 1)) for one in values]
    return [(language, confidence) for language, confidence in found if confidence > 0] or found[:1]


if __name__ == "__main__":
    main()
