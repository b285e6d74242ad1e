"""Save a view as one HTML file that needs no server, no network and no other file."""

import json
from pathlib import Path
from typing import Any

from transduce.errors import SettingError
from transduce.explore.page import VIEW, shell


def write_standalone(view: dict[str, Any], path: str | Path) -> None:
    """Write the file that the page's *Save as page* writes."""
    try:
        Path(path).write_text(shell().replace(VIEW, embedded(view)), encoding="utf-8")
    except OSError as error:
        raise SettingError(f"{path}: cannot be written ({error.strerror})") from None


def embedded(view: dict[str, Any]) -> str:
    """JSON that cannot close the HTML element around it."""
    return json.dumps(view, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
