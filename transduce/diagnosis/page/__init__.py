"""The page of an examination: one HTML file that needs no server, in the style of the explorer."""

import math
from pathlib import Path
from typing import Any

from transduce.diagnosis.findings import Report
from transduce.explore.page import VIEW, document, read_files
from transduce.explore.standalone import embedded
from transduce.files import write_result

TEMPLATE = "doctor.html"


def write_page(report: Report, path: str | Path) -> None:
    """Write the page. Texts of the corpus are data in it, and never HTML."""
    text = document(TEMPLATE, read_files(Path(__file__).parent)).replace(VIEW, embedded(_finite(report.to_json())))
    write_result(path, text)


def _finite(value: Any) -> Any:
    """The same with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
