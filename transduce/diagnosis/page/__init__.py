"""The page of an examination: one HTML file that needs no server, in the style of the explorer."""

import math
from pathlib import Path
from typing import Any

from transduce.diagnosis.findings import Report
from transduce.errors import SettingError
from transduce.explore.page import VIEW, document, read_files
from transduce.explore.standalone import embedded

TEMPLATE = "doctor.html"


def check_page(path: str | Path) -> None:
    """Refuse a path that cannot be written, before anything is read."""
    if not Path(path).resolve().parent.is_dir():
        raise SettingError(f"{path}: the folder {Path(path).parent} does not exist: create it first")
    if Path(path).is_dir():
        raise SettingError(f"{path}: is a folder: give the name of a file, such as report.html")


def write_page(report: Report, path: str | Path) -> None:
    """Write the page. Texts of the corpus are data in it, and never HTML."""
    text = document(TEMPLATE, read_files(Path(__file__).parent)).replace(VIEW, embedded(_finite(report.to_json())))
    try:
        Path(path).write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise SettingError(f"{path}: cannot be written ({error.strerror})") from None


def _finite(value: Any) -> Any:
    """The same with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
